"""One life of the user's program under its agent: started, watched, ended without remains."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, TypedDict

from .memory import oom_kills
from .rank_log import RankLog
from .secret_files import read_secrets
from .shared_memory import remove_leftovers
from .standby import Standby, is_python

_TAIL_BYTES: Final = 8192
TAIL_LINES: Final = 20
_FULL_BYTES: Final = 64 * 1024  # some keep a block or two that nobody gets
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGUSR1)
_STDERR: Final = Path("/proc/self/fd/2")
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Grandchildren whose parent ends become ours, so that they can be ended too (prctl(2))."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _die_with_agent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def before_python() -> None:
    """What a child of the agent does before it becomes a Python program."""
    # Under proctrack/linuxproc Slurm sends signals to every descendant, maybe before the program
    # has a handler: TERM and USR1 stay ignored until `relight.join` takes them over. Only Python
    # programs join by themselves, and a shell cannot trap what is ignored at its start.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    _die_with_agent()


class Start(TypedDict):
    """What a program is started with; ``log`` is where it writes."""

    generation: int
    argv: Sequence[str]
    env: Mapping[str, str]
    secret_files: Mapping[str, str]
    cwd: str
    log: Path | None


class Program:
    """A running program. A program that cannot be started has ended with code 127.

    When the shell around a program that has joined dies of a signal, which came for all of them,
    the program itself goes on, and its end is the end: it saves what the shell knows nothing of.

    Without a ``log`` it is a batch script: it reads and writes where this process does, and has the
    signal dispositions that Slurm gave to the batch script.
    """

    def __init__(
        self,
        *,
        generation: int,
        argv: Sequence[str],
        env: Mapping[str, str],
        secret_files: Mapping[str, str],
        cwd: str,
        log: Path | None,
        standby: Standby | None = None,
        beside: Collection[int] = (),
    ) -> None:
        """``beside`` are children of ours that it has nothing to do with, whoever they are then."""
        adopt_orphans()
        self.generation = generation
        self.log = log
        self._ended_by_us = False
        self._given_up = False
        self._begun = time.time()
        self._spared: int | None = None
        self._beside = beside
        self.joined: list[int] = []  # processes of it that have called `relight.join`
        self._heir: int | None = None
        self.env = env  # without the secrets
        self._oom_kills = oom_kills()
        self.output = None if log is None else RankLog(log)
        self._unwritten: list[str] = []  # what belongs into an output that is away
        self._process: subprocess.Popen[bytes] | None = None
        try:
            whole_env = {**env, **read_secrets(secret_files)}
            self._process = _started(standby, argv, whole_env, cwd, to_pipe=log is not None)
        except (OSError, ValueError) as error:
            self._complain(f"relight: cannot start {argv[0]}: {error}\n")
        if self.output is not None and self._process is not None:
            assert self._process.stdout is not None
            self.output.follow(self._process.stdout)

    def spare(self, pid: int) -> None:
        """This child of ours is not the program's: it stays when remains are swept."""
        self._spared = pid

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def poll(self) -> dict[str, object] | None:
        """How the program ended: code, signal, stopped, tail, max_rss_bytes; None while it runs."""
        if self._process is None:
            return self._end(127 << 8, 0)
        awaited = self._heir or self._process.pid
        pid, status, usage = os.wait4(awaited, os.WNOHANG)
        if pid == 0:
            _reap_orphans({awaited, self._spared, *self._beside})
            return None
        if self._heir is None and _told_to_stop(os.waitstatus_to_exitcode(status)):
            self._heir = next((child for child in _children() if child in self.joined), None)
            if self._heir is not None:
                return None
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._sweep()
        return self._end(status, usage.ru_maxrss * 1024)

    def end(self, number: signal.Signals) -> None:
        """Send a signal to the program and all that it started."""
        self._ended_by_us = True
        self._signal_all(number)

    def give_up(self) -> None:
        """Bring the end of a program about that has failed and stays; it counts as its own."""
        self._given_up = True
        self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            if self._heir is not None:  # it may have left the group
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._heir, number)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program alone, as somebody else would."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._heir or self._process.pid, number)

    def wait(self) -> None:
        """Wait for the end of a program that was killed."""
        if self._process is not None and self._process.returncode is None:
            self._process.wait()
            self._sweep()

    def _sweep(self) -> None:
        """Nothing that the program started outlives it, also what left its process group."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        while children := self.left():
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child, 0)
        if self.output is not None:
            self.output.finish()
        remove_leftovers(self._begun)

    def left(self) -> list[int]:
        """What it has left behind, once it has ended."""
        reaped = self._process is None or self._process.returncode is not None
        ours = {self._spared, *self._beside, None if reaped else self.pid}
        return [child for child in _children() if child not in ours]

    def _end(self, status: int, max_rss_bytes: int) -> dict[str, object]:
        code = 1 if self._given_up else os.waitstatus_to_exitcode(status)
        if code != 0 and oom_kills() > self._oom_kills:
            self._note_lack_of_memory(max_rss_bytes)
        return {
            "code": code if code >= 0 else None,
            "signal": signal.Signals(-code).name if code < 0 else None,
            "stopped": self._ended_by_us,
            "tail": [*self._tail(), *self._unwritten],
            "max_rss_bytes": max_rss_bytes,
        }

    def _tail(self) -> list[str]:
        return (
            tail(_STDERR) if self.log is None else [*self.lines()[-TAIL_LINES:], *_away(self.log)]
        )

    def lines(self) -> list[str]:
        """The last that it wrote into its log, more than the tail."""
        return self.output.lines() if self.output is not None else []

    def _complain(self, line: str) -> None:
        """In its log, where people and the table of causes look for it."""
        if self.output is not None:
            self.output.say(line)
            return
        try:
            with _STDERR.open("a") as output:
                output.write(line)
        except OSError as error:
            self._unwritten += [line.strip(), _words(error)]

    def _note_lack_of_memory(self, max_rss_bytes: int) -> None:
        """The kernel's reason."""
        self._complain(
            "\nrelight: oom_kill: the kernel ended a process of this rank for lack of memory; "
            f"the program itself held at most {max_rss_bytes / 1024**3:.1f} GiB\n"
        )


