"""A rank's saves into the tier of its node, as long as that has room and works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from relight.storage.errors import SaveFailed
from relight.storage.receipt import Receipt
from relight.storage.tier import in_spite_of_removals, room_bytes
from relight.storage.tier_folder import make_private

from .environment import TierPlace
from .line import Line


class NodeTier:
    """One rank's share of the tier.

    Attributes:
        holds: the receipt of the last save that went there.
    """

    def __init__(
        self, place: TierPlace, rank: int, line: Line, tell: Callable[[str], None]
    ) -> None:
        self.folder = place.folder
        self._share_bytes = place.share_bytes
        self._rank = rank
        self._line = line
        self._tell = tell
        self._told: set[str] = set()
        self.holds: Receipt | None = None

    def save(self, need_bytes: int, write: Callable[[Path], Receipt]) -> Receipt | None:
        """The receipt of a save in the tier; None when that has no room, or fails.

        The save before is copied first: what the directory does not take in time would only pile
        up, and other ranks' copies of the same step with it.
        """
        self._line.copied.wait()
        try:
            make_private(self.folder)
            room = room_bytes(self.folder, self._rank, self._share_bytes)
            if need_bytes > room:
                self.tell_once(
                    "full", f"a save takes {need_bytes} bytes, and {max(0, room)} are left"
                )
                return None
            self.holds = in_spite_of_removals(lambda: write(self.folder))
        except (SaveFailed, OSError) as error:
            self.tell_once("failed", str(error))
            return None
        self._line.owe_copy()
        return self.holds

    def tell_once(self, kind: str, why: str) -> None:
        """Of each kind of trouble only the first is told: the next saves will have it too."""
        if kind not in self._told:
            self._tell(why)
        self._told.add(kind)
