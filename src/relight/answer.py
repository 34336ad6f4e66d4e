"""What a process of ours answers on its standard output, whatever else is printed there.

A site's ``sitecustomize`` or a ``.pth`` file may print when Python starts, or when it ends.
"""

from __future__ import annotations

import sys
from typing import Final

_EDGE: Final = "\0"


def give(answer: str) -> None:
    """Called once, by the process that was asked."""
    sys.stdout.write(f"{_EDGE}{answer}{_EDGE}")


def given(output: bytes) -> str | None:
    """The answer in all that a process has printed; None when it gave none."""
    parts = output.split(_EDGE.encode())
    return parts[1].decode() if len(parts) == 3 else None
