"""What ranks without a supervisor say of a save that failed: rank 0 waits for their receipts.

It lies where the receipt would, and goes with the folder. Who can write nothing there says nothing.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from relight.storage.durable import publish
from relight.storage.layout import Incarnation, incarnation_dir
from relight.storage.sealed import Json, field, seal, unseal


class FailedSaves:
    """Those of one incarnation; each is heard once, for what has failed may be tried again."""

    def __init__(self, directory: Path, incarnation: Incarnation) -> None:
        self._directory = directory
        self._incarnation = incarnation
        self._heard: set[str] = set()

    def say(self, step: int, rank: int, reason: str) -> None:
        path = self._folder(step) / f"failed-{rank:05d}.json"
        word: dict[str, Json] = {"rank": rank, "reason": reason, "try": secrets.token_hex(8)}
        with suppress(OSError):  # the disk that has failed; rank 0 waits in vain then
            publish(path, seal(word))

    def hear(self, step: int) -> dict[int, str]:
        """By rank why it has failed, of those that have not been heard yet."""
        found = {}
        for path in self._folder(step).glob("failed-*.json"):
            with suppress(OSError, ValueError):
                word = unseal(path.read_bytes())
                if word["try"] not in self._heard:
                    self._heard.add(field(word, "try", str))
                    found[field(word, "rank", int)] = field(word, "reason", str)
        return found

    def _folder(self, step: int) -> Path:
        return incarnation_dir(self._directory, step, self._incarnation)
