"""Does a job come back as if nothing had happened? It is run twice, once with a restart."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relight.errors import RelightError
from relight.resilience.exit_codes import EXIT_DONE
from relight.resilience.supervise.journal import read_journals
from relight.storage.choose import newest_valid

from .clusters.local_front import Front
from .runs import StoredRun
from .steering import restart
from .watch import read_progress, watcher

if TYPE_CHECKING:
    from relight.storage.compare import Comparison

_TICK_S = 0.1


class ProofImpossible(RelightError):
    """The two runs cannot be compared."""


@dataclass(frozen=True, slots=True)
class Proof:
    """``resumed`` are the steps from which the second run went on."""

    step: int
    resumed: tuple[int, ...]
    comparison: Comparison


def prove(undisturbed: StoredRun, disturbed: StoredRun, at_step: int) -> Proof:
    """Runs both on this machine and compares their last checkpoints; the second is let save and
    start again once it has done so many steps.

    Raises:
        ProofImpossible: a run failed or saved nothing, or was over before it could be restarted.
    """
    _run(undisturbed)
    restarting = _Restarting(disturbed, at_step)
    restarting.start()
    try:
        _run(disturbed)
    finally:
        restarting.over.set()
        restarting.join()
    resumed = _resumed(disturbed)
    if not resumed:
        raise ProofImpossible(
            f"{disturbed.run_id} was over before it could be restarted at step {at_step}"
            f"{restarting.fault}: give the job more steps, or another --at"
        )
    step, comparison = _compare(undisturbed, disturbed)
    return Proof(step, resumed, comparison)


class _Restarting(threading.Thread):
    """Restarts a run as a user would, as soon as it has come so far."""

    def __init__(self, run: StoredRun, at_step: int) -> None:
        super().__init__(name="restarting")
        self.over = threading.Event()
        self.fault = ""
        self._run = run
        self._at_step = at_step

    def run(self) -> None:
        while not self.over.wait(_TICK_S):
            step = (read_progress(self._run.folder) or {}).get("step")
            if isinstance(step, int) and step >= self._at_step:
                try:
                    restart(self._run, ())
                except RelightError as error:
                    self.fault = f" ({error})"
                return


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


def _compare(one: StoredRun, other: StoredRun) -> tuple[int, Comparison]:
    from relight.storage.compare import Source, compare
    from relight.storage.shards import Shards

    places = [run.plan.config.checkpoint.directory for run in (one, other)]
    found = [newest_valid(place) for place in places]
    first, second = found
    if first is None or second is None:
        raise ProofImpossible("the job saves nothing: its program has to use relight.join")
    if first.step != second.step:
        raise ProofImpossible(
            f"the runs ended with steps {first.step} and {second.step}: a job that is to be proved "
            "must always take the same number of steps"
        )
    with Shards(places[0], first) as ours, Shards(places[1], second) as theirs:
        return first.step, compare(Source(first, ours), Source(second, theirs))
