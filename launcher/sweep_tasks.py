"""How the tasks of a sweep stand: each has a verdict of its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from relight.resilience.decide.actions import Outcome
from relight.resilience.exit_codes import EXIT_DONE, EXIT_FAILED
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.standing import Verdict, read_verdict

from .runs import StoredRun

_NAMED = 10


@dataclass(frozen=True, slots=True)
class Tasks:
    """``counts`` of tasks by what became of them; a ``verdict`` once all have one."""

    counts: Mapping[str, int]
    verdict: Verdict | None

    @property
    def count(self) -> int:
        return sum(self.counts.values())


def read_tasks(folder: RunFolder) -> Tasks:
    """Reads the verdicts of all tasks of a sweep."""
    count = len(json.loads((folder.sweep / "points.json").read_text()))
    tasks = [RunFolder(folder.root / "tasks" / str(number)) for number in range(count)]
    return tasks_of([_standing(task) for task in tasks])


def verdict_of(run: StoredRun) -> Verdict | None:
    """How a run has ended, or a sweep: when all its tasks have; None while it may go on."""
    verdict = read_verdict(run.folder)
    return read_tasks(run.folder).verdict if verdict is None and run.is_sweep else verdict


def tasks_of(tasks: list[Verdict | str]) -> Tasks:
    """A sweep's tasks, from the verdict of each, or a word where there is none (pure)."""
    states = [task if isinstance(task, str) else task.state for task in tasks]
    ended = [task for task in tasks if isinstance(task, Verdict)]
    verdict = _verdict(ended) if len(ended) == len(tasks) else None
    return Tasks(dict(Counter(states)), verdict)


def _standing(task: RunFolder) -> Verdict | str:
    return read_verdict(task) or ("STARTED" if task.journals.exists() else "WAITING")


def _verdict(ended: list[Verdict]) -> Verdict:
    bad = [number for number, one in enumerate(ended) if one.state != Outcome.COMPLETED]
    more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
    named = ", ".join(map(str, bad[:_NAMED])) + more
    return Verdict(
        state=Outcome.FAILED if bad else Outcome.COMPLETED,
        exit_code=EXIT_FAILED if bad else EXIT_DONE,
        cause="sweep",
        reason=f"tasks {named} of {len(ended)} are not done" if bad else "all tasks are done",
        tail=(),
        time=max(one.time for one in ended),
    )
