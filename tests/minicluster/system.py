"""Calling commands, and starting and ending processes that outlive this command."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


class ClusterError(Exception):
    """Something that the person who called should read; `code` is the exit status."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Process:
    """A process that was started here: its start time tells it from a later one of that id."""

    pid: int
    start: int

    def alive(self) -> bool:
        return start_time(self.pid) == self.start

    def end(self, signals: Sequence[signal.Signals], patience: float = 10) -> None:
        """Send each signal in turn until the process is gone."""
        for number in signals:
            if not self.alive():
                return
            os.kill(self.pid, number)
            if wait_until(lambda: not self.alive(), patience):
                return
        if self.alive():
            raise ClusterError(f"process {self.pid} does not end")


def call(argv: Sequence[str], timeout: float = 60, env: Mapping[str, str] | None = None) -> str:
    """Run a command, give its output; its failure is a ClusterError with its words."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=timeout, env=env, check=False
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{argv[0]} took more than {timeout:.0f} s") from None
    if done.returncode:
        words = (done.stderr or done.stdout).strip()
        raise ClusterError(f"{' '.join(argv)}: exit {done.returncode}: {words}")
    return done.stdout


def spawn(argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> Process:
    """Start a process in its own session, its output in a log file."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=env,
            cwd="/",
            start_new_session=True,
        )
    start = start_time(child.pid)
    if start is None:
        raise ClusterError(f"{argv[0]} ended at once{tail(log)}")
    return Process(child.pid, start)


def wait_until(happened: Callable[[], bool], patience: float) -> bool:
    """Poll until something happened; False when it did not in time."""
    deadline = time.monotonic() + patience
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def wait_ready(
    what: str, ready: Callable[[], bool], process: Process, log: Path, patience: float = 90
) -> None:
    """Wait for a daemon to serve; if it dies or is late, fail with the end of its log."""
    wait_until(lambda: ready() or not process.alive(), patience)
    if not ready():
        state = "is not ready in time" if process.alive() else "ended"
        raise ClusterError(f"{what} {state}{tail(log)}")


def accepts(address: str | tuple[str, int]) -> bool:
    """Whether somebody listens on a Unix socket (a path) or a TCP port."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as probe:
        probe.settimeout(1)
        return probe.connect_ex(address) == 0


def tail(log: Path, lines: int = 8) -> str:
    """The end of a log as the end of a message; empty if there is none."""
    if not log.exists():
        return ""
    last = log.read_text(errors="replace").splitlines()[-lines:]
    return "".join(f"\n  {line}" for line in last)


def processes_of(uid: int) -> list[Process]:
    """All processes of one user."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            owner = folder.stat().st_uid
        except FileNotFoundError:
            continue
        start = start_time(int(folder.name))
        if owner == uid and start is not None:
            found.append(Process(int(folder.name), start))
    return found


def start_time(pid: int) -> int | None:
    """When a process started, in ticks since boot; None for one that is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])
