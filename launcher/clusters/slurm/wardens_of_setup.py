"""Becomes the wardens' step while ``setup`` runs: ``python -m ... RUN_DIR [FIRST_TASK]``.

There is no supervisor yet that would start them, and the batch host may be lost all the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ...array_task import folder_of
from ...stored_plan import read_plan
from .cluster import SlurmCluster
from .warden import OF_SETUP, warden_step


def main(arguments: Sequence[str]) -> None:
    first = int(arguments[1]) if arguments[1:] else None
    root = folder_of(Path(arguments[0]), os.environ, first)
    command = warden_step(SlurmCluster(read_plan(root).config), OF_SETUP)
    if command is not None:
        os.execvpe(command.argv[0], command.argv, dict(command.env))


if __name__ == "__main__":
    main(sys.argv[1:])
