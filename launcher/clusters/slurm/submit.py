"""Submission through submitit: its Slurm executor, with our script in the place of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.slurm.slurm import SlurmExecutor

from relight.errors import UsageError
from relight.resilience.supervise.cluster import ClusterUnavailable

from ...launch_plan import LaunchPlan
from .client import (
    NoCluster,
    SlurmClient,
    SlurmMissing,
    SlurmRefused,
    finds_no_cluster,
    is_no_answer,
    me,
    without_job_variables,
)
from .lookup import PAUSES_S, SubmissionUnknown, find_sent
from .room import LOOK_S, full_queue, wait_for_room

_TRIES: Final = 4
_HOLD: Final = "#SBATCH --hold"  # as a spec's sbatch.hold becomes


class SubmissionRefused(UsageError):
    """Raised when sbatch said no: nothing was submitted. ``answer`` is what it said."""

    def __init__(self, answer: str, what: str = "the job", taken_back: str = "") -> None:
        self.answer = answer
        reason = answer.removeprefix("sbatch: error:").strip() or "sbatch gave no reason"
        super().__init__(f"Slurm refused {what}: {reason}; nothing was submitted{taken_back}")


class _ScriptExecutor(SlurmExecutor):
    """Sends a plan's script, unchanged; no function is pickled."""

    def __init__(self, plan: LaunchPlan, folder: Path, *, held: bool) -> None:
        super().__init__(folder)
        self._plan = plan
        self._options = ["--hold"] if held else []

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        return self._plan.script

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        kept = without_job_variables(os.environ)
        dropped = [f"--unset={name}" for name in os.environ if name not in kept]
        return ["env", *dropped, "sbatch", *self._options, str(submission_file_path)]

    def send(self) -> str:
        with contextlib.redirect_stderr(io.StringIO()):  # submitit prints what it also raises
            try:
                return str(self._submit_command("").job_id)
            except FailedJobError:
                for copy in self.folder.glob(".submission_file_*.sh"):  # one for each try
                    copy.unlink(missing_ok=True)
                raise


def submit_arrays(
    arrays: Sequence[tuple[str, LaunchPlan]], note: Callable[[Sequence[str]], None]
) -> list[str]:
    """Sends the arrays of a sweep, each with the name of its job; all of them, or none.

    Several are held until all are there and ``note`` has their ids: so no task can have computed
    anything when they are taken back. Only the first waits for room, which held ones never make.

    Raises:
        as :func:`submit`; SubmissionUnknown, too, when all are there but may still be held.
    """
    held = len(arrays) > 1
    sent: list[str] = []
    try:
        for name, plan in arrays:
            sent.append(submit(plan, name, waits=not sent, held=held))
    except BaseException as error:  # Ctrl-C, too, must not leave half a sweep behind
        if not sent:
            raise
        _cancel(sent, arrays[0][1])
        if isinstance(error, SubmissionRefused):
            raise _refused_in_part(error.answer, sent, len(arrays)) from error
        raise
    note(sent)
    if held and _HOLD not in arrays[0][1].script.splitlines():
        _let_start(sent, arrays[0][1])
    return sent


def _refused_in_part(answer: str, sent: Sequence[str], count: int) -> SubmissionRefused:
    advice = "; a sweep goes as a whole: give it fewer points at a time"
    return SubmissionRefused(
        answer,
        f"array {len(sent) + 1} of the sweep's {count}",
        f": what was sent before it (job {', '.join(sent)}) was held, so that no task had started, "
        f"and is taken back{advice if full_queue(answer) else ''}",
    )


def _let_start(job_ids: Sequence[str], plan: LaunchPlan) -> None:
    try:
        SlurmClient().release(job_ids)
    except (KeyboardInterrupt, SlurmRefused, ClusterUnavailable) as error:
        jobs = ",".join(job_ids)
        what = (
            f"all of the sweep is sent, as job {', '.join(job_ids)}, but may still be held "
            f"({str(error) or 'interrupted'}): `scontrol release {jobs}` lets it start"
        )
        raise _left(plan, what) from error


