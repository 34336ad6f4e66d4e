"""The environment that this process was started with."""

from __future__ import annotations

from pathlib import Path


def initial_environment() -> dict[str, str]:
    """Variables as they were before this interpreter began.

    In the C locale Python sets LC_CTYPE for itself (PEP 538); ``os.environ`` would hand that on.
    """
    pairs = (
        entry.decode(errors="surrogateescape").partition("=")
        for entry in Path("/proc/self/environ").read_bytes().split(b"\0")
    )
    return {name: value for name, equals, value in pairs if equals}
