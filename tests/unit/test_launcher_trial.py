"""What ``relight doctor --try`` sends, and that nothing of it stays."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from relight.errors import UsageError
from relight.launcher.clusters.slurm.client import SlurmClient, SlurmRefused
from relight.launcher.clusters.slurm.parse import JobState, QueuedJob
from relight.launcher.clusters.slurm.trial_job import Trial
from relight.launcher.sbatch_options import Given
from relight.launcher.sbatch_script import Line, directive, directive_words, script_options
from relight.launcher.trial import tried


class Queue:
    """Slurm's part in it: Ctrl-C comes once the job runs, and it sends its successor late."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobState] = {}
        self.script = ""

    def submit(self, options: Sequence[str], script: Path) -> str:
        self.jobs["7"], self.script = JobState.RUNNING, script.read_text()
        return "7"

    def job(self, job_id: str) -> object:
        raise KeyboardInterrupt

    def jobs_of_script(self, script: Path, user: str) -> list[QueuedJob]:
        queued = [QueuedJob(one, state, "None", None, "") for one, state in self.jobs.items()]
        for one in [one for one, state in self.jobs.items() if state is JobState.COMPLETING]:
            del self.jobs[one]
            self.jobs["8"] = JobState.PENDING
        return queued

    def cancel(self, job_ids: Sequence[str]) -> None:
        for one in job_ids:
            if self.jobs[one] is JobState.RUNNING:
                self.jobs[one] = JobState.COMPLETING
            elif self.jobs.pop(one) is JobState.COMPLETING:
                raise SlurmRefused(["scancel"], "Invalid job id specified")


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path / "home"))
    queue = Queue()
    with pytest.raises(KeyboardInterrupt):
        tried(cast(SlurmClient, queue), 2, ["-p", "low", "--comment", "a 'b' #c"], lambda _: None)
    return queue


def test_the_script_says_by_itself_what_the_site_asks_for(queue: Queue) -> None:
    """The successor is sent with nothing but the script."""
    options = script_options(queue.script)
    assert Given("partition", "low") in options
    assert Given("comment", "a 'b' #c") in options
    assert Given("nodes", "2") in options


def test_what_the_job_sends_while_it_is_cancelled_is_cancelled_too(queue: Queue) -> None:
    assert queue.jobs == {}


def test_sigterm_waits_until_the_successor_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []

    def submit_successor(*_: object, held: bool) -> str:
        sent.append("8")
        signal.raise_signal(signal.SIGTERM)
        return "8"

    client = SimpleNamespace(
        submit_successor=submit_successor,
        update=lambda *_: None,
        job=lambda _: SimpleNamespace(excluded=("n1",)),
        cancel=lambda ids: sent.remove(*ids),
    )
    trial = Trial(tmp_path, "7", ("n1",), cast(SlurmClient, client))
    before = signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(SystemExit(15)))
    try:
        with pytest.raises(SystemExit):
            trial.successor()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert sent == []


def test_a_line_for_sbatch_is_read_as_it_was_meant() -> None:
    words = ["-p", "low", '--comment=it\'s a "#1" \\ of\tmany', "", "--export=A=ä"]
    assert list(directive_words(Line(1, directive(words)))) == words
    with pytest.raises(UsageError, match="end of a line"):
        directive(["--comment=a\nb"])
