"""The program's side of its writer process (see `writer`)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from .errors import SaveFailed
from .progress import Advance, Progress, ignored, unseen
from .receipt import Receipt
from .snapshot import Snapshot

# A terminal sends SIGINT to all of a process group, Slurm under linuxproc TERM and USR1 to all
# descendants: they are meant for the program, which waits for the writer before it ends.
_FOR_THE_PROGRAM: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Writer:
    """A running writer. It dies with the thread that starts it. Raises OSError."""

    def __init__(self, staging_fd: int) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = _start(staging_fd, theirs.fileno())
            except OSError:
                self._channel.close()
                raise
        self._lines = self._channel.makefile("rwb")
        self._owner = os.getpid()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def write(self, snapshot: Snapshot, directory: Path, shown: Progress = unseen) -> Receipt:
        """Makes the shard of a snapshot durable in a directory. Raises SaveFailed."""
        try:
            order = [str(directory), snapshot.at, snapshot.size_bytes]
            self._lines.write(json.dumps(order).encode() + b"\n")
            self._lines.flush()
            answer = self._answer(shown)
        except OSError:
            answer = None
        if answer is None:
            lost = OSError(f"its writer process ended with {self._process.wait()}")
            raise SaveFailed(str(directory), lost)
        if "receipt" in answer:
            return Receipt.from_json(answer["receipt"])
        code, reason, file = answer["errno"], answer["reason"], answer["file"]
        raise SaveFailed(answer["path"], OSError(code, reason, file) if code else OSError(reason))

    def _answer(self, shown: Progress) -> dict[str, Any] | None:
        """What comes in the end; None where the writer is gone. Raises OSError."""
        advance: Advance = ignored
        with contextlib.ExitStack() as showing:
            while line := self._lines.readline():
                word: dict[str, Any] = json.loads(line)
                if "total" in word:
                    advance = showing.enter_context(shown(word["total"]))
                elif "wrote" in word:
                    advance(word["wrote"])
                else:
                    return word
        return None

    def end(self) -> None:
        """It must have nothing to do. In a forked child this does nothing: it is the parent's."""
        if os.getpid() != self._owner:
            return
        with contextlib.suppress(OSError):  # the writer has gone already
            self._channel.shutdown(socket.SHUT_RDWR)
        self._lines.close()
        self._channel.close()
        self._process.wait()


def _start(staging_fd: int, channel_fd: int) -> subprocess.Popen[bytes]:
    arguments = map(str, (staging_fd, channel_fd, os.getpid()))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_PROGRAM)  # the child inherits it
    try:
        return subprocess.Popen(
            # Without the current folder in the path: it may hold a numpy.py.
            [sys.executable, "-P", "-m", "relight.storage.writer", *arguments],
            pass_fds=(staging_fd, channel_fd),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