def submit(
    plan: LaunchPlan,
    name: str | None = None,
    *,
    waits: bool = True,
    held: bool = False,
    pauses_s: tuple[float, ...] = PAUSES_S,
    look_s: float = LOOK_S,
) -> str:
    """Sends the plan; the job id. ``name`` is that of the job, where it is not the run id.

    When sbatch got no answer the job may be in the queue all the same, so it is looked for by its
    name, which no other run has, before it is sent again. Where the user has as many jobs there as
    may be, a plan that ``waits`` is tried again every ``look_s`` seconds. A ``held`` job starts
    once it is released.

    Raises:
        SlurmMissing: there is no Slurm on this machine.
        SubmissionRefused: sbatch said no.
        SubmissionUnknown: the job may be in the queue; its run folder must stay.
        NoCluster, ClusterUnavailable: no answer, several times; nothing was submitted.
    """
    first = True
    while True:
        try:
            return _submit(plan, name or plan.config.run_id, pauses_s, held=held)
        except SubmissionRefused as refusal:  # so there is no job
            limit = full_queue(refusal.answer)
            if not (waits and limit and wait_for_room(limit, look_s, first=first)):
                raise
            first = False


def _submit(plan: LaunchPlan, name: str, pauses_s: tuple[float, ...], *, held: bool) -> str:
    folder = plan.folder.root / "submitit"
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        executor = _ScriptExecutor(plan, folder, held=held)
    except RuntimeError as error:
        raise SlurmMissing(
            "srun is not on this machine's PATH: there is no Slurm here; "
            "use `relight run` to run without it"
        ) from error
    for _ in range(_TRIES):
        try:
            return executor.send()
        except FailedSubmissionError as error:
            answer = str(error)
        except FailedJobError as error:
            answer = str(error).strip()
            if finds_no_cluster(answer):  # here, that is no passing trouble
                raise NoCluster(["sbatch"]) from error
            if _was_heard(error) and not is_no_answer(answer):
                raise SubmissionRefused(answer) from error
        except BaseException:  # Ctrl-C, or a full disk: sbatch may have sent the job before
            _take_back(plan, name, pauses_s)
            raise
        if found := _already_there(plan, name, pauses_s):
            return found
    raise ClusterUnavailable(
        f"sbatch got no answer from Slurm: {answer}; nothing was submitted; try again later"
    )


def _was_heard(error: FailedJobError) -> bool:
    """Whether sbatch lived to say what it said."""
    ended = error.__cause__
    return isinstance(ended, subprocess.CalledProcessError) and ended.returncode > 0


def _take_back(plan: LaunchPlan, name: str, pauses_s: tuple[float, ...]) -> None:
    try:
        with contextlib.suppress(OSError):  # of a terminal that is closed
            sys.stderr.write("relight: interrupted: looking for a job that sbatch may have sent\n")
        job_id = _already_there(plan, name, pauses_s)
    except KeyboardInterrupt as error:
        raise _left(plan, "interrupted: nobody looked whether there is a job") from error
    if job_id is not None:
        _cancel([job_id], plan)


def _cancel(job_ids: Sequence[str], plan: LaunchPlan) -> None:
    try:
        SlurmClient().cancel(job_ids)
    except (KeyboardInterrupt, SlurmRefused, ClusterUnavailable) as error:
        jobs = ", ".join(job_ids)
        raise _left(plan, f"job {jobs} may still be there, for it was not cancelled") from error


def _left(plan: LaunchPlan, what: str) -> SubmissionUnknown:
    run_id = plan.config.run_id
    return SubmissionUnknown(
        f"{what}; its run folder {plan.folder.root} stays: `relight status {run_id}` and "
        f"`relight cancel {run_id}` work on it"
    )


def _already_there(plan: LaunchPlan, name: str, pauses_s: tuple[float, ...]) -> str | None:
    def look() -> str | None:
        jobs = SlurmClient(pauses_s=()).jobs_named(name, me())
        return jobs[0].job_id.partition("_")[0] if jobs else None  # of an array: all of it

    try:
        return find_sent(look, name, time.sleep, pauses_s)
    except SubmissionUnknown as error:
        raise _left(plan, str(error)) from error
