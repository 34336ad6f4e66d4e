"""Checks in processes of their own, all at once: one that hangs costs its answer and nothing else.

A process that waits for a dead filesystem cannot be killed. It is left behind with no hold on the
output of this program, and its check is ``UNKNOWN``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import selectors
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Never

from ..one_line import one_line
from .check import NO_ANSWER_UNIT, Candidate, Check, Finding
from .orphan import end_descendants, end_with, has_children
from .result import (
    MAX_EVIDENCE_CHARS,
    MAX_FACT_CHARS,
    CheckResult,
    Outcome,
    result_from_json,
)

MAX_SAID_BYTES = 1024**2
_BUSY = b"\0\n"  # ends an answer of a check whose threads go on, which waits for its own end
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
    said: bytearray = field(default_factory=bytearray)
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
                try:
                    children.append(_start(check, candidate, limit_s))
                except OSError as error:  # of processes or files there are enough
                    results[check.name] = _result(check, _not_run(error), 0.0)
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
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if pid == 0:
        _answer(check, candidate, writer, parent)
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


def _answer(check: Check, candidate: Candidate, pipe: int, parent: int) -> Never:
    """In the child: carry the check out, say what it found, and end without any other work."""
    me = os.getpid()
    try:
        _own_group(0)
        end_with(parent)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        said = _said(check, candidate)
        if os.getpid() != me:  # a copy that the check has made of itself answers nothing
            os._exit(0)
        busy = len([*Path("/proc/self/task").iterdir()]) > 1
        if not busy and has_children():
            end_descendants(me)
        with os.fdopen(pipe, "wb") as answer:
            answer.write(said.encode() + (_BUSY if busy else b"\n"))
        while busy:
            signal.pause()
    finally:
        os._exit(0)


def _said(check: Check, candidate: Candidate) -> str:
    """The finding as JSON. A check may be somebody else's, and give anything."""
    try:
        return json.dumps(dataclasses.asdict(_ask(check, candidate)))
    except (TypeError, ValueError, RecursionError) as error:
        return json.dumps(dataclasses.asdict(_not_run(error)))


def _ask(check: Check, candidate: Candidate) -> Finding:
    try:
        finding = check.run(candidate)
        if not isinstance(finding, Finding):
            raise TypeError(f"it gave {finding!r:.100} in the place of a Finding")
        return dataclasses.replace(
            finding,
            evidence=one_line(finding.evidence, MAX_EVIDENCE_CHARS),
            facts={name: one_line(fact, MAX_FACT_CHARS) for name, fact in finding.facts.items()},
        )
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # what calls itself the end is none
        return _not_run(error)


def _not_run(error: BaseException) -> Finding:
    text = f"could not be run: {type(error).__name__}: {error}"
    return Finding(Outcome.UNKNOWN, one_line(text, MAX_EVIDENCE_CHARS))


def _still_talks(child: _Child) -> bool:
    chunk = os.read(child.pipe, 65536)
    child.said += chunk
    # The line's end counts: what the check has started may hold the pipe open.
    return bool(chunk) and not chunk.endswith(b"\n") and len(child.said) <= MAX_SAID_BYTES


def _end(child: _Child, hangs: bool = False) -> CheckResult:
    """Take the answer; what the check has started ends with it, unless the check itself has died.

    Only a check that had all its time can be said to hang.
    """
    child.ended = True
    if not child.said.endswith(b"\n") or child.said.endswith(_BUSY):
        os.kill(child.pid, signal.SIGSTOP)  # so that it starts no more
        end_descendants(child.pid)
    with contextlib.suppress(ProcessLookupError):  # a check may have left its group
        os.killpg(child.pid, signal.SIGKILL)
    os.kill(child.pid, signal.SIGKILL)
    os.close(child.pipe)
    seconds = time.monotonic() - child.started
    ending = _reap(child)
    if child.said.endswith(b"\n"):
        return _parse(child.check, child.said, seconds)
    if len(child.said) > MAX_SAID_BYTES:
        ending = f"it said more than {MAX_SAID_BYTES} bytes"
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


def _parse(check: Check, said: bytearray, seconds: float) -> CheckResult:
    """The answer, which must be one that a report can hold; else the whole report is refused."""
    try:
        finding = json.loads(said.removesuffix(_BUSY))
        fault = finding["fault"] or check.fault
        whole = {**finding, "check": check.name, "seconds": seconds, "fault": fault}
        return result_from_json(whole)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        text = one_line(f"no answer that can be used: {error}", MAX_EVIDENCE_CHARS)
        return _result(check, Finding(Outcome.UNKNOWN, text), seconds)


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
