"""What the job of ``relight doctor --try`` has found out, and what follows (pure).

The job writes a note for each thing that it tried, as a line of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from .doctor import Finding

What = Literal[
    "network",
    "folder",
    "successor",
    "exclusion",
    "batch signal",
    "step signal",
    "mpi",
    "no kill",
    "requeue",
    "start time",
    "second life",
    "done",
]


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that was tried; ``fact`` is what happened, in words."""

    what: What
    ok: bool
    fact: str

    def to_line(self) -> str:
        return json.dumps({"what": self.what, "ok": self.ok, "fact": self.fact}) + "\n"


_FOLLOWS: Final[Mapping[What, tuple[str, str, str]]] = {
    "network": (
        "nodes among each other",
        "agents of all nodes reach the supervisor",
        "agents cannot reach the supervisor, so a run of several nodes does not start: ask the "
        "site which network its nodes share",
    ),
    "folder": (
        "shared folder",
        "the run folder is seen by all nodes",
        "a run folder must be seen by all nodes: RELIGHT_HOME, or run_dir, names another place",
    ),
    "successor": (
        "sbatch from a node",
        "a run can go on as a successor job, without Slurm's wait",
        "restart.mode: successor does not work here; requeue may",
    ),
    "exclusion": (
        "scontrol update ExcNodeList",
        "a job that waits can be kept away from bad nodes",
        "a restarted job may start on the node that failed",
    ),
    "batch signal": (
        "signals to the batch script",
        "the warning before the time limit is heard",
        "nothing warns of the time limit: choose checkpoint.interval accordingly",
    ),
    "step signal": (
        "signals to steps",
        "agents hear of a preemption at once",
        "agents do not hear of a preemption: choose checkpoint.interval accordingly",
    ),
    "mpi": (
        "MPI",
        "`mpi:` in the spec takes these words",
        "`mpi:` does not work here; an mpirun of your own, in a script of `relight sbatch`, may",
    ),
    "no kill": (
        "--no-kill",
        "the loss of a node ends neither a run's job nor its other ranks",
        "the loss of a node ends all ranks: a run comes back in a new allocation, not in its own",
    ),
    "requeue": (
        "scontrol requeue",
        "a job can come back under its own id",
        "restart.mode: requeue does not work here, and a script of `relight sbatch` does not come "
        "back",
    ),
    "start time": (
        "scontrol update StartTime",
        "`relight restart` ends the wait of a requeued job",
        "a requeued job waits as long as Slurm likes",
    ),
    "second life": (
        "second life",
        "requeue works from end to end",
        "a requeued job did not start again in time",
    ),
}


def read_notes(lines: Iterable[str]) -> Iterator[Note]:
    """The notes in a file's lines; one that is still being written is left out."""
    for line in lines:
        if line.endswith("\n"):
            raw = json.loads(line)
            yield Note(raw["what"], bool(raw["ok"]), str(raw["fact"]))


def findings_of(notes: Iterable[Note]) -> list[Finding]:
    """What follows from each; what does not work matters."""
    found = []
    for note in notes:
        if note.what == "done":
            continue
        subject, good, bad = _FOLLOWS[note.what]
        follows = good if note.ok else bad
        found.append(Finding(subject=subject, fact=note.fact, follows=follows, matters=not note.ok))
    return found
