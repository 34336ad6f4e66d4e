"""The public Python API: a program joins its run, protects its state, and asks for its steps.

run = relight.join()
run.protect(model=model, optimizer=optimizer, data=sampler)
for step in run.steps(10_000):
    ...
"""

from __future__ import annotations

import faulthandler
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, SupportsFloat

from relight.storage.notes import Notes
from relight.storage.sealed import Json

from ..exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_RESTART
from ..messages import Message
from .agreement import find_agreement
from .boundary import Boundary, Verdict, whole_total
from .environment import Environment, own_interval, read_environment, require_own_ranks
from .errors import ProtectRefused, StepsRefused
from .line import Line
from .listener import Listener
from .logged import plain_values
from .own_time import OwnTime
from .signals import StopSignals
from .standby import modules_worth_having
from .state import ProgramState
from .world import World, find_device, find_world

if TYPE_CHECKING:
    from .checkpoints import Checkpoints
    from .provenance import Inquiry


def join(
    directory: str | Path | None = None, interval: str | None = None, *, rng: bool = True
) -> Run:
    """Makes this process a rank of its run; call it once, from the main thread.

    Args:
        directory: where checkpoints go when ``RELIGHT_CHECKPOINT_DIR`` does not say so.
        interval: "20 steps", "10min" or "auto", when ``RELIGHT_CHECKPOINT_INTERVAL`` is not set.
        rng: whether the random states of Python, numpy and torch are saved and restored.

    Raises:
        JoinRefused: environment or arguments cannot be worked with; the message says which.
        AgentUnreachable: the rank agent is gone before the program has begun.
    """
    environment, world = read_environment(os.environ, directory, interval), find_world(os.environ)
    require_own_ranks(environment, world)
    return Run(environment, world, rng=rng)


