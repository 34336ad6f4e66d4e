"""``relight doctor --try``: a job of a minute that does what runs do.

It waits in the queue like any other; whoever asked may stop it by Ctrl-C, and nothing is left.
"""

from __future__ import annotations

import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from relight.counted import counted
from relight.errors import RelightError, UsageError
from relight.resilience.supervise.cluster import ClusterUnavailable

from .clusters.slurm.client import NoSuchJob, SlurmClient, SlurmRefused, me
from .clusters.slurm.parse import JobFacts, JobState
from .runs import runs_dir
from .sbatch_script import directive
from .trial_notes import Note, read_notes

_LOOK_S: Final = 2.0
_SETTLED_S: Final = 2.0  # StartTime=now in the second of the requeue fails the job (22.05)
_AGAIN_S: Final = 60.0
_GONE_S: Final = 15.0
_TICK_S: Final = 0.2
_OPTIONS: Final = (
    *("--job-name=relight-doctor", "--ntasks-per-node=1", "--time=5", "--requeue", "--no-kill"),
    "--open-mode=append",
)


@dataclass(slots=True)
class _Course:
    """How far the job has come, seen from outside."""

    client: SlurmClient
    job_id: str
    say: Callable[[str], None]
    notes: list[Note] = field(default_factory=list)  # of what is done from here
    waits: str = ""
    back_since: float | None = None

    def look(self) -> bool:
        """Asks Slurm; whether there is anything left to wait for."""
        try:
            job = self.client.job(self.job_id)
        except NoSuchJob:
            return False
        except ClusterUnavailable:
            return True
        first = job.state is JobState.PENDING and job.restarts == 0
        if first and job.reason not in ("None", self.waits):
            self.waits = job.reason
            self.say(f"job {self.job_id} waits ({job.reason}); Ctrl-C cancels it")
        if job.restarts > 0:
            return self._comes_back(job)
        return job.state.live

    def _comes_back(self, job: JobFacts) -> bool:
        now = time.monotonic()
        if job.state is JobState.PENDING and self.back_since is None:
            self.back_since = now
        since_s = now - (self.back_since or now)
        if job.state is JobState.PENDING and not self.notes and since_s >= _SETTLED_S:
            self.notes.append(self._start_now())
        if since_s > _AGAIN_S:
            fact = f"job {self.job_id} was still {job.state} {_AGAIN_S:.0f} s after it was requeued"
            self.notes.append(Note("second life", False, fact))
            return False
        return job.state.live

    def _start_now(self) -> Note:
        try:
            self.client.update(self.job_id, "StartTime", "now")
        except RelightError as error:
            return Note("start time", False, str(error))
        return Note("start time", True, f"job {self.job_id} was let start at once")


def tried(
    client: SlurmClient, nodes: int, words: Sequence[str], say: Callable[[str], None]
) -> list[Note]:
    """Sends the job with sbatch's options ``words``, follows it, and takes it away again.

    Raises:
        SlurmRefused, SlurmMissing, ClusterUnavailable: as the client; nothing is left.
    """
    with _folder() as folder:
        script = folder / "job.sh"
        options = [*_OPTIONS, f"--nodes={nodes}", f"--output={folder}/output", *words]
        script.write_text(_text(options, folder))
        sent: list[str] = []
        try:
            # Once more on the command line, which outranks the user's SBATCH_* variables.
            job_id = client.submit(options, script)
            sent.append(job_id)
            say(f"job {job_id} tries what matters on {counted(nodes, 'node')}")
            found = _followed(_Course(client, job_id, say), folder)
        finally:
            _take_away(client, script, sent, say)
        if not found:
            log = folder / "output"
            last = log.read_text(errors="replace").strip() if log.exists() else ""
            raise ClusterUnavailable(
                f"job {job_id} has ended and found out nothing: {last[-500:] or 'no output'}"
            )
        return found


def _text(options: Sequence[str], folder: Path) -> str:
    """The job's script; its successor is sent with nothing else, as that of a run."""
    command = [sys.executable, "-P", "-m", "relight.launcher.clusters.slurm.trial_job", str(folder)]
    return f"#!/bin/sh\n{directive(options)}\nexec {shlex.join(command)}\n"


def _take_away(
    client: SlurmClient, script: Path, sent: Sequence[str], say: Callable[[str], None]
) -> None:
    """Cancels the job, and then what else was sent of its script, until nothing is left of it.

    While it ends, its batch script may still send the successor; and Ctrl-C may come while sbatch
    sends the job.
    """
    deadline = time.monotonic() + _GONE_S
    left = list(sent)
    try:
        while True:
            if left:
                with suppress(SlurmRefused):  # it may have just ended
                    client.cancel(left)
            jobs = client.jobs_of_script(script, me())
            if not jobs:
                return
            left = [job.job_id for job in jobs if job.state is not JobState.COMPLETING]
            if time.monotonic() > deadline:
                why = "it is still in the queue"
                break
            time.sleep(_TICK_S)
    except ClusterUnavailable as error:
        why = str(error)
    if left:
        say(f"job {', '.join(left)} may not be cancelled: {why}; `scancel {' '.join(left)}` does")


def _followed(course: _Course, folder: Path) -> list[Note]:
    path = folder / "notes"
    next_look = 0.0
    while True:
        notes = _notes(path)
        if notes and notes[-1].what == "done":
            return [*notes, *course.notes]
        if time.monotonic() >= next_look:
            if not course.look():
                return [*_notes(path), *course.notes]
            next_look = time.monotonic() + _LOOK_S
        time.sleep(_TICK_S)


def _notes(path: Path) -> list[Note]:
    try:
        return list(read_notes(path.read_text().splitlines(keepends=True)))
    except FileNotFoundError:
        return []


@contextmanager
def _folder() -> Iterator[Path]:
    """A private folder where run folders go, for the nodes to see."""
    home = runs_dir().parent
    made = not home.exists()
    folder = home / f"doctor-{secrets.token_hex(4)}"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise UsageError(f"cannot make {folder}: {error.strerror}; see RELIGHT_HOME") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if made:
            with suppress(OSError):  # somebody has runs there by now
                home.rmdir()
