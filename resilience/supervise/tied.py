"""Becomes a command that is told to end (SIGTERM) when its parent does: ``tied.py PARENT ARGV...``.

A supervisor that is killed tells nobody, and its next life knows nothing of its steps.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def to_me(argv: Sequence[str]) -> tuple[str, ...]:
    """The command, as one that ends with this process, however that ends."""
    # Without the site packages it begins at once.
    return (sys.executable, "-P", "-ES", __file__, str(os.getpid()), *argv)


def main(arguments: Sequence[str]) -> None:
    parent, *argv = arguments
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() == int(parent):
        os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1:])
