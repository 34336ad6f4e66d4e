"""Programs without the Python API that hang, as their agents and their run see it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PosixPath

import pytest
from stage.local import PATIENCE_S, Run

from relight.resilience.supervise.journal import read_journals
from relight.resilience.worker import activity as looking
from relight.resilience.worker.activity import Activity, family

SLEEP = "import time\ntime.sleep(600)\n"
IN_A_CHILD = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SLEEP!r}])\n"
BUSY_CHILD = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'while True: pass'])\n"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def run(code: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", code])
        started.append(process)
        return process

    yield run
    for process in started:
        for pid in reversed(family(process.pid)):
            os.kill(pid, signal.SIGKILL)
        process.wait()


def until(activity: Activity, condition: Callable[[float], bool]) -> None:
    """Look until the seconds without use of a CPU are so."""
    over = time.monotonic() + PATIENCE_S
    while True:
        seen = activity.look()["idle_s"]
        assert isinstance(seen, float)
        if condition(seen):
            return
        assert time.monotonic() < over, seen
        time.sleep(0.2)


@pytest.mark.parametrize("code", [SLEEP, IN_A_CHILD])
def test_a_program_that_sleeps_is_idle(
    tmp_path: Path, start: Callable[[str], subprocess.Popen[bytes]], code: str
) -> None:
    until(Activity(start(code).pid, tmp_path / "log"), lambda idle_s: idle_s > 1.5)


def test_the_work_of_a_child_is_the_programs(
    tmp_path: Path, start: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    begun = time.monotonic()
    until(
        Activity(start(BUSY_CHILD).pid, tmp_path / "log"),
        lambda idle_s: idle_s == 0.0 and time.monotonic() - begun > 3.0,
    )


def test_output_is_what_the_log_gains(
    tmp_path: Path,
    start: Callable[[str], subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(looking, "_ANSWER_S", PATIENCE_S)
    activity = Activity(start(SLEEP).pid, log)
    activity.look()
    time.sleep(0.1)
    silent_s = activity.look()["output_s"]
    assert isinstance(silent_s, float)
    assert silent_s >= 0.1
    hour_s, clock = 3600.0, time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + hour_s)
    after = activity.look()
    assert after["output_s"] == pytest.approx(silent_s, abs=5.0), "a suspended job is not silent"
    assert after["idle_s"] == pytest.approx(silent_s, abs=5.0)
    log.write_text("a line\n")
    assert activity.look()["output_s"] == 0.0


class Away(PosixPath):
    """A log whose file system fails, or does not answer until it is back."""

    back = threading.Event()
    fault: OSError | None = None
    asked = 0

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        type(self).asked += 1
        if self.fault is not None:
            raise self.fault
        self.back.wait()
        return super().stat(follow_symlinks=follow_symlinks)


def test_a_log_that_does_not_answer_delays_nothing(
    tmp_path: Path, start: Callable[[str], subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Away, "back", threading.Event())
    monkeypatch.setattr(Away, "asked", 0)
    log = Away(tmp_path / "log")
    Path(log).write_text("a line\n")
    activity = Activity(start(SLEEP).pid, log)
    begun = time.monotonic()
    silent_s = [activity.look()["output_s"] for _ in range(10)]
    assert time.monotonic() - begun < 5.0  # the agents' silence that makes a node a suspect
    assert all(isinstance(each, float) and each < 0.01 for each in silent_s), "it is not known"
    assert Away.asked == 1
    Away.back.set()
    over = time.monotonic() + PATIENCE_S
    while activity.look()["output_s"] == 0.0:
        assert time.monotonic() < over, "it is known again, and nothing is written"


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_a_log_that_cannot_be_seen_is_no_silence(
    tmp_path: Path,
    start: Callable[[str], subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    monkeypatch.setattr(Away, "fault", OSError(number, os.strerror(number)))
    activity = Activity(start(SLEEP).pid, Away(tmp_path / "log"))
    time.sleep(0.1)
    silent_s = activity.look()["output_s"]
    assert isinstance(silent_s, float)
    assert silent_s < 0.1


def test_a_silent_run_is_given_up_when_no_failure_is_forgiven(tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    program = tmp_path / "program.py"
    program.write_text(f"print('begun', flush=True)\n{SLEEP}")
    spec.write_text(
        f"name: t\ncommand: [{sys.executable}, {program}]\n"
        "restart: {silence: 6s, failures: 0}\nhealth: {preflight: 'off'}\n"
    )
    run = Run(tmp_path / "home", str(spec))
    code, _ = run.end()
    assert code == 1
    (finish,) = [r.data for r in read_journals(run.folder / "journal") if r.name == "Finish"]
    assert finish["cause"] == "hang"
    assert "no rank has written anything" in str(finish["reason"])
