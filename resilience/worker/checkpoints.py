"""Where the state of a rank goes and comes from: with an agent, and without one.

Loads the storage with h5py and numpy, so it is imported at the first restore.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from relight.errors import RelightError
from relight.storage.checkpointer import CheckpointDamaged, SaveFailed
from relight.storage.choose import newest_valid, set_aside
from relight.storage.commit import claim_epoch, commit, commit_complete, read_receipts
from relight.storage.condition import shard_fault
from relight.storage.errors import CodecMissing, ManifestDamaged, NoValidCheckpoint
from relight.storage.layout import Incarnation, manifest_path, step_dir, step_of
from relight.storage.manifest import Manifest
from relight.storage.needs import Needs
from relight.storage.node_reads import WORTH_SHARING_BYTES, Neighbours
from relight.storage.notes import Notes
from relight.storage.progress import Advance, Progress, progress, unseen
from relight.storage.prune import prune
from relight.storage.receipt import Receipt
from relight.storage.resize import load_for
from relight.storage.retention import Keep
from relight.storage.tier import drop_foreign
from relight.storage.visible import await_file

from ..exit_codes import EXIT_FAILED
from .agreement import GatherAll
from .environment import Environment
from .line import Line
from .node_tier import NodeTier
from .saving import InBackground, Saving, Target, WhileWaiting
from .world import World

_RECEIPTS_TIMEOUT_S: Final = 300.0
_POLL_S: Final = 0.05
_WORTH_A_BAR_BYTES: Final = 256 << 20


State = Mapping[str, object]
Metrics = Mapping[str, float]


class ReceiptsMissing(RelightError):
    """Some ranks did not save a step that others have saved."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The state before ``step``; ``missing`` are the keys under which this rank has saved none."""

    step: int
    state: State
    missing: frozenset[tuple[str, ...]]
    metrics: Metrics


class Checkpoints(Protocol):
    """The place of a run's checkpoints, as one rank sees it."""

    @property
    def near(self) -> bool:
        """Whether this rank's shard was restored from the tier of its node."""

    @property
    def saving(self) -> Saving:
        """Whether and how the last save went."""

    def restore(self, needs: Callable[[], Needs]) -> Restored | None:
        """The state to go on from; None to start from scratch.

        ``needs`` is asked only when there is something to restore. Raises RanksDiffer, PartsUnfit.
        """

    def save(self, step: int, state: State, notes: Notes, *, last: bool = False) -> bool:
        """Takes the state of this moment; False when saving it failed, which it has reported.

        After the last one this process ends: nothing is gained by saving it in a tier first.
        """


class NoCheckpoints:
    """A run without a directory."""

    near = False

    def __init__(self) -> None:
        self.saving: Saving = WhileWaiting()

    def restore(self, needs: Callable[[], Needs]) -> Restored | None:
        return None

    def save(self, step: int, state: State, notes: Notes, *, last: bool = False) -> bool:
        return True


