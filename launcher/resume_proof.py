"""Does a job come back as if nothing had happened? It is run twice, once with a restart."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relight.errors import RelightError
from relight.resilience.exit_codes import EXIT_DONE
from relight.resilience.supervise.journal import Record, read_journals
from relight.resilience.supervise.requests import write_request
from relight.resilience.supervise.standing import read_verdict

from .clusters.local_front import Front
from .proof_beginning import Place, compared, first_step, keep_beginning, newest_in, without_old
from .runs import StoredRun
from .steering import restart
from .watch import JournalTail, read_progress, watcher

if TYPE_CHECKING:
    from relight.storage.compare import Comparison

_TICK_S = 0.1


class ProofImpossible(RelightError):
    """The two runs cannot be compared: nothing is known to differ."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Proof:
    """``resumed`` are the steps from which the second run went on; ``old`` is what differed already
    before that, and was not changed by either run."""

    step: int
    resumed: tuple[int, ...]
    comparison: Comparison
    old: tuple[str, ...]


def prove(undisturbed: StoredRun, disturbed: StoredRun, at_step: int) -> Proof:
    """Runs both on this machine and compares their last checkpoints; the second is let save and
    start again once it has done so many steps.

    Raises:
        ProofImpossible: a run failed or saved nothing, or was over before it could be restarted.
    """
    with _beside(_Keeping(undisturbed)):
        _run(undisturbed)
    last_step = _last_of(undisturbed).manifest.step
    if at_step > last_step:
        raise ProofImpossible(
            f"{undisturbed.run_id} came to its end with step {last_step}, so that it cannot be "
            f"restarted at step {at_step}: give the job more steps, or a smaller --at"
        )
    restarting = _Restarting(disturbed, max(at_step, first_step(undisturbed)))
    with _beside(restarting):
        _run(disturbed)
    resumed = _resumed(disturbed)
    if not resumed:
        raise ProofImpossible(
            f"{disturbed.run_id} was over before it could be restarted at step {at_step}"
            f"{restarting.fault}: give the job more steps, or another --at"
        )
    runs = (undisturbed, disturbed)
    last = _last(runs)
    comparison, old = without_old(compared(*last), runs, last)
    return Proof(last[0].manifest.step, resumed, comparison, old)


def remove_run(run: StoredRun) -> None:
    """Takes away a run that nobody asked to have."""
    shutil.rmtree(run.folder.root)


class _Beside(threading.Thread):
    """Does something to a run until it is over."""

    def __init__(self, run: StoredRun) -> None:
        super().__init__(name="beside the run")
        self.over = threading.Event()
        self._run = run
        self._tail = JournalTail(run.folder)

    def _next(self, name: str) -> Record | None:
        """The next record of this name; None once the run is over without one."""
        over = False
        while not over:
            over = self.over.wait(_TICK_S)  # what came just before that is seen, too
            for record in self._tail.new_records():
                if record.name == name:
                    return record
        return None


class _Keeping(_Beside):
    """Lets a run save as soon as it can, and keeps that."""

    def run(self) -> None:
        write_request(self._run.folder, "checkpoint")
        saved = self._next("CheckpointCommitted")
        if saved is not None:
            keep_beginning(self._run, int(str(saved.data["step"])))


class _Restarting(_Beside):
    """Restarts a run as a user would, as soon as it has come so far, and keeps what it saved."""

    def __init__(self, run: StoredRun, at_step: int) -> None:
        super().__init__(run)
        self.fault = ""
        self._at_step = at_step

    def run(self) -> None:
        while not self._has_come_so_far():
            if self.over.wait(_TICK_S):
                return
        self._tail.new_records()  # what follows is of the restart
        try:
            restart(self._run, ())
        except RelightError as error:
            over = read_verdict(self._run.folder) is not None
            self.fault = "" if over else f" ({error})"
            return
        again = self._next("RanksStarted")
        if again is not None and again.data.get("restored_step") is not None:
            keep_beginning(self._run, int(str(again.data["restored_step"])))

    def _has_come_so_far(self) -> bool:
        step = (read_progress(self._run.folder) or {}).get("step")
        return isinstance(step, int) and step >= self._at_step


@contextmanager
def _beside(thread: _Beside) -> Iterator[None]:
    thread.start()
    try:
        yield
    finally:
        thread.over.set()
        thread.join()


def _run(run: StoredRun) -> None:
    code = Front(run.folder, run.plan.config, watcher(run.folder, as_json=False)).run()
    if code != EXIT_DONE:
        raise ProofImpossible(
            f"{run.run_id} ended with {code}: see `relight logs {run.run_id}`; a job that is to be "
            "proved must come to its end"
        )


def _resumed(run: StoredRun) -> tuple[int, ...]:
    """The newest committed step at each start but the first."""
    newest, resumed, starts = 0, [], 0
    for record in read_journals(run.folder.journals):
        if record.name == "CheckpointCommitted":
            newest = int(str(record.data["step"]))
        if record.name == "RanksStarted":
            starts += 1
            resumed += [newest] if starts > 1 else []
    return tuple(resumed)


def _last_of(run: StoredRun) -> Place:
    if (last := newest_in(run.plan.config.checkpoint.directory)) is None:
        raise ProofImpossible(
            f"{run.run_id} has saved nothing, so that there is nothing to compare: its program "
            "has to use relight.join"
        )
    return last


def _last(runs: tuple[StoredRun, StoredRun]) -> tuple[Place, Place]:
    """Their last checkpoints."""
    first, second = map(_last_of, runs)
    steps = (first.manifest.step, second.manifest.step)
    if steps[0] != steps[1]:
        raise ProofImpossible(
            f"the runs ended with steps {steps[0]} and {steps[1]}: a job that is to be proved "
            "must always take the same number of steps"
        )
    return first, second
