"""A file that cannot be written for a while: told when that begins and when it is over."""

from __future__ import annotations

import logging
import time
from typing import Final

_log: Final = logging.getLogger(__name__)


class Trouble:
    """Of one file, which ``what`` names; it is tried again and again."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since: float | None = None

    def met(self, error: OSError) -> None:
        """It was refused."""
        if self._since is None:
            self._since = time.monotonic()
            _log.error("%s cannot be written for now: %s", self._what, error)

    def over(self) -> None:
        """It was written."""
        if self._since is not None:
            lasted_s = time.monotonic() - self._since
            _log.warning("%s is written again, after %.0f s", self._what, lasted_s)
            self._since = None