class Run:
    """This rank's share in a run.

    Attributes:
        values: the plain values given to :meth:`protect`, to be read and written by name.
    """

    def __init__(self, environment: Environment, world: World, *, rng: bool) -> None:
        self._state = ProgramState(rng=rng)
        self.values = self._state.values
        self._environment = environment
        self._world = world
        self._started = False
        self._pid = os.getpid()
        self._checkpoints: Checkpoints | None = None
        self._metrics: dict[str, float] = {}
        self._noted: dict[str, str | float] = {}
        self._inquiry: Inquiry | None = None
        self._line: Line | None = None
        self._listener: Listener | None = None
        self._signals: StopSignals | None = None
        self._changed = threading.Condition()  # guards the boundary and the time
        self._own_time = OwnTime()
        self._boundary = Boundary(own_interval(environment, world))
        if environment.directory is None and world.rank == 0:
            sys.stderr.write(
                "relight: nothing will be saved: set RELIGHT_CHECKPOINT_DIR or call "
                "relight.join(directory=...)\n"
            )
        self._meet()

    @property
    def rank(self) -> int:
        return self._world.rank

    @property
    def world_size(self) -> int:
        return self._world.size

    @property
    def local_rank(self) -> int:
        return self._world.local_rank

    @property
    def device(self) -> str:
        """ "cuda:<local rank>" when torch is loaded and sees GPUs, else "cpu"."""
        return find_device(self._world.local_rank)

    def protect(self, *nameless: object, **named: object) -> None:
        """Names what is saved and restored; may be called several times before the first step.

        Objects with ``state_dict`` and ``load_state_dict``, arrays, tensors, random generators,
        dicts, lists and sets are restored in place. Plain immutable values live in :attr:`values`.

        Raises:
            ProtectRefused: too late, a name twice, or an object that cannot be saved.
        """
        if nameless:
            raise ProtectRefused(
                "give all a name to be saved under, as in run.protect(model=model)"
            )
        if self._started:
            raise ProtectRefused(f"{', '.join(named)}: too late, protect before the first step")
        for name, thing in named.items():
            self._state.add(name, thing)

    def steps(self, total: int) -> Iterator[int]:
        """The steps that are still to be done: restores first, saves when due, stops when told.

        A step is counted when the next one is asked for. To stop is ``SystemExit``: with code 75
        when the state is saved, 1 when it could not be, and ``finally`` blocks run. After the last
        step its state is saved; a run that is complete restores and yields nothing.

        Raises:
            StepsRefused: a second call, or ``total`` is no whole number from 0 on.
            RestoreMismatch: the checkpoint does not fit the protected objects.
            RanksDiffer, PartsUnfit: it was saved by another number of ranks, and does not tell how
                these ones are to share it.
        """
        if self._started:
            raise StepsRefused(
                "run.steps() can be used once in a process: do all steps in one loop"
            )
        total = whole_total(total)
        self._started = True
        try:
            first = self._begin()
            for step in range(first, total):
                self._settle()
                if step == first + 1:
                    self._prepare()
                self._own_time.begin(time.monotonic())
                yield step
                with self._changed:
                    self._own_time.end(time.monotonic())
                    self._boundary.step_done()
            self._finish()
        finally:
            if os.getpid() == self._pid:  # not a forked worker that ends among the steps
                self._end()

    def log(self, **values: SupportsFloat | str) -> None:
        """Reports values of the current step. A tensor is copied from its device: it may wait.

        Checkpoints hold the newest finite number of each name that rank 0 has logged.

        Raises:
            LogRefused: a value is neither text nor a number.
        """
        plain = plain_values(values)
        self._metrics |= {
            name: value
            for name, value in plain.items()
            if isinstance(value, float) and math.isfinite(value)
        }
        self._send({"type": "logged", "step": self._boundary.done, "values": plain})

    def note(self, **facts: str | float) -> None:
        """Remembers where the state comes from, e.g. a digest of the data, in each checkpoint.

        Those of rank 0 are kept.

        Raises:
            ProtectRefused: a value is neither text nor a finite number.
        """
        for name, fact in facts.items():
            number = isinstance(fact, int | float) and math.isfinite(fact)
            if not number and not isinstance(fact, str):
                raise ProtectRefused(f"note {name}: {fact!r} is neither text nor a finite number")
        self._noted |= facts

    @contextmanager
    def section(self, name: str, limit_s: float | None = None) -> Iterator[None]:
        """Says that this rank does something else than steps, e.g. an evaluation.

        While it lasts no step is expected; longer than ``limit_s`` (30 minutes unless given), and
        the rank counts as hung.
        """
        limit = None if limit_s is None else float(limit_s)
        self._send({"type": "entered", "section": name, "limit_s": limit})
        try:
            yield
        finally:
            self._send({"type": "left", "section": name})

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Says that this rank waits for others, e.g. in a collective: that is not its own time.

        What is left of a step is compared between the ranks, so that slow nodes are found.
        """
        begun_s = time.monotonic()
        try:
            yield
        finally:
            self._own_time.waited(time.monotonic() - begun_s)

    def _meet(self) -> None:
        socket = self._environment.agent_socket
        if socket is not None:
            faulthandler.register(signal.SIGUSR2, all_threads=True)  # asked for by the agent
            self._signals = StopSignals()
            self._line = Line(socket)
            self._line.send({"type": "joined", "rank": self.rank, "pid": os.getpid()})
            _after_exceptions(self._tell_of_failure)
            self._listener = Listener(
                self._line,
                self._boundary,
                self._own_time,
                self._changed,
                self._signals,
                self.rank,
                ends_with_agent=self._environment.below_starter,
            )
            self._listener.start()
        elif self.world_size == 1 and self._environment.directory is not None:
            # Several ranks without a supervisor have nobody to agree with on a step to stop at:
            # there, signals mean what they meant before, and the last checkpoint stands.
            self._signals = StopSignals()

    def _begin(self) -> int:
        self._checkpoints = self._open_checkpoints()
        if self.rank == 0 and self._environment.directory is not None:
            from .provenance import Inquiry

            self._inquiry = Inquiry(self._environment.directory)
        began_s, seconds = time.monotonic(), None
        restored = self._checkpoints.restore(self._state.needs)
        step = 0
        if restored is not None:
            step = restored.step
            self._metrics = dict(restored.metrics) | self._metrics
            self._state.load(restored.state, restored.missing)
            seconds = time.monotonic() - began_s
        with self._changed:
            now_s = time.monotonic()
            asks = self._boundary.begin(step, now_s, restored=restored is not None)
        near = self._checkpoints.near
        self._send({"type": "restored", "step": step, "near": near, "seconds": seconds})
        self._send({"type": "imported", "modules": modules_worth_having(sys.modules)})
        if self._listener is not None:
            for ask in asks:
                self._listener.answer(ask)
        return step

    def _open_checkpoints(self) -> Checkpoints:
        from . import checkpoints  # brings h5py and numpy, which `join` must not wait for

        directory = self._environment.directory
        if directory is None:
            return checkpoints.NoCheckpoints()
        if self._line is not None:
            return checkpoints.SupervisedCheckpoints(
                directory, self._environment, self._world, self._line
            )
        from .own_checkpoints import OwnCheckpoints

        agreement = find_agreement(self._world)
        return OwnCheckpoints(directory, self._environment, self._world, agreement)

    def _end(self) -> None:
        """The steps are over, done or not."""
        if self._inquiry is not None:
            self._inquiry.close()
        if self._checkpoints is not None:
            with self.section("save"):
                self._checkpoints.saving.close()
        if self._signals is not None and self._line is None:
            self._signals.give_back()

    def _settle(self) -> None:
        """Whatever is to be done before the next step may begin."""
        while (verdict := self._next_verdict()) is not Verdict.GO:
            if verdict is Verdict.STOP:
                raise self._stopped(EXIT_RESTART if self._save_durably() else EXIT_FAILED)
            self._save()

    def _stopped(self, code: int) -> SystemExit:
        """torchrun would end the other ranks, which may still save, if one did not end with 0."""
        if not self._environment.below_starter:
            return SystemExit(code)
        self._send({"type": "stopped", "code": code})
        return SystemExit(EXIT_DONE)

    def _next_verdict(self) -> Verdict:
        with self._changed:
            while True:
                if self._must_stop_alone():
                    self._boundary.stop_now()
                verdict = self._boundary.decide(time.monotonic())
                if verdict is not Verdict.WAIT:
                    return verdict
                self._changed.wait()

    def _must_stop_alone(self) -> bool:
        if self._signals is None or not self._signals.came:
            return False
        return self._line is None or self._line.lost

    def _finish(self) -> None:
        if self._save_durably():
            self._send({"type": "finished", "step": self._boundary.done})

    def _prepare(self) -> None:
        """Optimizers make their state in the first step: now it has its size."""
        assert self._checkpoints is not None
        self._checkpoints.saving.prepare(self._state.capture())

    def _save_durably(self) -> bool:
        """Like `_save`, and waits. A save of this very step that went wrong is tried once more."""
        in_flight = self._boundary.saved == self._boundary.done
        return (in_flight and self._settled()) or (self._save(last=True) and self._settled())

    def _settled(self) -> bool:
        assert self._checkpoints is not None
        with self.section("save"):
            sound = self._checkpoints.saving.settle()
        if not sound:
            with self._changed:
                self._boundary.save_lost()
        return sound

    def _save(self, *, last: bool = False) -> bool:
        """Takes the state of this step, unless that is done; it need not be durable yet."""
        step = self._boundary.done
        if self._boundary.saved == step:
            return True
        assert self._checkpoints is not None
        with self.section("save"):
            saved = self._checkpoints.save(step, self._state.capture(), self._notes(), last=last)
        with self._changed:
            self._boundary.save_tried(time.monotonic(), ok=saved)
        return saved

    def _notes(self) -> Notes:
        found = self._inquiry.result() if self._inquiry is not None else {}
        noted: dict[str, Json] = {"noted": dict(self._noted)} if self._noted else {}
        return Notes(metrics=dict(self._metrics), provenance={**found, **noted})

    def _tell_of_failure(self) -> None:
        """The agent must know: at its exit a program may wait for ranks that still work."""
        if self._line is not None:  # others may hang in a collective meanwhile
            self._line.hurry()
        if self._checkpoints is not None:  # what has begun well is brought to its end first
            self._checkpoints.saving.settle()
        self._send({"type": "failed"})

    def _send(self, message: Message) -> None:
        if self._line is not None:
            self._line.send(message)


def _after_exceptions(act: Callable[[], None]) -> None:
    """Acts when an exception that nobody catches has been printed, before the exit begins."""
    before, program = sys.excepthook, os.getpid()

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        before(kind, error, traceback)
        if os.getpid() == program:  # not a forked worker
            act()

    sys.excepthook = hook
