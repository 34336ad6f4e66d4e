"""The two ways of making a rank's shard: while the program waits, or while it goes on.

Either way the values are those of the moment of the call. What follows a save, such as telling the
supervisor, is the caller's ``conclude``; it gets the call that writes, and says whether all went
well. Loads the storage with h5py and numpy.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from relight.storage.checkpointer import save_source, source_of
from relight.storage.layout import Incarnation
from relight.storage.notes import Notes
from relight.storage.progress import Progress, unseen
from relight.storage.receipt import Receipt
from relight.storage.snapshot import Order, Snapshot, need_bytes, pin_for_gpus, take, take_rest
from relight.storage.staging import Staging
from relight.storage.staging_room import room_bytes
from relight.storage.state import Encoder
from relight.storage.writer_process import Writer

from .node_tier import NodeTier
from .overlap import Optimizers, optimizers
from .world import World

MIB = 1024**2
State = Mapping[str, object]
Conclude = Callable[[Callable[[], Receipt]], bool]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a rank saves one step, and in whose name; first in its node's tier, if it has one."""

    directory: Path
    step: int
    incarnation: Incarnation
    world: World
    notes: Notes
    reuse: int = 0
    tier: NodeTier | None = None
    shown: Progress = unseen

    def order(self, state: State, started_s: float) -> Order:
        """Raises StateRefused."""
        world = self.world
        notes = self.notes if world.rank == 0 else Notes()
        source = source_of(
            self.step, self.incarnation, world.rank, world.size, state, notes, self.reuse
        )
        return Order(source=source, started_s=started_s)

    def save(self, order: Order, write: Callable[[Path], Receipt]) -> Receipt:
        """Raises SaveFailed, or what else ``write`` raises."""
        near = self.tier and self.tier.save(order.source.payload_bytes, write)
        return near or write(self.directory)


class Saving(Protocol):
    """A way of saving."""

    @property
    def stall_s(self) -> float | None:
        """How long the program waited for the save that goes on; None: as long as that takes."""

    @property
    def behind_s(self) -> float:
        """How much of that was for the save before."""

    @property
    def staged_bytes(self) -> int:
        """What was copied so that the program could go on."""

    def prepare(self, state: State) -> None:
        """Gets ready for saves of states like this one. Raises StateRefused."""

    def save(self, target: Target, state: State, conclude: Conclude) -> bool:
        """Takes the state of this moment; False when it is known already that the save failed."""

    def settle(self) -> bool:
        """Waits for a save under way; whether the last one went well."""

    def close(self) -> None:
        """Settles, and gives back all that was held."""


class WhileWaiting:
    """The program goes on when its state is durable."""

    stall_s = None
    behind_s = 0.0
    staged_bytes = 0

    def __init__(self) -> None:
        self._sound = True

    def prepare(self, state: State) -> None:
        pass

    def save(self, target: Target, state: State, conclude: Conclude) -> bool:
        order = target.order(state, time.monotonic())
        self._sound = conclude(lambda: target.save(order, partial(_write, target, order)))
        return self._sound

    def settle(self) -> bool:
        return self._sound

    def close(self) -> None:
        pass


