"""Path names inside a run folder, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run, through all its lives."""

    root: Path

    @property
    def spec(self) -> Path:
        return self.root / "spec.yaml"

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def script(self) -> Path:
        return self.root / "job.sh"

    @property
    def rules(self) -> Path:
        """The table of causes that this run decides by."""
        return self.root / "rules.json"

    @property
    def user_script(self) -> Path:
        """A batch script that was given to ``relight sbatch``; slurmd uses the same name."""
        return self.root / "slurm_script"

    @property
    def code(self) -> Path:
        """A copy of the code as it was at submission, where the spec asks for one."""
        return self.root / "code"

    @property
    def sweep(self) -> Path:
        """What the runs of a sweep are made from; absent in any other run."""
        return self.root / "sweep"

    @property
    def dependents(self) -> Path:
        """Holds a file for each job that waits for the end of this run, by the job's id."""
        return self.root / "dependents"

    @property
    def met(self) -> Path:
        """Exists once the runs that this one waits for were done: that is not asked again."""
        return self.root / "AFTER_MET"

    @property
    def cancelled(self) -> Path:
        """Exists once somebody has cancelled the run: nothing may be restarted after that."""
        return self.root / "CANCELLED"

    @property
    def held(self) -> Path:
        """Exists while the run shall leave its nodes and wait in the queue."""
        return self.root / "HELD"

    @property
    def requests(self) -> Path:
        """What a user wants of the attempt that runs now."""
        return self.root / "requests"

    @property
    def verdict(self) -> Path:
        """How the run ended; absent while it may go on."""
        return self.root / "verdict.json"

    @property
    def reserve(self) -> Path:
        """Room on the disk for the verdict, while there is none."""
        return self.root / ".reserve"

    @property
    def progress(self) -> Path:
        """The newest state, rewritten every few seconds for people who watch."""
        return self.root / "progress.json"

    @property
    def journals(self) -> Path:
        return self.root / "journal"

    def journal(self, attempt: str) -> Path:
        return self.journals / f"{attempt}.jsonl"

    @property
    def attempts(self) -> Path:
        return self.root / "attempts"

    def attempt(self, attempt: str) -> Path:
        return self.attempts / attempt

    def supervisor_log(self, attempt: str) -> Path:
        return self.attempt(attempt) / "supervisor.log"

    def preflight(self, attempt: str) -> Path:
        return self.attempt(attempt) / "preflight"

    def watch(self, attempt: str) -> Path:
        return self.attempt(attempt) / "watch"

    def look(self, attempt: str) -> Path:
        """Of nodes that were asked all at once: it takes the place of nothing that a watch says."""
        return self.attempt(attempt) / "look"

    def logs(self, attempt: str) -> Path:
        return self.attempt(attempt) / "logs"

    def rank_log(self, attempt: str, generation: int, rank: int) -> Path:
        return self.logs(attempt) / str(generation) / f"{rank}.log"
