"""What a user wants of a run that is there: a save now, a restart now, a pause in the queue.

The supervisor is asked by files in the run folder, and Slurm where it holds the job. All of it may
be repeated without harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from relight.errors import RelightError, UsageError
from relight.resilience.decide.actions import Outcome
from relight.resilience.supervise.journal import read_journals
from relight.resilience.supervise.requests import (
    OWN_SAVE_LIMIT_S,
    Answer,
    Request,
    What,
    read_answer,
    withdraw_request,
    write_request,
)
from relight.resilience.supervise.standing import Verdict, read_verdict

from .clusters.slurm.client import SlurmClient
from .clusters.slurm.parse import JobState, QueuedJob
from .json_values import texts
from .presence import read_facts
from .queue import Queue, queued_jobs
from .runs import StoredRun, refuse_sweep
from .status import Presence, RunFacts, status
from .waiting import BEGIN_TIME, HELD_BY_USER
from .watch import JournalTail

ANSWER_LIMIT_S: Final = 60.0
HOLD_LIMIT_S: Final = 60.0
_REVOKED_S: Final = 2.0
_TICK_S: Final = 0.2
_LOOK_S: Final = 2.0  # between two questions to Slurm
_OVER: Final = frozenset({"RanksStopped", "Finish", "AttemptStarted"})


class NotDone(RelightError):
    """Raised when a run did not do what it was asked for; it goes on as before."""


@dataclass(frozen=True, slots=True)
class Held:
    """``waits`` says that the run waits in the queue; else it is on its way there."""

    jobs: tuple[str, ...]
    waits: bool


def save_now(run: StoredRun, limit_s: float = ANSWER_LIMIT_S) -> int | None:
    """Lets all ranks save one common step; the step, once its checkpoint is valid. None for a
    program that saves by itself: it was told to, and has, where that can be seen.

    Raises:
        UsageError: the run does not run now.
        NotDone: there is no checkpoint, and why.
    """
    _running(run)
    tail = JournalTail(run.folder)
    if run.plan.config.checkpoint.done is not None:
        limit_s = max(limit_s, OWN_SAVE_LIMIT_S)
    step = _answer(run, "checkpoint", (), limit_s).step
    if step is None:
        return None
    while True:
        for record in tail.new_records():
            if record.name == "CheckpointCommitted" and record.data.get("step") == step:
                return step
            if record.name == "SaveFailed":
                raise NotDone(f"step {step} is not saved: {record.data.get('reason')}")
            if record.name in _OVER:
                raise NotDone(f"the ranks ended before step {step} was saved")
        time.sleep(_TICK_S)


def restart(run: StoredRun, exclude: Sequence[str], limit_s: float = ANSWER_LIMIT_S) -> None:
    """Lets all ranks save and start again, without the nodes ``exclude``; a requeued job that Slurm
    lets wait may start at once.

    A batch script is requeued: Slurm tells it to end as it always does.

    Raises:
        UsageError: the run does not run now, or may not leave its nodes, or there are no such.
        NotDone: its supervisor did not answer.
    """
    if not exclude and _start_now(run):
        return
    facts = _running(run)
    config = run.plan.config
    if strangers := _strangers(run, exclude):
        raise UsageError(f"--exclude: there is no node {', '.join(strangers)}")
    if exclude and config.restart.mode == "never" and len(exclude) > config.spares:
        raise UsageError(
            "without these nodes the run needs others, and restart.mode is never: it would end"
        )
    _answer(run, "restart", tuple(exclude), limit_s)
    if config.program == "script":
        assert facts.job_id is not None
        SlurmClient().requeue(facts.job_id)


def _strangers(run: StoredRun, nodes: Sequence[str]) -> list[str]:
    """Names that mean no node: of Slurm's, or of those that a local run has, spares too."""
    if not nodes:
        return []
    known = (
        texts(_attempt_started(run).get("nodes"))
        if run.plan.cluster == "local"
        else SlurmClient().node_states(nodes)
    )
    return [node for node in nodes if node not in known]


def _attempt_started(run: StoredRun) -> Mapping[str, object]:
    records = read_journals(run.folder.journals)
    started = (one.data for one in reversed(records) if one.name == "AttemptStarted")
    return next(started, {})


def _start_now(run: StoredRun) -> bool:
    """Whether the run was waiting for the life of a credential to end, which it need not.

    Never within a second of the requeue: seen on 22.05, slurmd then takes the new credential for
    the revoked one, and the job is lost.
    """
    _not_ended(run)
    if run.plan.cluster == "local":
        return False
    client = SlurmClient()
    jobs = queued_jobs(run, client)
    waiting = [job.job_id for job in jobs if job.reason == BEGIN_TIME]
    if not waiting or any(job.state is not JobState.PENDING for job in jobs):
        return False
    began = any(run.folder.journals.glob("*.jsonl"))
    if not began and not any(client.job(job_id).restarts for job_id in waiting):
        return False  # it waits for a time of its user's own
    time.sleep(_REVOKED_S)
    for job_id in waiting:
        client.update(job_id, "StartTime", "now")
    return True


