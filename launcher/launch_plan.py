"""What will be sent for one run, and the facts about the submission that it depends on."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from relight.resilience.config import RunConfig
from relight.resilience.run_folder import RunFolder

ClusterKind = Literal["slurm", "local"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitter:
    """The facts about the submission that a plan depends on."""

    run_id: str
    runs_dir: Path  # where run folders go by default
    working_dir: Path  # where the command was given
    python: str
    version: str
    made_by: str  # the command line, for the script's header
    tree: Path | None = None  # the git work tree that is copied, for `code: snapshot`


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayPart:
    """Tasks of a sweep that go into one job array: ``count`` from ``first`` on."""

    first: int
    count: int
    at_once: int | None

    @property
    def option(self) -> str:
        """Indices begin with 0 in each array: a site limits the largest."""
        limit = "" if self.at_once is None else f"%{self.at_once}"
        return f"0-{self.count - 1}{limit}"

    def name(self, run_id: str) -> str:
        """A name that no other array has: a lost answer of sbatch is looked up by it."""
        return run_id if self.first == 0 else f"{run_id}.{self.first}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """What will be sent."""

    cluster: ClusterKind
    config: RunConfig
    script: str

    def after(self, folders: tuple[str, ...]) -> LaunchPlan:
        """The same for a run that waits until the runs in these folders are done."""
        return replace(self, config=replace(self.config, after=folders))

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.config.run_dir)


def run_name(job_name: str) -> str:
    """The name of a job or a file as the first part of a run id."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", job_name)[:40].lstrip("_.-") or "job"
