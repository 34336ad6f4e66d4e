"""Checkpoints of ranks that no supervisor looks after: rank 0 chooses, commits and deletes."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

from relight.errors import RelightError
from relight.storage.checkpointer import CheckpointDamaged
from relight.storage.choose import newest_valid, set_aside
from relight.storage.commit import Fenced, claim_epoch, commit, commit_complete, read_receipts
from relight.storage.epoch import check_holding
from relight.storage.errors import NoValidCheckpoint
from relight.storage.layout import Incarnation, manifest_path
from relight.storage.manifest import Manifest
from relight.storage.needs import Needs
from relight.storage.notes import Notes
from relight.storage.progress import Advance, progress, unseen
from relight.storage.prune import prune
from relight.storage.receipt import Receipt
from relight.storage.retention import Keep

from .agreement import GatherAll, together
from .checkpoints import (
    Restored,
    State,
    chosen_manifest,
    neighbours_of,
    read_state,
    tell,
    way_of_saving,
)
from .environment import Environment
from .failed_saves import FailedSaves
from .saving import Target, WhileWaiting
from .world import World

_RECEIPTS_TIMEOUT_S: Final = 300.0
_POLL_S: Final = 0.05
_WORTH_A_BAR_BYTES: Final = 256 << 20


class ReceiptsMissing(RelightError):
    """Some ranks did not save a step that others have saved."""


class OwnCheckpoints:
    """Without a supervisor, rank 0 chooses, names the incarnation and commits."""

    def __init__(
        self, directory: Path, environment: Environment, world: World, gather_all: GatherAll
    ) -> None:
        self.near = False
        self._keep = Keep(last=environment.keep_last)
        self._directory = directory
        self._world = world
        self._gather_all = gather_all
        self._epoch = 0  # once rank 0 has claimed the directory
        self._fenced: Fenced | None = None  # another program has claimed it since
        self._incarnation = Incarnation("unnamed", 0)
        self._failed = FailedSaves(directory, self._incarnation)
        self._reuse = environment.reuse
        self.saving = way_of_saving(environment, world)

    def restore(self, needs: Callable[[], Needs]) -> Restored | None:
        name = f"own-{int(time.time())}-{secrets.token_hex(4)}"
        self._incarnation = Incarnation(self._gather_all(name)[0], 0)
        self._failed = FailedSaves(self._directory, self._incarnation)
        self._epoch = int(self._of_first(self._take_over))
        faults: list[str] = []
        while manifest := self._choose():
            restored, faults = self._load(manifest, needs)
            if not faults:
                return restored
            self._of_first(partial(self._set_aside, manifest.step, faults[0]))
        if faults:  # what failed was read into the program's own arrays
            raise NoValidCheckpoint(str(self._directory), tuple(faults))
        return None

    def save(self, step: int, state: State, notes: Notes, *, last: bool = False) -> bool:
        self._look_at_claims()
        self._require_holding()
        waits = last or isinstance(self.saving, WhileWaiting)  # else the program goes on to print
        target = Target(
            self._directory,
            step,
            self._incarnation,
            self._world,
            notes,
            self._reuse,
            shown=partial(_bar, self._world, f"save step {step}") if waits else unseen,
        )
        saved = self.saving.save(target, state, partial(self._conclude, step))
        self._require_holding()
        return saved

    def _look_at_claims(self) -> None:
        """On each rank: all are to end, whoever has started them."""
        try:
            check_holding(self._directory, self._epoch)
        except Fenced as error:
            self._fenced = error
        except OSError:
            pass  # what is wrong with the directory, the save will tell

    def _require_holding(self) -> None:
        """Raises Fenced: no step more can be saved, and computing on is for nothing."""
        if self._fenced is not None:
            raise self._fenced

    def _conclude(self, step: int, write: Callable[[], Receipt]) -> bool:
        try:
            write()
            if self._world.rank == 0:
                self._commit(step)
        except Fenced as error:
            self._fenced = error
            return False
        except (RelightError, OSError) as error:
            if self._world.rank != 0:
                self._failed.say(step, self._world.rank, str(error))
            tell(self._world, f"the checkpoint of step {step} failed: {error}")
            return False
        return True

    def _of_first(self, act: Callable[[], str]) -> str:
        """What rank 0 does, alone, and says to all."""
        return together(self._gather_all, act if self._world.rank == 0 else str)[0]

    def _take_over(self) -> str:
        epoch = claim_epoch(self._directory, self._incarnation)
        commit_complete(self._directory, epoch)
        return str(epoch)

    def _set_aside(self, step: int, reason: str) -> str:
        set_aside(self._directory, step, reason)
        return ""

    def _choose(self) -> Manifest | None:
        """Rank 0's choice, on all ranks: they might look at different moments."""
        step = self._of_first(self._newest)
        found: list[Manifest] = []

        def look() -> str:
            if step:
                found.append(chosen_manifest(manifest_path(self._directory, int(step))))
            return ""

        together(self._gather_all, look)
        return found[0] if found else None

    def _newest(self) -> str:
        found = newest_valid(self._directory)
        return str(found.step) if found else ""

    def _load(
        self, manifest: Manifest, needs: Callable[[], Needs]
    ) -> tuple[Restored | None, list[str]]:
        """The state of this rank, and what any of them has found damaged."""
        restored: list[Restored] = []
        neighbours = neighbours_of(self._directory, manifest, self._world, self._incarnation)
        shown = partial(_bar, self._world, "restore")
        read = partial(read_state, self._directory, manifest, self._world, needs, shown=shown)

        def load() -> str:
            try:
                try:
                    restored.append(read(neighbours=neighbours))
                except CheckpointDamaged:  # a file system that has just failed may be back
                    restored.append(read())
            except (CheckpointDamaged, FileNotFoundError) as error:
                what = error.what if isinstance(error, CheckpointDamaged) else str(error)
                aside = "the checkpoint is set aside, and the one before it taken"
                tell(self._world, f"{what}: {aside}")
                return what
            return ""

        faults = [word for word in together(self._gather_all, load) if word]
        return (restored[0] if restored else None), faults

    def _commit(self, step: int) -> None:
        receipts = self._receipts(step)
        commit(self._directory, step, self._incarnation, self._epoch, receipts, {})
        prune(self._directory, self._keep, self._epoch, self._incarnation)

    def _receipts(self, step: int) -> tuple[Receipt, ...]:
        """Looks for files: a collective here would have to match one on every other rank."""
        give_up_at_s = time.monotonic() + _RECEIPTS_TIMEOUT_S
        while True:
            receipts = read_receipts(self._directory, step, self._incarnation)
            if len(receipts) == self._world.size:
                return receipts
            saved = {receipt.rank for receipt in receipts}
            for rank, reason in self._failed.hear(step).items():
                if rank not in saved:
                    raise ReceiptsMissing(f"rank {rank} has not saved it: {reason}")
            if time.monotonic() > give_up_at_s:
                raise ReceiptsMissing(
                    f"{len(receipts)} of {self._world.size} ranks have saved step {step} in "
                    f"{_RECEIPTS_TIMEOUT_S:.0f} s; the checkpoint before it stands"
                )
            time.sleep(_POLL_S)


def _bar(world: World, what: str, total_bytes: int) -> AbstractContextManager[Advance]:
    """For who has started the program by hand."""
    if world.rank != 0 or total_bytes < _WORTH_A_BAR_BYTES:
        return unseen(total_bytes)
    return progress(what, total_bytes)