def hold(run: StoredRun, limit_s: float = HOLD_LIMIT_S) -> Held:
    """Lets the run save, give its nodes back and wait in the queue until it is released.

    Raises:
        UsageError: the run has ended, or would end.
        NotDone: it ended before it was held, or no job of it is in the queue.
        ClusterUnavailable: Slurm does not answer; the mark stays, and the supervisor heeds it.
    """
    _not_ended(run)
    if run.plan.cluster == "local":
        return _hold_local(run, limit_s)
    if run.plan.config.program == "script":
        return _hold_script(run, limit_s)
    client, deadline = SlurmClient(), time.monotonic() + limit_s
    while True:
        jobs = queued_jobs(run, client)
        _require_alive(run)
        if not jobs:
            raise _nothing_to_hold(run)
        waiting = [job.job_id for job in jobs if job.state is JobState.PENDING]
        running = len(jobs) > len(waiting)
        if running and run.plan.config.restart.mode == "never":
            raise UsageError(
                "restart.mode is never: a run that gives its nodes back has ended, and waits for "
                "nobody; `relight checkpoint` saves it, `relight cancel` ends it"
            )
        free = [j.job_id for j in jobs if j.job_id in waiting and j.reason != HELD_BY_USER]
        if free:
            client.hold(free)
        if running and not run.folder.held.exists():  # a supervisor that begins takes it away
            run.folder.held.touch(mode=0o600)
        if (waiting and not running) or time.monotonic() > deadline:
            return Held(tuple(job.job_id for job in jobs), waits=bool(waiting) and not running)
        time.sleep(_LOOK_S)


def release(run: StoredRun) -> tuple[str, ...]:
    """Lets a held run start again; the jobs that were let go.

    Raises:
        UsageError: the run has ended, or is a local one.
    """
    _not_ended(run)
    if run.plan.cluster == "local":
        raise UsageError(f"a local run goes on with `relight run --resume {run.run_id}`")
    run.folder.held.unlink(missing_ok=True)
    client = SlurmClient()
    waiting = [j.job_id for j in queued_jobs(run, client) if j.state is JobState.PENDING]
    if waiting:
        client.release(waiting)
    return tuple(waiting)


def _hold_local(run: StoredRun, limit_s: float) -> Held:
    """Its front heeds the mark as it does a SIGTERM."""
    run.folder.held.touch(mode=0o600)
    waits = _until(
        lambda: read_facts(run, Queue()).presence is not Presence.RUNNING, limit_s, _TICK_S
    )
    _require_alive(run)
    return Held((), waits)


def _hold_script(run: StoredRun, limit_s: float) -> Held:
    client = SlurmClient()
    jobs = queued_jobs(run, client)
    if not jobs:
        raise _nothing_to_hold(run)
    for job in jobs:
        if job.state is JobState.PENDING:
            client.hold([job.job_id])
        else:
            client.requeue(job.job_id, held=True)
    waits = _until(lambda: _waits(queued_jobs(run, client)), limit_s, _LOOK_S)
    _require_alive(run)
    return Held(tuple(job.job_id for job in jobs), waits)


def _waits(jobs: Sequence[QueuedJob]) -> bool:
    return bool(jobs) and all(job.state is JobState.PENDING for job in jobs)


def _require_alive(run: StoredRun) -> None:
    verdict = read_verdict(run.folder)
    if verdict is not None:
        way_on = "" if verdict.state == Outcome.COMPLETED else f"; {_way_on(run, verdict)}"
        raise NotDone(f"run {run.run_id} ended before it was held ({verdict.state}){way_on}")


def _nothing_to_hold(run: StoredRun) -> NotDone:
    return NotDone(f"no job of run {run.run_id} is in the queue: there is nothing to hold")


def _answer(run: StoredRun, what: What, exclude: tuple[str, ...], limit_s: float) -> Answer:
    request = write_request(run.folder, what, exclude)
    found: list[Answer] = []

    def answered() -> bool:
        answer = read_answer(run.folder, what, request)
        found.extend([answer] if answer is not None else [])
        return bool(found) or read_verdict(run.folder) is not None

    _until(answered, limit_s, _TICK_S)
    if not found:
        withdraw_request(run.folder, what, request)
        raise NotDone(_no_answer(run, what, request))
    if found[0].refused is not None:
        raise NotDone(found[0].refused)
    return found[0]


def _no_answer(run: StoredRun, what: What, request: Request) -> str:
    one = status(read_facts(run, Queue()))
    if what == "checkpoint" and one.phase == "running" and one.step is None:
        return "the program has begun no step, or does not use relight.join: nobody can save it"
    return f"the supervisor did not take the request; the run is {one.state}, phase {one.phase}"


def _running(run: StoredRun) -> RunFacts:
    _not_ended(run)
    facts = read_facts(run, Queue())
    if facts.presence is not Presence.RUNNING:
        waits = f": {facts.waits_for}" if facts.waits_for else ""
        raise UsageError(f"run {run.run_id} does not run now ({status(facts).state}{waits})")
    return facts


def _not_ended(run: StoredRun) -> None:
    refuse_sweep(run)
    verdict = read_verdict(run.folder)
    if verdict is not None:
        raise UsageError(f"run {run.run_id} has ended ({verdict.state}); {_way_on(run, verdict)}")


def _way_on(run: StoredRun, verdict: Verdict) -> str:
    """How a person goes on after the end."""
    config = run.plan.config
    if config.program == "script":
        return (
            "what it saved is where its script put it: a new job of a script that looks there, as "
            "by RELIGHT_CHECKPOINT_DIR for programs with relight.join, goes on from it"
        )
    if run.plan.cluster == "local" and verdict.state != Outcome.COMPLETED:
        return f"`relight run --resume {run.run_id}` goes on"
    directory = config.checkpoint.directory
    return f"a new one that is given checkpoint.directory {directory} goes on from what is there"


def _until(condition: Callable[[], bool], limit_s: float, tick_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(tick_s)
    return True
