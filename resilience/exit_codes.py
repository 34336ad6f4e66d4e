"""What the exit code of a rank, of a batch script and of ``relight`` says."""

from __future__ import annotations

from typing import Final

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_RESTART: Final = 75  # saved, to be restarted (EX_TEMPFAIL of sysexits.h)
EXIT_STOP: Final = 93  # stopped for good: do not requeue
