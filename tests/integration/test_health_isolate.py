"""Checks in processes of their own: good, bad, not carried out, dead, nonsense, hanging."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from relight.resilience.health import isolate, orphan
from relight.resilience.health.check import NO_ANSWER_UNIT, Candidate, Check, Finding
from relight.resilience.health.isolate import run_checks
from relight.resilience.health.result import (
    MAX_EVIDENCE_CHARS,
    CheckResult,
    NodeReport,
    Outcome,
)
from relight.resilience.ledger.record import Identity

LONG_S = 60.0  # more than any of these tests may take


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """Opening it for reading hangs until somebody opens it for writing."""
    path = tmp_path / "hangs"
    os.mkfifo(path)
    return path


def check(
    run: Callable[[Candidate], Finding], name: str = "it", timeout_s: float = LONG_S
) -> Check:
    return Check(
        name=name,
        reads="",
        threshold="",
        worst=Outcome.FAIL_NODE,
        typical_s=0.0,
        timeout_s=timeout_s,
        run=run,
    )


def one(candidate: Candidate, run: Callable[[Candidate], Finding]) -> CheckResult:
    (result,) = run_checks([check(run)], candidate, LONG_S)
    return result


def test_the_answer_comes_back_whole(candidate: Candidate) -> None:
    result = one(candidate, lambda c: Finding(Outcome.FAIL_NODE, f"{c.node} is bad", 1.5, "m"))
    assert (result.check, result.outcome) == ("it", Outcome.FAIL_NODE)
    assert (result.evidence, result.value, result.unit) == ("n1 is bad", 1.5, "m")


def test_answers_come_in_the_order_of_the_checks(candidate: Candidate, fifo: Path) -> None:
    def waits(_candidate: Candidate) -> Finding:
        return Finding(Outcome.PASS, fifo.read_text())

    def releases(_candidate: Candidate) -> Finding:
        fifo.write_text("released")
        return Finding(Outcome.PASS, "")

    results = run_checks([check(waits, "slow"), check(releases, "quick")], candidate, LONG_S)
    assert [result.check for result in results] == ["slow", "quick"]
    assert results[0].evidence == "released"


def test_a_check_that_raises_was_not_carried_out(candidate: Candidate) -> None:
    def raises(_candidate: Candidate) -> Finding:
        raise ImportError("no such module")

    result = one(candidate, raises)
    assert result.outcome is Outcome.UNKNOWN
    assert result.evidence == "could not be run: ImportError: no such module"


def test_a_check_that_gives_no_finding_was_not_carried_out(candidate: Candidate) -> None:
    result = one(candidate, lambda _candidate: None)  # type: ignore[arg-type,return-value]
    assert result.outcome is Outcome.UNKNOWN
    assert result.evidence == "could not be run: TypeError: it gave None in the place of a Finding"


def test_a_check_that_dies_was_not_carried_out(candidate: Candidate) -> None:
    def dies(_candidate: Candidate) -> Finding:
        os.kill(os.getpid(), signal.SIGUSR1)
        return Finding(Outcome.PASS, "")

    result = one(candidate, dies)
    assert result.outcome is Outcome.UNKNOWN
    assert "ended by signal 10" in result.evidence


def test_a_check_that_exits_was_not_carried_out(candidate: Candidate) -> None:
    result = one(candidate, lambda _: sys.exit(3))
    assert (result.outcome, result.evidence) == (Outcome.UNKNOWN, "could not be run: SystemExit: 3")


def test_a_process_that_is_not_to_be_had_costs_its_check(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork, forks = os.fork, iter([BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))])

    def rarely() -> int:
        for error in forks:
            raise error
        return fork()

    monkeypatch.setattr(os, "fork", rarely)
    first, second = run_checks([check(_passes, "a"), check(_passes, "b")], candidate, LONG_S)
    assert (first.outcome, "temporarily unavailable" in first.evidence) == (Outcome.UNKNOWN, True)
    assert second.outcome is Outcome.PASS


@pytest.mark.parametrize("leaves", [False, True])
def test_a_copy_that_a_check_makes_of_itself_answers_nothing(
    candidate: Candidate, leaves: bool
) -> None:
    """Nor does a check end the others by leaving its process group."""
    group = os.getpgid(0)

    def copies(_candidate: Candidate) -> Finding:
        if leaves:
            os.setpgid(0, group)
        if (copy := os.fork()) == 0:
            return Finding(Outcome.FAIL_NODE, "of the copy")
        os.waitpid(copy, 0)
        return Finding(Outcome.WARN, "of the check")

    assert one(candidate, copies).evidence == "of the check"


@pytest.mark.parametrize("said", ["", "{]", "[]", '{"outcome": "GOOD"}'])
def test_nonsense_is_no_answer(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr(json, "dumps", lambda _finding: said)
    result = one(candidate, lambda _: Finding(Outcome.PASS, ""))
    assert (result.outcome, result.evidence[:9]) == (Outcome.UNKNOWN, "no answer")


def test_a_long_story_is_cut(candidate: Candidate) -> None:
    result = one(candidate, lambda _: Finding(Outcome.WARN, "é" * 10**6))
    assert result.outcome is Outcome.WARN
    assert len(result.evidence) == MAX_EVIDENCE_CHARS


def test_a_check_that_hangs_costs_only_its_own_answer(candidate: Candidate, fifo: Path) -> None:
    def hangs(_candidate: Candidate) -> Finding:
        return Finding(Outcome.PASS, fifo.read_text())

    hanging = check(hangs, "hangs", timeout_s=0.2)
    good = check(lambda _: Finding(Outcome.PASS, ""), "good")
    first, second = run_checks([hanging, good], candidate, LONG_S)
    assert first.outcome is Outcome.UNKNOWN
    assert "ended by signal 9" in first.evidence
    assert first.unit == NO_ANSWER_UNIT
    assert second.outcome is Outcome.PASS


def test_no_check_gets_more_than_the_limit(candidate: Candidate, fifo: Path) -> None:
    def hangs(_candidate: Candidate) -> Finding:
        return Finding(Outcome.PASS, fifo.read_text())

    (result,) = run_checks([check(hangs)], candidate, 0.2)
    assert result.outcome is Outcome.UNKNOWN
    assert (result.seconds < LONG_S, result.unit) == (True, None)


def test_a_check_that_cannot_be_killed_is_left_behind(
    candidate: Candidate, fifo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(_candidate: Candidate) -> Finding:
        return Finding(Outcome.PASS, fifo.read_text())

    spared: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, _signal: spared.append(pid))
    monkeypatch.setattr(os, "kill", lambda *_: None)
    (result,) = run_checks([check(hangs)], candidate, 0.1)
    assert result.outcome is Outcome.UNKNOWN
    assert "left behind" in result.evidence
    fifo.write_text("now")  # it goes on, finds nobody who listens, and ends
    os.waitpid(spared[0], 0)


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize("daemon", [False, True])
def test_what_a_check_has_started_ends_with_it(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch, hangs: bool, daemon: bool
) -> None:
    reader, writer = os.pipe()
    if hangs:  # its time is over once the other one is there
        there = select.poll()
        there.register(reader, select.POLLIN)
        monkeypatch.setattr(time, "monotonic", lambda: 2 * LONG_S if there.poll(0) else 0.0)

    def starts_another(_candidate: Candidate) -> Finding:
        start(writer, daemon=daemon)
        if hangs:
            signal.pause()
        return Finding(Outcome.PASS, "")

    timeout_s = 0.05 if hangs else LONG_S
    (result,) = run_checks([check(starts_another, timeout_s=timeout_s)], candidate, LONG_S)
    assert result.outcome is (Outcome.UNKNOWN if hangs else Outcome.PASS)
    os.close(writer)
    pids = os.read(reader, 100).split()
    os.close(reader)
    assert len(pids) == 1
    assert ends(int(pids[0]))


def test_what_a_thread_of_a_check_goes_on_starting_ends_with_it(candidate: Candidate) -> None:
    reader, writer = os.pipe()

    def goes_on(_candidate: Candidate) -> Finding:
        def starts() -> None:
            while True:
                subprocess.Popen(["sleep", "60"], pass_fds=(writer,), start_new_session=True)
                begun.set()

        begun = threading.Event()
        threading.Thread(target=starts, daemon=True).start()
        begun.wait()
        return Finding(Outcome.PASS, "")

    assert one(candidate, goes_on).outcome is Outcome.PASS
    os.close(writer)
    assert select.select([reader], [], [], LONG_S)[0], "some hold it open"
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_what_starts_others_faster_than_they_are_killed_holds_nobody(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(orphan, "_KILLING_S", 0.1)
    enough = tmp_path / "enough"

    def forks_on_and_on(_candidate: Candidate) -> Finding:
        end = time.monotonic() + LONG_S
        if os.fork() == 0:
            os.setsid()
            while time.monotonic() < end and not enough.exists():
                if os.fork():
                    os._exit(0)
            os._exit(0)
        signal.pause()
        return Finding(Outcome.PASS, "")

    (result,) = run_checks([check(forks_on_and_on, timeout_s=0.2)], candidate, LONG_S)
    enough.touch()
    assert (result.outcome, result.seconds < LONG_S / 2) == (Outcome.UNKNOWN, True)


def start(writer: int, *, daemon: bool) -> None:
    """Start a process, which says its number; a daemon leaves its group and its parent."""
    said, saying = os.pipe()
    if os.fork() == 0:
        if daemon:
            os.setsid()
            if os.fork() != 0:
                os._exit(0)
        os.write(writer, f"{os.getpid()} ".encode())
        os.write(saying, b".")
        signal.pause()
    os.read(said, 1)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM])
def test_what_a_check_has_started_ends_with_who_asked(
    candidate: Candidate, end: signal.Signals
) -> None:
    reader, writer = os.pipe()
    tells, told = os.pipe()

    def starts_another(_candidate: Candidate) -> Finding:
        start(writer, daemon=True)
        start(writer, daemon=False)
        os.write(told, b".")
        signal.pause()
        return Finding(Outcome.PASS, "")

    asker = os.fork()
    if asker == 0:
        run_checks([check(starts_another)], candidate, LONG_S)
        os._exit(0)
    os.read(tells, 1)
    pids = [int(pid) for pid in os.read(reader, 100).split()]
    for fd in (reader, writer, tells, told):
        os.close(fd)
    os.kill(asker, end)
    os.waitpid(asker, 0)
    assert len(pids) == 2
    assert all(ends(pid) for pid in pids)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"counts": {"links": 1.5}}, "whole numbers"),
        ({"counts": {"links": True}}, "whole numbers"),
        ({"counts": {"links": 10**400}}, "64 bits"),
        ({"unit": 7}, "unit is 7"),
        ({"value": "fast"}, "must be real number"),
        ({"facts": {"kernel": 6}}, "could not be run"),
        ({"evidence": None}, "could not be run"),
        ({"unit": b"bytes"}, "bytes is not JSON serializable"),
    ],
)
def test_an_answer_that_no_report_can_hold_spoils_only_itself(
    candidate: Candidate, said: dict[str, Any], why: str
) -> None:
    def answers(_candidate: Candidate) -> Finding:
        return Finding(**{"outcome": Outcome.FAIL_NODE, "evidence": "", **said})

    result = one(candidate, answers)
    assert (result.outcome, why in result.evidence) == (Outcome.UNKNOWN, True), result
    report = NodeReport(node="n1", results=(result,), identity=Identity(), started=0.0, seconds=0.0)
    assert NodeReport.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_a_check_that_says_far_too_much_is_stopped(candidate: Candidate) -> None:
    facts = {str(number): "x" * 10_000 for number in range(300)}
    result = one(candidate, lambda _: Finding(Outcome.PASS, "", facts=facts))
    assert (result.outcome, result.facts) == (Outcome.UNKNOWN, {})
    assert "it said more than 1048576 bytes" in result.evidence


def ends(pid: int) -> bool:
    """Whether a process that is not our child is, or comes to be, dead."""
    try:
        process = psutil.Process(pid)
        process.wait(timeout=LONG_S)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def test_of_a_check_that_cannot_be_killed_there_is_one_process(
    candidate: Candidate, fifo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a watch over a dead disk leaves one more with every look."""
    begun = fifo.with_name("begun")

    def hangs(_candidate: Candidate) -> Finding:
        with begun.open("a") as file:
            file.write("one ")
        fifo.read_text()
        return Finding(Outcome.PASS, "it answered")

    stuck = check(hangs, "stuck", timeout_s=2.0)
    monkeypatch.setattr(isolate, "_REAP_S", 0.05)
    with monkeypatch.context() as unkillable:
        unkillable.setattr(os, "killpg", lambda *_: None)
        unkillable.setattr(os, "kill", lambda *_: None)
        looks = [run_checks([stuck, check(_passes, "good")], candidate, LONG_S) for _ in range(2)]
    assert [[result.outcome for result in look] for look in looks] == [
        [Outcome.UNKNOWN, Outcome.PASS]
    ] * 2
    assert "cannot be killed" in looks[1][0].evidence
    assert begun.read_text().split() == ["one"]
    fifo.write_text("back")
    os.waitid(os.P_PID, isolate._left["stuck"], os.WEXITED | os.WNOWAIT)
    (result,) = run_checks([stuck], candidate, LONG_S)
    assert begun.read_text().split() == ["one", "one"]
    assert result.check == "stuck"


def _passes(_candidate: Candidate) -> Finding:
    return Finding(Outcome.PASS, "fine")


def test_what_a_check_says_cannot_steer_a_terminal(candidate: Candidate) -> None:
    wicked = "\x1b[2J\udcff\nroot# "
    (result,) = run_checks(
        [check(lambda _c: Finding(Outcome.WARN, wicked, facts={"kernel": wicked}))], candidate, 30.0
    )
    assert (result.evidence, result.facts) == ("?[2J? root# ", {"kernel": "?[2J? root# "})
