"""The program that looks at a node while ranks run: faults that stay, faults that pass, its end."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from health.plugin import install

from relight.resilience.config import RunConfig
from relight.resilience.health import watch as watching
from relight.resilience.health.check import Candidate, Check, Finding
from relight.resilience.health.collect import read_reports
from relight.resilience.health.result import NodeReport, Outcome
from relight.resilience.health.watch import look

LIMIT_S = 60.0
MAX_RSS_BYTES = 100 * 1024**2


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    return install(tmp_path / "site")


@pytest.fixture
def out_dir(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def start(
    run_config: RunConfig, flags: Path, out_dir: Path
) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    run_config.run_dir.mkdir()
    (run_config.run_dir / "plan.json").write_text(json.dumps({"run": run_config.to_json()}))
    started: list[subprocess.Popen[bytes]] = []

    def begin(every: str) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-m", "relight.resilience.health.watch"]
        env = os.environ | {"RELIGHT_NODE": "n1", "PYTHONPATH": str(flags)}
        process = subprocess.Popen(
            [*program, str(run_config.run_dir), str(out_dir), every], env=env
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def smoke(out_dir: Path) -> Outcome | None:
    report = read_reports(out_dir, ["n1"])["n1"]
    if report is None:
        return None
    return next(result.outcome for result in report.results if result.check == "smoke")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_one_look(start: Callable[[str], subprocess.Popen[bytes]], out_dir: Path) -> None:
    assert start("0").wait(LIMIT_S) == 0
    assert smoke(out_dir) is Outcome.PASS


def test_it_tells_what_changes_and_ends_when_told(
    start: Callable[[str], subprocess.Popen[bytes]], out_dir: Path, flags: Path
) -> None:
    process = start("0.05")
    wait_until(lambda: smoke(out_dir) is Outcome.PASS)
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19
    assert psutil.Process(process.pid).memory_info().rss < MAX_RSS_BYTES
    (flags / "burnt-n1").touch()
    wait_until(lambda: smoke(out_dir) is Outcome.FAIL_NODE)
    (flags / "burnt-n1").unlink()
    wait_until(lambda: smoke(out_dir) is Outcome.PASS)
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT_S) == 0


def test_the_last_look_asks_all_at_once(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def waits(_candidate: Candidate) -> Finding:
        return Finding(Outcome.PASS, pipe.read_text())

    def releases(_candidate: Candidate) -> Finding:
        pipe.write_text("released")
        return Finding(Outcome.PASS, "")

    first = dataclasses.replace(scripted([]), name="first", run=waits)
    second = dataclasses.replace(scripted([]), name="second", run=releases)
    monkeypatch.setattr(watching, "wanted_checks", lambda _health: (first, second))
    report = look(Candidate("n1", run_config, 0.0), 0.0, at_once=True)
    assert [result.evidence for result in report.results] == ["released", ""]


def test_a_disk_that_is_away_ends_no_watch(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch, out_dir: Path
) -> None:
    waits = iter([None, None, object()])
    check = scripted([Outcome.FAIL_NODE])
    monkeypatch.setattr(watching, "AGAIN_S", 0.0)
    monkeypatch.setattr(watching, "wanted_checks", lambda _health: (check,))

    def wait(*_: object) -> object:
        if out_dir.is_file():
            out_dir.unlink()
        return next(waits)

    monkeypatch.setattr(signal, "sigtimedwait", wait)
    out_dir.write_text("a file where the folder should be")
    watching.watch(Candidate("n1", run_config, 0.0), out_dir, 1.0)
    report = read_reports(out_dir, ["n1"])["n1"]
    assert report is not None
    assert report.results[0].outcome is Outcome.FAIL_NODE


def scripted(answers: list[Outcome]) -> Check:
    def run(_candidate: Candidate) -> Finding:
        return Finding(answers[0], "as the test wants")

    return Check(
        name="scripted",
        reads="nothing",
        threshold="none",
        worst=Outcome.FAIL_NODE,
        typical_s=0.0,
        timeout_s=30.0,
        run=run,
        repeated=True,
    )


@pytest.mark.parametrize(
    ("second", "counts"), [(Outcome.FAIL_NODE, Outcome.FAIL_NODE), (Outcome.PASS, Outcome.PASS)]
)
def test_a_fault_counts_when_it_stays(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch, second: Outcome, counts: Outcome
) -> None:
    answers = [Outcome.FAIL_NODE, second]
    check = scripted(answers)
    monkeypatch.setattr(watching, "wanted_checks", lambda _health: (check,))
    again_s, sleep = 0.0123, time.sleep
    monkeypatch.setattr(time, "sleep", lambda s: answers.pop(0) if s == again_s else sleep(s))
    report = look(Candidate("n1", run_config, 0.0), again_s)
    assert [result.outcome for result in report.results] == [counts]


def test_nothing_is_written_when_nothing_changes(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch, out_dir: Path
) -> None:
    written: list[NodeReport] = []
    waits = iter([None, None, object()])
    check = dataclasses.replace(scripted([Outcome.PASS]))
    monkeypatch.setattr(watching, "wanted_checks", lambda _health: (check,))
    monkeypatch.setattr(watching, "write_report", lambda _dir, report: written.append(report))
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: next(waits))
    watching.watch(Candidate("n1", run_config, 0.0), out_dir, 1.0)
    assert len(written) == 1
