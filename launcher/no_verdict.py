"""Why the supervisor of a local run has left no verdict: what it said, or could not write."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from relight.resilience.run_folder import RunFolder

from .rank_logs import last_lines, script_output

_BLOCK_BYTES: Final = 4096  # the least that a file takes


def no_verdict(folder: RunFolder, code: int) -> str:
    """One sentence, below the last lines of the attempt."""
    output = script_output(folder)
    said = [] if output is None else last_lines(output)
    fault = _refusal(folder.root)
    why = "" if fault is None else f": {folder.root} cannot be written: {fault}"
    text = f"the supervisor ended with {code} and left no verdict{why}"
    return "\n".join([*(f"      | {line}" for line in said), text])


def _refusal(folder: Path) -> str | None:
    """What the system answers to who writes a block there; a full disk takes an empty file."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_BLOCK_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    return None
