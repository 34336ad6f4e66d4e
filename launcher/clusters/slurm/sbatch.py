"""Runs sbatch in a user's name: what it prints is passed on, and its exit code is ours."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from relight.resilience.environ import initial_environment
from relight.resilience.supervise.cluster import ClusterUnavailable

from .client import (
    NoCluster,
    SlurmClient,
    SlurmMissing,
    SlurmRefused,
    finds_no_cluster,
    is_no_answer,
    me,
)
from .lookup import SubmissionUnknown, find_sent
from .parse import parse_submission

_TRIES: Final = 3
_SHOWN_BY: Final = "squeue --me --format='%i %T %o'"


@dataclass(frozen=True, slots=True)
class Ended:
    """How sbatch ended; ``job_id`` is None when there is no job."""

    exit_code: int
    job_id: str | None


def send(words: Sequence[str], script: Path, on_job: Callable[[str], None]) -> Ended:
    """Submits a script. ``on_job`` hears the job id at once: with ``--wait`` sbatch goes on.

    When sbatch got no answer the job may be in the queue all the same: it is looked for by the path
    of its script, which no other job has, before it is sent again.

    Raises:
        SlurmMissing: there is no sbatch on this machine.
        NoCluster: it does not know where to send anything.
        SubmissionUnknown: nobody can say whether there is a job.
    """
    for _ in range(_TRIES):
        ended, complaint = _run_or_take_back(words, script, on_job)
        if ended.job_id is None and finds_no_cluster(complaint):
            raise NoCluster(["sbatch"])
        if ended.job_id is not None or not is_no_answer(complaint):
            break
        job_id = _sent(script)
        if job_id:
            on_job(job_id)
            sys.stdout.write(f"Submitted batch job {job_id}\n")
            return Ended(0, job_id)
    sys.stderr.write(complaint)
    return ended


def ask(words: Sequence[str]) -> tuple[int, str, str]:
    """Runs sbatch for its help or its version: exit code, output and complaints.

    Raises:
        SlurmMissing: there is no sbatch on this machine.
    """
    with _started(["sbatch", *words], subprocess.PIPE, subprocess.PIPE) as process:
        output, complaints = (text.decode(errors="replace") for text in process.communicate())
        return process.returncode, output, complaints


def _run_or_take_back(
    words: Sequence[str], script: Path, on_job: Callable[[str], None]
) -> tuple[Ended, str]:
    known: list[str] = []

    def hear(job_id: str) -> None:
        known.append(job_id)
        on_job(job_id)

    try:
        return _run(words, script, hear)
    except KeyboardInterrupt:
        if not known:
            _take_back(script)
        raise


def _take_back(script: Path) -> None:
    try:
        with contextlib.suppress(OSError):  # of a terminal that is closed
            sys.stderr.write("relight: interrupted: looking for a job that sbatch may have sent\n")
        if job_id := _sent(script):
            SlurmClient().cancel([job_id])
    except (KeyboardInterrupt, SlurmRefused, ClusterUnavailable) as error:
        raise SubmissionUnknown(
            f"interrupted, and a job may still be there: `{_SHOWN_BY}` shows it; its run folder "
            f"{script.parent} stays"
        ) from error


def _sent(script: Path) -> str | None:
    return find_sent(lambda: _job_of(script), script.parent.name, time.sleep, shown_by=_SHOWN_BY)


def _run(words: Sequence[str], script: Path, on_job: Callable[[str], None]) -> tuple[Ended, str]:
    job_id = None
    with TemporaryFile() as complaints:
        argv = ["sbatch", *words, str(script)]
        with _started(argv, subprocess.PIPE, complaints) as process:
            assert process.stdout is not None
            for line in process.stdout:
                text = line.decode(errors="replace")
                if job_id is None and (found := parse_submission(text)):
                    job_id = found
                    on_job(found)
                sys.stdout.write(text)
                sys.stdout.flush()
            code = process.wait()
        complaints.seek(0)
        return Ended(code, job_id), complaints.read().decode(errors="replace")


def _started(argv: Sequence[str], stdout: int, stderr: int | IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv, env=initial_environment(), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
        )
    except FileNotFoundError as error:
        raise SlurmMissing(
            "sbatch is not on this machine's PATH: there is no Slurm here"
        ) from error


def _job_of(script: Path) -> str | None:
    jobs = SlurmClient(pauses_s=()).jobs_of_script(script, me())
    return jobs[0].job_id if jobs else None
