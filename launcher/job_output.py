"""Words for the output of a job, which lies in the run folder: a full disk drops them."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Final

_STDERR: Final = 2


def tell(line: str) -> None:
    """One line. Past Python's buffers: what is left in those turns the exit code into 120."""
    with contextlib.suppress(OSError):
        os.write(_STDERR, f"relight: {line}\n".encode())


def flush() -> None:
    """Before the end of a process by ``os._exit``."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
