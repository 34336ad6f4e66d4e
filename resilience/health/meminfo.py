"""What the kernel says of the node's memory (/proc/meminfo)."""

from __future__ import annotations

from pathlib import Path


def read_meminfo(root: Path) -> dict[str, int]:
    """Each field that is an amount, in bytes.

    Raises:
        OSError: there is none.
        ValueError: a field's number is none.
    """
    lines = (line.partition(":") for line in (root / "proc/meminfo").read_text().splitlines())
    words = {name: value.split() for name, _, value in lines}
    return {name: int(of[0]) * 1024 for name, of in words.items() if of[1:] == ["kB"]}
