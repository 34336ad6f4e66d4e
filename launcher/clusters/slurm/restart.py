"""Arranges that a run goes on elsewhere: a successor job, or this job again.

One authority at a time: a successor is sent only after Slurm's own requeue of this job is switched
off, and never once Slurm has requeued it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

from relight.errors import RelightError
from relight.resilience.supervise.cluster import ClusterUnavailable, Restart, RestartRefused

from .client import NoSuchJob, SlurmClient, SlurmRefused, me
from .lookup import find_sent
from .parse import JobFacts, JobState, can_be_allocated
from .size import Size

_log = logging.getLogger(__name__)
_REQUEUE_SETTLES_S: Final = 20.0
_AHEAD: Final = frozenset({JobState.PENDING, JobState.CONFIGURING, JobState.RUNNING})


@dataclass(frozen=True, slots=True)
class _Choice:
    """The nodes that the run wants to leave, and those of them that the job can do without, or not.

    Those that Slurm does not know are neither.
    """

    asked: Sequence[str]
    avoided: Sequence[str]
    released: tuple[str, ...]

    def value(self, job: JobFacts) -> list[str]:
        """What a job excludes from now on: nodes that are not ours to forget stay excluded."""
        return [*(node for node in job.excluded if node not in self.asked), *self.avoided]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rearrangement:
    """The ways from one job to the next."""

    client: SlurmClient
    job_id: str
    restart_count: int
    run_id: str
    script: Path
    nodes_needed: int
    size: Size | None = None  # None for that of the script
    of_components: tuple[int, ...] = ()  # of these, how many each component needs
    held: bool = False  # the next job waits until its user releases it
    after: tuple[str, ...] = ()  # a successor waits for these jobs, too
    keep_id: bool = False  # others know the job by its id, and no script could be sent again

    def arrange(self, exclude: Sequence[str], mode: str) -> Restart:
        """See ``Cluster.new_allocation``; ``exclude`` is ordered, weak evidence first, then old."""
        job = self.client.job(self.job_id)
        if not job.state.live:
            raise RestartRefused(
                f"job {self.job_id} is {job.state}: what has ended, or was cancelled, is not "
                "restarted; submit the run again if it should go on"
            )
        named = sorted(set(exclude) & _required(job))
        if named:
            raise RestartRefused(
                f"--nodelist asks for {', '.join(named)}, which must be avoided: the job would "
                "wait for ever; take them out of sbatch.nodelist"
            )
        choice = self._choice(exclude, job)
        if job.restarts > self.restart_count:
            return self._after_requeue(choice)
        if mode == "requeue" or self.keep_id:
            return self._requeue(choice)
        try:
            return self._successor(choice, job)
        except SlurmRefused as refusal:
            if mode == "successor":
                raise RestartRefused(f"no successor job: {refusal}") from refusal
            _log.warning("no successor (%s): requeueing this job instead", refusal)
            return self._requeue(choice)

    def avoid(self, restart: Restart, exclude: Sequence[str]) -> Restart:
        """Excludes more nodes from what is arranged already, which stands whether it can or not."""
        try:
            job = self.client.job(self.job_id)
            choice = self._choice(exclude, job)
        except RelightError as error:
            _log.error("job %s may start on %s: %s", restart.job_id, ", ".join(exclude), error)
            return restart
        avoided = [node for node in choice.avoided if node not in _required(job)]
        self._exclude_from_restart(restart.job_id, replace(choice, avoided=avoided))
        same = restart.released == choice.released
        return restart if same else replace(restart, released=choice.released)

    def _successor(self, choice: _Choice, job: JobFacts) -> Restart:
        if job.requeue and not self._is_ours_to_restart():
            return self._after_requeue(choice)  # Slurm was faster
        try:
            # An earlier life of the supervisor may have sent one and died before it said so.
            waiting = self._waiting_successor(self.client)
            if waiting is not None:
                self._exclude_from_restart(waiting, choice)
            successor = waiting or self._send(choice.value(job))
        except SlurmRefused:
            if job.requeue:
                self.client.update(self.job_id, "Requeue", "1")
            raise
        return Restart("successor", successor, choice.released)

    def _is_ours_to_restart(self) -> bool:
        """Switches Slurm's own requeue off; whether that was in time."""
        try:
            self.client.update(self.job_id, "Requeue", "0")
        except SlurmRefused:
            # Of a job that it is ending it changes nothing, and does not decide anew either.
            if self.client.job(self.job_id).state is not JobState.COMPLETING:
                raise
        return self.client.job(self.job_id).restarts <= self.restart_count

    def _send(self, exclude: Sequence[str]) -> str:
        try:
            return self._submit(exclude)
        except ClusterUnavailable as error:
            _log.warning("looking for a successor that sbatch may have sent: %s", error)
        quick = replace(self.client, pauses_s=())
        found = find_sent(lambda: self._waiting_successor(quick), self.run_id, self.client.sleep)
        return found or self._submit(exclude)

    def _submit(self, exclude: Sequence[str]) -> str:
        after = ":".join((self.job_id, *self.after))
        nodes = None if self.size is None else self.size.nodes
        return self.client.submit_successor(self.script, after, exclude, nodes, held=self.held)

    def _waiting_successor(self, client: SlurmClient) -> str | None:
        jobs = client.jobs_named(self.run_id, me())
        others = (job for job in jobs if job.job_id != self.job_id and job.state in _AHEAD)
        return next((job.job_id for job in others), None)

    def _requeue(self, choice: _Choice) -> Restart:
        try:
            self.client.requeue(self.job_id, held=self.held)
        except SlurmRefused as refusal:
            # "Job is pending execution": somebody else was faster, and that is what we wanted.
            if "pending execution" not in refusal.answer:
                raise RestartRefused(f"no requeue: {refusal}") from refusal
        except ClusterUnavailable:
            if self.client.job(self.job_id).restarts <= self.restart_count:
                raise
        return self._after_requeue(choice)

    def _after_requeue(self, choice: _Choice) -> Restart:
        """The restart is certain by now: what goes wrong here must not make an error of it."""
        # One deadline for all: refusals take their time, and the end of this job is near.
        settled_by = time.monotonic() + _REQUEUE_SETTLES_S
        self._exclude_from_restart(self.job_id, choice, settled_by)
        if self.size is not None:
            self._resize(self.size, settled_by)
        return Restart("requeue", self.job_id, choice.released)

    def _resize(self, size: Size, settled_by: float) -> None:
        try:
            # Of one that runs again Slurm would take nodes.
            while self.client.job(self.job_id).state is not JobState.RUNNING:
                try:
                    self.client.resize(self.job_id, size)
                    return
                except SlurmRefused:
                    if time.monotonic() > settled_by:
                        raise
                time.sleep(0.5)
        except RelightError as error:
            _log.error("job %s may wait for spares: %s", self.job_id, error)

    def _exclude_from_restart(
        self, job_id: str, choice: _Choice, settled_by: float | None = None
    ) -> None:
        settled_by = settled_by or time.monotonic() + _REQUEUE_SETTLES_S
        try:
            for number, job in enumerate(self.client.job(job_id).components):
                one = f"{job_id}+{number}" if self.of_components else job_id
                self._exclude(one, number, choice.value(job), settled_by)
        except RelightError as error:
            _log.error("job %s may start on %s: %s", job_id, ", ".join(choice.avoided), error)

    def _exclude(self, job_id: str, number: int, exclude: Sequence[str], settled_by: float) -> None:
        """Excludes nodes from the start of a component, and reads the exclusion back."""
        while exclude:
            try:
                # The value replaces the old one, so it holds every node.
                self.client.update(job_id, "ExcNodeList", ",".join(exclude))
            except SlurmRefused as refusal:
                _log.warning("excluding %s: %s", exclude, refusal)
            waiting = self.client.job(job_id.partition("+")[0])
            if set(exclude) <= set(waiting.components[number].excluded):
                break
            if time.monotonic() > settled_by:
                _log.error("job %s may start on %s: Slurm did not exclude them", job_id, exclude)
                break
            time.sleep(0.5)

    def _unknown(self, nodes: Sequence[str], in_partition: Mapping[str, str]) -> list[str]:
        """Names that Slurm has no node for; an answer without any node says nothing."""
        elsewhere = [node for node in nodes if node not in in_partition]
        if not elsewhere or not in_partition:
            return []
        known = self.client.node_states(elsewhere)
        return [node for node in elsewhere if node not in known]

    def _choice(self, exclude: Sequence[str], job: JobFacts) -> _Choice:
        """The nodes to avoid, without the first if too few would be left to start on."""
        before = chain.from_iterable(one.excluded for one in job.components)
        theirs = [node for node in before if node not in exclude]
        avoided = list(dict.fromkeys(exclude))
        if not avoided:
            return _Choice(exclude, (), ())
        states = {name: self.client.nodes_of_partition(name) for name in self._needed(job)}
        for node in self._unknown(avoided, {n: s for of in states.values() for n, s in of.items()}):
            avoided.remove(node)  # one such name, and Slurm refuses all
            _log.warning("%s is not avoided: Slurm knows no node of this name", node)
        known = tuple(avoided)
        for partition, needed in self._needed(job).items():
            self._leave_enough(avoided, theirs, states[partition], needed)
        return _Choice(exclude, avoided, tuple(node for node in known if node not in avoided))

    def _needed(self, job: JobFacts) -> Mapping[str, int]:
        """How many nodes the next attempt needs, by partition."""
        if not self.of_components:
            return {job.partition: self.nodes_needed}
        needed: Counter[str] = Counter()
        for component, nodes in zip(job.components, self.of_components, strict=False):
            needed[component.partition] += nodes
        return needed

    def _leave_enough(
        self, avoided: list[str], theirs: Sequence[str], states: Mapping[str, str], needed: int
    ) -> None:
        """Takes the first out of ``avoided`` while a partition would have too few others."""
        in_service = {node for node, state in states.items() if can_be_allocated(state)}
        may_serve = {node for node, state in states.items() if not state.startswith("drain")}
        # The second time for nodes that are down: the job may have to wait until they are back, and
        # one that excludes them would wait for ever.
        for counted in (in_service, may_serve):
            for node in list(avoided):
                if len(counted - set(avoided) - set(theirs)) >= needed:
                    break
                if node in counted:
                    avoided.remove(node)
                    _log.warning("%s is no longer avoided: too few nodes would be left", node)


def _required(job: JobFacts) -> frozenset[str]:
    return frozenset(chain.from_iterable(one.required for one in job.components))


def withdraw(client: SlurmClient, restart: Restart) -> None:
    """Cancels the job of a restart; a job that is gone already is what we want."""
    try:
        client.cancel([restart.job_id])
    except SlurmRefused as refusal:
        with suppress(NoSuchJob):
            if client.job(restart.job_id).state in _AHEAD:
                raise ClusterUnavailable(f"{restart.job_id} is still there: {refusal}") from refusal
