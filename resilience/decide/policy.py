"""The limits within which decisions are made; fixed for the life of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from .rules import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The run has ``nodes``, and goes on with ``min_nodes`` of them if it must.

    All counts are since the last checkpoint.

    ``failures`` of the program, ``no_progress``: restarts of any cause but the loss of a node,
    ``node_failures``: restarts because a node was found guilty, ``blind_attempts``: attempts that
    others have ended before anything was ever saved. ``rules``: what a cause is.
    ``others_say_s``: how long ranks are given to fail by themselves like the first one.
    ``others_save_s``: likewise to end, when they save by themselves and the first one has.
    ``outage_s``: how long nodes are kept while the place of the checkpoints does not answer.

    ``ranks``: on all nodes together, where these do not carry equally many.
    ``keep_places``: a node that goes on keeps its ranks, for it has what they have saved.
    ``script`` says that one program on the batch host uses all nodes in its own way: its end may be
    the fault of any of them, and once the job has to stop, no exit code means that it has done all.
    ``saves_itself`` says the latter of ranks that save by their own means, at the end of the job.
    """

    nodes: int
    tasks_per_node: int
    min_nodes: int | None = None
    ranks: int | None = None
    keep_places: bool = False
    script: bool = False
    saves_itself: bool = False
    preflight: bool = True
    on_degrade: Literal["move", "warn"] = "move"
    not_finite: Literal["warn", "stop", "rollback"] = "warn"
    restart: Literal["auto", "successor", "requeue", "never"] = "auto"
    failures: int = 3
    no_progress: int = 3
    node_failures: int = 10
    blind_attempts: int = 50
    walltime_s: float | None = None
    backoff_base_s: float = 1.0
    backoff_max_s: float = 600.0
    outage_s: float = 900.0
    others_say_s: float = 2.0
    others_save_s: float = 30.0
    rules: tuple[Rule, ...] = ()

    @property
    def least_nodes(self) -> int:
        return self.nodes if self.min_nodes is None else self.min_nodes

    def within(self, nodes: tuple[str, ...]) -> Policy:
        """The policy in an allocation: how many nodes a script has was for sbatch to say."""
        return replace(self, nodes=len(nodes)) if self.script else self

    def ranks_on(self, nodes: int) -> int:
        """The number of ranks on so many nodes."""
        if self.ranks is not None:
            return self.ranks
        return 1 if self.script else nodes * self.tasks_per_node

    def backoff_s(self, failures: int) -> float:
        """The pause before a restart: none at first, then doubling."""
        if failures <= 1:
            return 0.0
        return float(min(self.backoff_base_s * 2 ** (failures - 2), self.backoff_max_s))