class SupervisedCheckpoints:
    """The supervisor chooses what to restore and commits what all ranks have saved."""

    def __init__(self, directory: Path, environment: Environment, world: World, line: Line) -> None:
        self._directory = directory
        self._incarnation = Incarnation(environment.attempt, environment.generation)
        self._choice = environment.restore
        self._world = world
        self._line = line
        self._reuse = environment.reuse
        self.near = False
        self._tier: NodeTier | None = None
        if environment.tier is not None:
            self._tier = NodeTier(environment.tier, world.rank, line, self._tell_of_tier)
        self.saving = _way_of_saving(environment, world)

    def restore(self, needs: Callable[[], Needs]) -> Restored | None:
        try:
            manifest = self._chosen()
            self._clear_tier(manifest)
            return self._nearest(manifest, needs) if manifest else None
        except (CheckpointDamaged, ManifestDamaged, CodecMissing, OSError) as error:
            step = step_of(Path(self._choice or "").parent.name)
            failed = {"type": "restore_failed", "step": step, "reason": str(error)}
            lacking = isinstance(error, CodecMissing)
            self._line.send(failed | {"file": shard_of(error), "lacking": lacking})
            _tell(self._world, str(error))
            raise SystemExit(EXIT_FAILED) from error

    def save(self, step: int, state: State, notes: Notes, *, last: bool = False) -> bool:
        if last and self._tier is not None:
            self.saving.settle()
            self._line.copied.wait()  # or it would overtake the copy of the one before
        target = Target(
            self._directory,
            step,
            self._incarnation,
            self._world,
            notes,
            self._reuse,
            tier=None if last else self._tier,
            shown=partial(self._line.transfer.shown, "save", step),
        )
        return self.saving.save(target, state, partial(self._conclude, step))

    def _clear_tier(self, manifest: Manifest | None) -> None:
        """Of what is in the tier, only this checkpoint's shards can be needed again."""
        if self._tier is None or self._world.local_rank:
            return
        try:
            drop_foreign(self._tier.folder, manifest, self._incarnation)
        except OSError as error:
            self._tier.tell_once("failed", str(error))

    def _nearest(self, manifest: Manifest, needs: Callable[[], Needs]) -> Restored:
        """Out of the tier what is there; its copies are of the very bytes of the manifest."""
        tier = self._tier
        neighbours = _neighbours(self._directory, manifest, self._world, self._incarnation)
        shown = partial(self._line.transfer.shown, "restore", manifest.step)
        read = partial(_read, self._directory, manifest, self._world, needs, shown=shown)
        if tier is None:
            return read(neighbours=neighbours)
        own = manifest.receipts[self._world.rank % manifest.world_size]
        self.near = not shard_fault(step_dir(tier.folder, manifest.step), own.as_saved)
        try:
            return read(tier=tier.folder, neighbours=neighbours)
        except CheckpointDamaged as error:
            if not Path(error.file).is_relative_to(tier.folder):
                raise
            damaged = f"{error.file} is damaged at {error.array}: {error.reason}"
            tier.tell_once("damaged", damaged)
            self.near = False
            return read()

    def _tell_of_tier(self, why: str) -> None:
        self._line.send({"type": "tier_failed", "rank": self._world.rank, "reason": why})

    def _conclude(self, step: int, write: Callable[[], Receipt]) -> bool:
        try:
            receipt = write()
        except (SaveFailed, OSError) as error:
            failed = {"type": "save_failed", "step": step, "reason": str(error)}
            self._line.send(failed | {"errno": error.errno})
            _tell(self._world, f"the checkpoint of step {step} failed: {error}")
            return False
        stall_s = self.saving.stall_s
        stall_s = receipt.seconds if stall_s is None else stall_s
        saved = {"type": "saved", "receipt": receipt.to_json(), "stall_s": stall_s}
        saved |= {"behind_s": self.saving.behind_s, "staged": self.saving.staged_bytes}
        self._line.send(saved | self._to_drain(receipt))
        return True

    def _to_drain(self, receipt: Receipt) -> dict[str, object]:
        """What the agent has to know of a shard that is in the tier yet."""
        if self._tier is None or self._tier.holds is not receipt:
            return {}
        return {
            "tier": str(self._tier.folder),
            "directory": str(self._directory),
            "step": receipt.step,
            "writer": receipt.incarnation.folder,
            "rank": receipt.rank,
        }

    def _chosen(self) -> Manifest | None:
        if self._choice is None:
            return newest_valid(self._directory)
        return _manifest(Path(self._choice)) if self._choice else None


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
        self._epoch = 0  # of rank 0, once it has claimed the directory
        self._incarnation = Incarnation("unnamed", 0)
        self._reuse = environment.reuse
        self.saving = _way_of_saving(environment, world)

    def restore(self, needs: Callable[[], Needs]) -> Restored | None:
        name = f"own-{int(time.time())}-{secrets.token_hex(4)}"
        self._incarnation = Incarnation(self._gather_all(name)[0], 0)
        if self._world.rank == 0:
            self._epoch = claim_epoch(self._directory, self._incarnation)
            commit_complete(self._directory, self._epoch)
        faults: list[str] = []
        while True:
            manifest = self._choose()
            if manifest is None and faults:  # what failed was read into the program's own arrays
                raise NoValidCheckpoint(str(self._directory), tuple(faults))
            if manifest is None:
                return None
            restored, fault = self._load(manifest, needs)
            faults = [word for word in self._gather_all(fault) if word]
            if not faults:
                return restored
            if self._world.rank == 0:
                set_aside(self._directory, manifest.step, faults[0])

    def save(self, step: int, state: State, notes: Notes, *, last: bool = False) -> bool:
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
        return self.saving.save(target, state, partial(self._conclude, step))

    def _conclude(self, step: int, write: Callable[[], Receipt]) -> bool:
        try:
            write()
            if self._world.rank == 0:
                self._commit(step)
        except (SaveFailed, OSError, ReceiptsMissing) as error:
            _tell(self._world, f"the checkpoint of step {step} failed: {error}")
            return False
        return True

    def _choose(self) -> Manifest | None:
        """Rank 0's choice, on all ranks: they might look at different moments."""
        word = ""
        if self._world.rank == 0 and (found := newest_valid(self._directory)):
            word = str(found.step)
        step = self._gather_all(word)[0]
        if not step:
            return None
        return _manifest(manifest_path(self._directory, int(step)))

    def _load(self, manifest: Manifest, needs: Callable[[], Needs]) -> tuple[Restored | None, str]:
        try:
            neighbours = _neighbours(self._directory, manifest, self._world, self._incarnation)
            shown = partial(_bar, self._world, "restore")
            restored = _read(
                self._directory, manifest, self._world, needs, neighbours=neighbours, shown=shown
            )
        except (CheckpointDamaged, FileNotFoundError) as error:
            what = error.what if isinstance(error, CheckpointDamaged) else str(error)
            _tell(self._world, f"{what}: the checkpoint is set aside, and the one before it taken")
            return None, what
        return restored, ""

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
            if time.monotonic() > give_up_at_s:
                raise ReceiptsMissing(
                    f"{len(receipts)} of {self._world.size} ranks have saved step {step} in "
                    f"{_RECEIPTS_TIMEOUT_S:.0f} s; the checkpoint before it stands"
                )
            time.sleep(_POLL_S)


