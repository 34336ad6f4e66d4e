"""What a program prints, on its way into its log: no full disk ends the one that prints.

The program writes to a pipe and a thread of its agent to the file. What the file system refuses is
dropped and counted; the log says how much once it takes something again.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import select
import termios
import threading
import time
from pathlib import Path
from typing import IO, Final

_TAIL_BYTES: Final = 8192
_CHUNK_BYTES: Final = 64 * 1024
_PAUSE_S: Final = 1.0  # before a file system that has refused is asked again
_ON_ITS_WAY_S: Final = 1.0  # for a file system that is slow: the agent must not miss its beats
_TRIES: Final = 900
_TURN_S: Final = 0.002


class RankLog:
    """The log of one program.

    Attributes:
        taken_bytes: what the program has written by now, wherever that has gone.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._reading = threading.Lock()  # short
        self._writing = threading.Lock()  # as long as the file system takes
        self._pipe: IO[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._written = threading.Event()  # all of it that the file system took
        self._tail = b""
        self._lost_bytes = 0
        self._why = ""
        self._again_at = 0.0
        self.taken_bytes = 0

    def follow(self, pipe: IO[bytes]) -> None:
        """Take what comes out of a pipe, to its end."""
        self._pipe = pipe
        self._thread = threading.Thread(target=self._take_all, args=(pipe,), daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        """A line of ours; on a file system that does not answer it is only in :meth:`lines`."""
        content = line.encode()
        self._note(content)
        if self._writing.acquire(timeout=_TURN_S):
            try:
                self._write(content)
                self._close()  # its thread may have ended, or was never there
            finally:
                self._writing.release()

    def lines(self) -> list[str]:
        """The last that was written, in the log or not."""
        give_up_at = time.monotonic() + _ON_ITS_WAY_S
        while not self._is_read() and time.monotonic() < give_up_at:
            time.sleep(_TURN_S)
        return self._tail.decode(errors="replace").splitlines()

    def finish(self) -> None:
        """Wait until the log has what was written: nobody writes any more."""
        if self._thread is not None:
            self._written.wait(_ON_ITS_WAY_S)

    def _is_read(self) -> bool:
        """Whether nothing is left in the pipe (FIONREAD of ioctl_tty(2))."""
        if self._pipe is None or self._thread is None or not self._thread.is_alive():
            return True
        waiting = array.array("i", [0])
        with self._reading:
            if self._pipe.closed:
                return True
            fcntl.ioctl(self._pipe.fileno(), termios.FIONREAD, waiting)
        return waiting[0] == 0

    def _note(self, content: bytes) -> None:
        self._tail = (self._tail + content)[-_TAIL_BYTES:]
        self.taken_bytes += len(content)

    def _take_all(self, pipe: IO[bytes]) -> None:
        content = b""  # makes the file
        poll = select.poll()
        poll.register(pipe.fileno(), select.POLLIN)
        while True:
            with self._writing:
                self._write(content)
            poll.poll()
            with self._reading:
                content = os.read(pipe.fileno(), _CHUNK_BYTES)
                self._note(content)
                if not content:
                    pipe.close()
                    break
        for _ in range(_TRIES):  # to say what is missing
            with self._writing:
                self._again_at = 0.0
                self._write(b"")
                self._close()
            self._written.set()
            if not self._lost_bytes:
                return
            time.sleep(_PAUSE_S)

    def _write(self, content: bytes) -> None:
        if time.monotonic() < self._again_at:
            self._lost_bytes += len(content)
            return
        try:
            if self._fd is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
            if self._lost_bytes:
                _write_whole(self._fd, self._notice())
                self._lost_bytes = 0
            while content:
                content = content[_write_some(self._fd, content) :]
        except OSError as error:
            self._lost_bytes += len(content)
            self._why = str(error.strerror)
            self._again_at = time.monotonic() + _PAUSE_S
            self._close()  # that of a file system that comes back may be stale

    def _notice(self) -> bytes:
        return (
            f"\nrelight: {self._lost_bytes} bytes of output are missing here, the run folder did "
            f"not take them: {self._why}\n"
        ).encode()

    def _close(self) -> None:
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
        self._fd = None


def _write_whole(fd: int, content: bytes) -> None:
    while content:
        content = content[_write_some(fd, content) :]


def _write_some(fd: int, content: bytes) -> int:
    taken = os.write(fd, content)
    if not taken:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return taken
