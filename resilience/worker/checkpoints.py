"""Where the state of a rank goes and comes from: with an agent, and without one.

Loads the storage with h5py and numpy, so it is imported at the first restore.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from relight.errors import RelightError
from relight.storage.checkpointer import CheckpointDamaged, SaveFailed
from relight.storage.choose import newest_valid
from relight.storage.condition import shard_fault
from relight.storage.errors import CodecMissing, ManifestDamaged
from relight.storage.layout import Incarnation, step_dir, step_of
from relight.storage.manifest import Manifest
from relight.storage.needs import Needs
from relight.storage.node_reads import WORTH_SHARING_BYTES, Neighbours
from relight.storage.notes import Notes
from relight.storage.progress import Progress, unseen
from relight.storage.receipt import Receipt
from relight.storage.resize import load_for
from relight.storage.tier import drop_foreign
from relight.storage.visible import await_file

from ..exit_codes import EXIT_FAILED
from .environment import Environment
from .line import Line
from .node_tier import NodeTier
from .saving import InBackground, Saving, Target, WhileWaiting
from .world import World

State = Mapping[str, object]
Metrics = Mapping[str, float]


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
        self.saving = way_of_saving(environment, world)

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
            tell(self._world, str(error))
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
        neighbours = neighbours_of(self._directory, manifest, self._world, self._incarnation)
        shown = partial(self._line.transfer.shown, "restore", manifest.step)
        read = partial(read_state, self._directory, manifest, self._world, needs, shown=shown)
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
            tell(self._world, f"the checkpoint of step {step} failed: {error}")
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
        return chosen_manifest(Path(self._choice)) if self._choice else None


def way_of_saving(environment: Environment, world: World) -> Saving:
    if not environment.staging_bytes:
        return WhileWaiting()
    try:
        return InBackground(
            environment.staging_bytes,
            partial(tell, world),
            ranks_here=world.local_size,
            overlap=environment.overlap,
        )
    except OSError as error:
        tell(world, f"steps wait for each save: no process can be started for it: {error}")
        return WhileWaiting()


def chosen_manifest(path: Path) -> Manifest:
    """Of a checkpoint that somebody has chosen, maybe on another node.

    Raises ManifestDamaged, OSError.
    """
    await_file(path)
    return Manifest.parse(path.read_bytes())


def read_state(
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


def neighbours_of(
    directory: Path, manifest: Manifest, world: World, incarnation: Incarnation
) -> Neighbours | None:
    """None where nothing is gained: this rank is alone on its node, or the checkpoint small."""
    if world.local_size < 2 or manifest.payload_bytes < WORTH_SHARING_BYTES:
        return None
    return Neighbours(f"{directory} {incarnation.folder} {manifest.step}", world.local_size)


def tell(world: World, text: str) -> None:
    sys.stderr.write(f"relight: rank {world.rank}: {text}\n")


def shard_of(error: RelightError | OSError) -> str | None:
    """The shard that is damaged, as receipts name it; it may be that of another rank."""
    return "/".join(Path(error.file).parts[-2:]) if isinstance(error, CheckpointDamaged) else None