def _way_of_saving(environment: Environment, world: World) -> Saving:
    if not environment.staging_bytes:
        return WhileWaiting()
    try:
        tell = partial(_tell, world)
        return InBackground(
            environment.staging_bytes,
            tell,
            ranks_here=world.local_size,
            overlap=environment.overlap,
        )
    except OSError as error:
        _tell(world, f"steps wait for each save: no process can be started for it: {error}")
        return WhileWaiting()


def _manifest(path: Path) -> Manifest:
    """Of a checkpoint that somebody has chosen, maybe on another node.

    Raises ManifestDamaged, OSError.
    """
    await_file(path)
    return Manifest.parse(path.read_bytes())


def _read(
    directory: Path,
    manifest: Manifest,
    world: World,
    needs: Callable[[], Needs],
    tier: Path | None = None,
    neighbours: Neighbours | None = None,
    shown: Progress = unseen,
) -> Restored:
    # In another world a rank reads the shards of all.
    rank, saved = world.rank, manifest.receipts
    for receipt in saved[rank : rank + 1] if world.size == manifest.world_size else saved:
        for file in receipt.files:
            await_file(step_dir(directory, manifest.step) / file)
    loaded = load_for(directory, manifest, world.rank, world.size, needs(), tier, neighbours, shown)
    return Restored(manifest.step, loaded.state, loaded.missing, manifest.metrics)


def _bar(world: World, what: str, total_bytes: int) -> AbstractContextManager[Advance]:
    """For who has started the program by hand."""
    if world.rank != 0 or total_bytes < _WORTH_A_BAR_BYTES:
        return unseen(total_bytes)
    return progress(what, total_bytes)


def _neighbours(
    directory: Path, manifest: Manifest, world: World, incarnation: Incarnation
) -> Neighbours | None:
    """None where nothing is gained: this rank is alone on its node, or the checkpoint small."""
    if world.local_size < 2 or manifest.payload_bytes < WORTH_SHARING_BYTES:
        return None
    return Neighbours(f"{directory} {incarnation.folder} {manifest.step}", world.local_size)


def _tell(world: World, text: str) -> None:
    sys.stderr.write(f"relight: rank {world.rank}: {text}\n")


def shard_of(error: RelightError | OSError) -> str | None:
    """The shard that is damaged, as receipts name it; it may be that of another rank."""
    return "/".join(Path(error.file).parts[-2:]) if isinstance(error, CheckpointDamaged) else None