class InBackground:
    """The program goes on when its state is copied; a process of its own writes it.

    At most one save is under way: the next one waits for it. A state that does not fit into
    ``limit_bytes``, or into the memory that is left, is saved while the program waits. Raises
    OSError when no writer can be started.

    With ``overlap``, what only optimizers change is copied while the next step computes; their next
    step waits for that.

    The thread that waits for the writer is no daemon, so that Python itself waits for it at exit.
    """

    def __init__(
        self,
        limit_bytes: int,
        tell: Callable[[str], None],
        *,
        ranks_here: int = 1,
        overlap: bool = False,
    ) -> None:
        self._limit_bytes = limit_bytes
        self._ranks_here = ranks_here
        self._tell = tell
        self._told = False
        self._staging = Staging.create()
        self._writer = Writer(self._staging.fd)  # now, for its imports take longer than a step
        self._under_way: threading.Thread | None = None
        self._sound = True
        self.stall_s: float | None = None
        self.behind_s = 0.0
        self.staged_bytes = 0
        self._copied = threading.Event()
        self._copied.set()
        self._optimizers = optimizers(self._await_copy) if overlap else None

    def prepare(self, state: State) -> None:
        arrays = Encoder(state).arrays  # all of the replicated ones: no share is settled yet
        size_bytes = need_bytes(arrays.forms, arrays.leaves)
        self.settle()
        if self._staging.size_bytes < size_bytes and self._make_room(size_bytes):

            def get_ready() -> None:
                self._staging.populate(size_bytes)
                pin_for_gpus(self._staging, arrays.leaves)

            self._under_way = _thread(get_ready, "relight-staging")

    def save(self, target: Target, state: State, conclude: Conclude) -> bool:
        started_s = time.monotonic()
        self._wait_for_the_one_before()
        order = target.order(state, started_s)
        later = self._optimizers.held(order.source) if self._optimizers else {}
        copied = self._copy(order, later)
        if copied is None:
            self.stall_s, self.staged_bytes = None, 0
            self._sound = conclude(lambda: target.save(order, partial(_write, target, order)))
            return self._sound
        snapshot, writer = copied
        self.staged_bytes = snapshot.at + snapshot.size_bytes  # the order lies behind the arrays

        def write() -> Receipt:
            self._copy_rest(order, later)
            return target.save(order, partial(writer.write, snapshot, shown=target.shown))

        def save() -> None:
            self._sound = conclude(write)

        self._sound = False
        self._copied.clear()
        self.stall_s = time.monotonic() - started_s
        self._under_way = _thread(save, "relight-save")
        if self._under_way is None:
            self._tell_once("no thread can be started")
            self.stall_s = None
            save()
            return self._sound
        return True

    def settle(self) -> bool:
        if self._under_way is not None:
            self._under_way.join()
            self._under_way = None
        return self._sound

    def close(self) -> None:
        self.settle()
        if self._optimizers is not None:
            self._optimizers.close()
        self._writer.end()
        self._staging.close()

    def _wait_for_the_one_before(self) -> None:
        begun_s, busy = time.monotonic(), self._under_way is not None and self._under_way.is_alive()
        self.settle()
        self.behind_s = time.monotonic() - begun_s if busy else 0.0

    def _copy_rest(self, order: Order, later: Mapping[int, int]) -> None:
        """Raises OSError when that was changed meanwhile."""
        try:
            take_rest(self._staging, order, later)
            Optimizers.require_unchanged(order.source, later)
        finally:
            self._copied.set()

    def _await_copy(self) -> None:
        if not self._copied.is_set():
            began_s = time.monotonic()
            self._copied.wait()
            self.stall_s = (self.stall_s or 0.0) + time.monotonic() - began_s

    def _copy(self, order: Order, later: Container[int]) -> tuple[Snapshot, Writer] | None:
        if not self._make_room(need_bytes(order.source.forms, order.source.leaves)):
            return None
        try:
            return take(self._staging, order, later), self._living_writer()
        except (OSError, MemoryError) as error:
            self._tell_once(f"no copy can be made of the state, or no process started: {error}")
            return None

    def _make_room(self, size_bytes: int) -> bool:
        """Whether bound and memory allow it; ranks beside this one want as much."""
        if size_bytes > self._limit_bytes:
            self._tell_once(
                f"the state has {size_bytes // MIB} MiB, checkpoint.staging is "
                f"{self._limit_bytes // MIB} MiB: raise it (RELIGHT_CHECKPOINT_STAGING) where "
                "memory allows it"
            )
            return False
        if size_bytes <= self._staging.size_bytes:
            return True
        more_bytes = size_bytes - self._staging.size_bytes
        room = room_bytes() // self._ranks_here
        if more_bytes > room:
            self._tell_once(
                f"a copy of the state takes {more_bytes // MIB} MiB more, and {room // MIB} MiB of "
                "memory are left for this rank"
            )
            return False
        try:
            self._staging.memory(size_bytes)
        except OSError as error:
            self._tell_once(f"no memory for a copy of the state: {error}")
            return False
        return True

    def _tell_once(self, why: str) -> None:
        if not self._told:
            self._tell(f"steps wait for each save: {why}")
        self._told = True

    def _living_writer(self) -> Writer:
        if not self._writer.alive:
            self._writer.end()
            self._writer = Writer(self._staging.fd)
        return self._writer


def _thread(target: Callable[[], None], name: str) -> threading.Thread | None:
    """None where no more can be started: this user, or this job, may have too many."""
    thread = threading.Thread(target=target, name=name)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def _write(target: Target, order: Order, directory: Path) -> Receipt:
    return save_source(directory, order.source, order.started_s, target.shown)