def _told_to_stop(code: int) -> bool:
    """Whether a stop signal ended it; who catches one may say so in a shell's way, by 128 + n."""
    return code in {end for number in _STOP_SIGNALS for end in (-number, 128 + number)}


def _started(
    standby: Standby | None,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    *,
    to_pipe: bool,
) -> subprocess.Popen[bytes]:
    if not to_pipe:
        return subprocess.Popen(
            argv, env=dict(env), cwd=cwd, process_group=0, preexec_fn=_die_with_agent
        )
    return _warm(standby, argv, env, cwd) or _cold(argv, env, cwd)


def _warm(
    standby: Standby | None, argv: Sequence[str], env: Mapping[str, str], cwd: str
) -> subprocess.Popen[bytes] | None:
    if standby is None:
        return None
    process = standby.become(argv, env, cwd)
    if process is None:
        standby.end()
    return process


def _cold(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        bufsize=0,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
        preexec_fn=before_python if _is_written_in_python(argv) else _die_with_agent,
    )


def _is_written_in_python(argv: Sequence[str]) -> bool:
    return is_python(argv) or Path(argv[0]).name == "torchrun"


def _children() -> list[int]:
    listing = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in listing.split()]


def _reap_orphans(ours: Collection[int | None]) -> None:
    """Adopted children that have ended by themselves leave no zombies."""
    for child in _children():
        if child not in ours:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)


def tail(log: Path) -> list[str]:
    """The last lines of a file; none when it is no file."""
    try:
        if not log.is_file():
            return []
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
    except OSError as error:  # how the program ended is told all the same
        return [_words(error)]


def full_disk(log: Path) -> list[str]:
    """A line where none can be written: what a program had to say of its end is not there."""
    try:
        found = os.statvfs(log.parent)
    except OSError:
        return []
    is_full = found.f_bavail * found.f_frsize < _FULL_BYTES
    return [f"relight: {os.strerror(errno.ENOSPC)} for {log}"] if is_full else []


def _away(log: Path) -> list[str]:
    """A line where a log cannot be looked at; one that is not there yet is no outage."""
    try:
        log.stat()
    except FileNotFoundError:
        return []
    except OSError as error:
        return [_words(error)]
    return []


def _words(error: OSError) -> str:
    """The words that a rule of the table of causes knows."""
    return f"relight: the run folder is away: {error}"
