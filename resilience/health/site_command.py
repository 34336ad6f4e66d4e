"""The site's own check (NHC and the like): its exit code counts, its last lines are evidence."""

from __future__ import annotations

import subprocess
import threading
from collections import deque
from contextlib import suppress
from typing import IO

from .check import Candidate, Check, Finding
from .result import Outcome

KEPT_LINES = 5
MAX_LINE_CHARS = 200
LIMIT_S = 600.0
OF_LIMIT = 0.8  # before its time is over, so that it is told what was printed
_LAST_WORDS_S = 0.5

_NOT_EXECUTABLE = 126  # what a shell exits with when it cannot start a command
_NOT_FOUND = 127
_BY_SIGNAL = range(129, 193)  # and when the command was ended by a signal


def check_site_command(candidate: Candidate) -> Finding:
    """Run the command by a shell, as the user of the job.

    Raises:
        OSError: no shell could be started.
    """
    command = candidate.config.health.site_command
    if command is None:
        return Finding(Outcome.PASS, "no command is set")
    budget_s = candidate.config.health.budget_s
    limit_s = min(LIMIT_S, budget_s) * OF_LIMIT
    code, lines = _run(command, limit_s)
    name = _name(command)
    said = " | ".join(lines) or "it printed nothing"
    if code is None:
        more = f", for health.budget is {budget_s:g} s" if budget_s < LIMIT_S else ""
        return Finding(Outcome.UNKNOWN, f"{name} had not ended after {limit_s:g} s{more}: {said}")
    if code == 0:
        return Finding(Outcome.PASS, f"{name}: {said}", 0.0, "exit code")
    if code in (_NOT_EXECUTABLE, _NOT_FOUND):
        how = f"exited with {code}, as when it cannot be started"
        return Finding(Outcome.UNKNOWN, f"{name} {how}: {said}")
    if code < 0 or code in _BY_SIGNAL:
        number = -code if code < 0 else code - 128
        return Finding(Outcome.UNKNOWN, f"{name} was ended by signal {number}: {said}")
    return Finding(
        Outcome.FAIL_NODE, f"{name} exited with {code}: {said}", float(code), "exit code"
    )


def _name(command: str) -> str:
    """Its program: arguments and variables may be secrets, and evidence is read by others."""
    return next((word for word in command.split() if "=" not in word), "the command")


def _run(command: str, limit_s: float) -> tuple[int | None, list[str]]:
    """The exit code, None for one that did not end in time, and the last lines that were printed.

    The end of the command counts, not the end of its output: something that it left in the
    background may hold that open for ever.
    """
    lines: deque[str] = deque(maxlen=KEPT_LINES)
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    assert process.stdout is not None
    reader = threading.Thread(target=_keep_last, args=(process.stdout, lines), daemon=True)
    reader.start()
    code: int | None = None
    with suppress(subprocess.TimeoutExpired):  # whoever isolates this check ends it all
        code = process.wait(limit_s)
    reader.join(_LAST_WORDS_S if code is not None else 0)
    return code, list(lines)


def _keep_last(stream: IO[str], lines: deque[str]) -> None:
    with stream:
        while line := stream.readline(MAX_LINE_CHARS):
            if line.strip():
                lines.append(line.strip())


CHECK = Check(
    name="site_command",
    reads="the exit code of health.site_command",
    threshold="0; 126, 127 and an end by a signal count as not carried out",
    worst=Outcome.FAIL_NODE,
    typical_s=5.0,
    timeout_s=LIMIT_S,
    run=check_site_command,
)
