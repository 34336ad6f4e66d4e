"""Checks in processes of their own, all at once: one that hangs costs its answer and nothing else.

A process that waits for a dead filesystem cannot be killed. It is left behind with no hold on the
output of this program, and its check is ``UNKNOWN``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import selectors
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Never

from ..ledger.faults import Fault
from ..one_line import one_line
from .check import NO_ANSWER_UNIT, Candidate, Check, Finding
from .result import CheckResult, Outcome

MAX_EVIDENCE_CHARS = 1000
MAX_FACT_CHARS = 10_000
_REAP_S = 0.5
_REAP_POLL_S = 0.005
_left: dict[str, int] = {}  # by check, the child of this process that could not be killed


@dataclass(slots=True)
class _Child:
    """A check at work; ``said`` grows as its pipe is read, until it is silent or late."""

    check: Check
    pid: int
    pipe: int
    started: float
    deadline: float
    cut_short: bool  # by the budget of all checks, before its own time was over
    said: bytes = b""
    ended: bool = False


def run_checks(
    checks: Sequence[Check], candidate: Candidate, limit_s: float
) -> tuple[CheckResult, ...]:
    """Run all checks, none longer than its own limit or ``limit_s``; answers in their order.

    One of which a child of an earlier time cannot be killed is as silent as then, and not run.
    """
    stuck = {check.name: pid for check in checks if (pid := _left_behind(check)) is not None}
    results = {
        check.name: _stuck(check, stuck[check.name]) for check in checks if check.name in stuck
    }
    children: list[_Child] = []
    try:
        for check in checks:
            if check.name not in stuck:
                children.append(_start(check, candidate, limit_s))
        results |= _answers(children)
    finally:
        for child in children:
            if not child.ended:
                _end(child)
    return tuple(results[check.name] for check in checks)


def _left_behind(check: Check) -> int | None:
    pid = _left.get(check.name)
    if pid is None:
        return None
    try:
        gone = os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        gone = True  # somebody else has waited for it
    if gone:
        del _left[check.name]
        return None
    return pid


def _stuck(check: Check, pid: int) -> CheckResult:
    evidence = f"process {pid}, which was to look at it earlier, cannot be killed"
    return _result(check, Finding(check.silence, evidence, unit=NO_ANSWER_UNIT), 0.0)


def _answers(children: Sequence[_Child]) -> dict[str, CheckResult]:
    results: dict[str, CheckResult] = {}
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.pipe, selectors.EVENT_READ, child)
        while waiting := [child for child in children if not child.ended]:
            patience_s = min(child.deadline for child in waiting) - time.monotonic()
            ready = {key.fd for key, _ in selector.select(max(patience_s, 0.0))}
            now = time.monotonic()
            for child in waiting:
                silent = child.pipe in ready and not _still_talks(child)
                if silent or child.deadline <= now:
                    selector.unregister(child.pipe)
                    results[child.check.name] = _end(child, hangs=not silent)
    return results


def _start(check: Check, candidate: Candidate, limit_s: float) -> _Child:
    started = time.monotonic()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _answer(check, candidate, writer)
    os.close(writer)
    _own_group(pid)
    deadline = started + min(check.timeout_s, limit_s)
    return _Child(check, pid, reader, started, deadline, cut_short=limit_s < check.timeout_s)


def _own_group(pid: int) -> None:
    # Both sides ask for it, so that it is so before either goes on.
    try:
        os.setpgid(pid, pid)
    except (PermissionError, ProcessLookupError):
        return  # it has done so itself, and may have ended


def _answer(check: Check, candidate: Candidate, pipe: int) -> Never:
    """In the child: carry the check out, say what it found, and end without any other work."""
    try:
        _own_group(0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        finding = json.dumps(dataclasses.asdict(_ask(check, candidate)))
        os.write(pipe, finding.encode() + b"\n")
    finally:
        os._exit(0)


def _ask(check: Check, candidate: Candidate) -> Finding:
    try:
        finding = check.run(candidate)
    except Exception as error:
        finding = Finding(Outcome.UNKNOWN, f"could not be run: {type(error).__name__}: {error}")
    return dataclasses.replace(
        finding,
        evidence=one_line(finding.evidence, MAX_EVIDENCE_CHARS),
        facts={name: one_line(fact, MAX_FACT_CHARS) for name, fact in finding.facts.items()},
    )


def _still_talks(child: _Child) -> bool:
    chunk = os.read(child.pipe, 65536)
    child.said += chunk
    # The line's end counts: what the check has started may hold the pipe open.
    return bool(chunk) and not chunk.endswith(b"\n")


def _end(child: _Child, hangs: bool = False) -> CheckResult:
    """Take the answer; whatever the check has started ends with it.

    Only a check that had all its time can be said to hang.
    """
    child.ended = True
    os.killpg(child.pid, signal.SIGKILL)
    os.close(child.pipe)
    seconds = time.monotonic() - child.started
    ending = _reap(child)
    try:
        finding = _parse(child.said)
    except (ValueError, TypeError, KeyError):
        its_own_time = hangs and not child.cut_short
        outcome = child.check.silence if its_own_time else Outcome.UNKNOWN
        unit = NO_ANSWER_UNIT if its_own_time else None
        finding = Finding(outcome, f"no answer in {seconds:.1f} s: {ending}", unit=unit)
    return _result(child.check, finding, seconds)


def _result(check: Check, finding: Finding, seconds: float) -> CheckResult:
    return CheckResult(
        check=check.name,
        outcome=finding.outcome,
        evidence=finding.evidence,
        value=finding.value,
        unit=finding.unit,
        seconds=seconds,
        fault=finding.fault or check.fault,
        facts=finding.facts,
        counts=finding.counts,
    )


def _parse(said: bytes) -> Finding:
    values = json.loads(said)
    outcome, fault = Outcome(values["outcome"]), values["fault"]
    return Finding(
        outcome,
        values["evidence"],
        values["value"],
        values["unit"],
        None if fault is None else Fault(fault),
        values["facts"],
        values["counts"],
    )


def _reap(child: _Child) -> str:
    """How the process ended; one that cannot be killed is left behind."""
    give_up = time.monotonic() + _REAP_S
    while time.monotonic() < give_up:
        done, status = os.waitpid(child.pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return f"ended by signal {-code}" if code < 0 else f"exited with {code}"
        time.sleep(_REAP_POLL_S)
    _left[child.check.name] = child.pid
    return "it cannot be killed and was left behind"
