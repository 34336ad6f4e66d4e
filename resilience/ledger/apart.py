"""The ledger through a process that can be ended: a dead filesystem costs its answer, no more.

``python -P -m relight.resilience.ledger.apart ACTION ROOT KIND`` is that process. It says what lies
in the ledger's files, each after a line with its length, or keeps the record that it is sent.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relight.errors import RelightError, UsageError

from .record import Evidence, Record, RecordDamaged, Release, from_bytes, to_bytes
from .store import Ledger, LedgerUnwritable

LIMIT_S: Final = 10.0  # far more than it takes to start a program and read a large ledger
AGAIN_S: Final = 60.0  # so long a silent ledger is not asked again
_REAP_S: Final = 0.5
_READ: Final = "read"
_KEEP: Final = "keep"
# A requeue, which a node is left for, ends all processes of the job: it is recorded all the same.
_NOT_FOR_US: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_BEGIN: Final = b"\0relight ledger\n"
_one_writer: Final = threading.Lock()  # a record is read, changed and written: by one thread
_silent: Final[dict[Path, float]] = {}  # when a ledger gave no answer, by the monotonic clock


class LedgerSilent(RelightError):
    """The ledger cannot be read, or its filesystem does not answer."""


@dataclass(frozen=True, slots=True)
class LedgerApart:
    """A ledger of which every question ends, after ``LIMIT_S`` at the latest.

    All methods may raise LedgerSilent.
    """

    ledger: Ledger

    def add(self, evidence: Evidence) -> None:
        """As :meth:`Ledger.add`."""
        self._keep(evidence)

    def release(self, release: Release) -> None:
        """As :meth:`Ledger.release`."""
        self._keep(release)

    def records(self) -> list[Record]:
        """As :meth:`Ledger.records`."""
        return [record for record in self.files() if record is not None]

    def files(self) -> list[Record | None]:
        """The record in each file; None where it is no sound one of its owner."""
        code, said, errors = self._ask(_READ)
        if code != 0:
            raise LedgerSilent(f"the ledger {self.ledger.root} cannot be read: {errors}")
        # What Python's start has printed stands before it.
        _, begun, told = said.partition(_BEGIN)
        if not begun:
            raise LedgerSilent(f"the ledger {self.ledger.root} cannot be read: no answer is there")
        stream = io.BytesIO(told)
        found: list[Record | None] = []
        while length := stream.readline().strip():
            try:
                found.append(from_bytes(stream.read(int(length))))
            except RecordDamaged:
                found.append(None)
        return found

    def _keep(self, record: Record) -> None:
        with _one_writer:
            code, _, errors = self._ask(_KEEP, to_bytes(record))
        if code != 0:
            raise LedgerUnwritable(errors)

    def _ask(self, action: str, data: bytes = b"") -> tuple[int, bytes, str]:
        """The exit code of the process, and what it has said."""
        root = self.ledger.root
        if time.monotonic() - _silent.get(root, -AGAIN_S) < AGAIN_S:
            raise LedgerSilent(f"the ledger {root} gave no answer a moment ago")
        kind = "shared" if self.ledger.shared else "private"
        process = _start(action, str(root), kind)
        try:
            said, errors = process.communicate(data, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            _silent[root] = time.monotonic()
            raise LedgerSilent(f"the ledger {root} gives no answer in {LIMIT_S:g} s") from None
        finally:
            _end(process)
        lines = errors.decode(errors="replace").splitlines()
        return process.returncode, said, lines[-1] if lines else f"exit {process.returncode}"


def default_ledger() -> LedgerApart:
    """The ledger that ``RELIGHT_LEDGER`` names, which users share, or the user's own.

    Raises:
        UsageError: the path is relative, which every program of a run would take for another one.
    """
    named = os.environ.get("RELIGHT_LEDGER")
    if named:
        root = _from_home(named)
        if not root.is_absolute():
            raise UsageError(f"RELIGHT_LEDGER is {named}: it must be an absolute path")
        return LedgerApart(Ledger(root, shared=True))
    home = os.environ.get("RELIGHT_HOME")
    return LedgerApart(
        Ledger((Path(home) if home else Path.home() / ".relight").absolute() / "ledger")
    )


def _from_home(named: str) -> Path:
    with contextlib.suppress(RuntimeError):  # of a user that nobody knows
        return Path(named).expanduser()
    return Path(named)


def main(arguments: Sequence[str]) -> str | None:
    """Give an answer; the reason when there is none."""
    action, root, kind = arguments
    ledger = Ledger(Path(root), shared=kind == "shared")
    try:
        if action == _READ:
            sys.stdout.flush()  # what start-up code has printed would else follow the answer
            sys.stdout.buffer.write(_BEGIN)
            for data in ledger.contents():
                sys.stdout.buffer.write(b"%d\n" % len(data) + data)
            sys.stdout.buffer.write(b"\n")  # what is printed at the end stands behind it
        else:
            _keep(ledger, from_bytes(sys.stdin.buffer.read()))
    except RelightError as error:
        return str(error)
    return None


def _keep(ledger: Ledger, record: Record) -> None:
    if isinstance(record, Release):
        ledger.release(record)
    else:
        ledger.add(record)


def _start(*arguments: str) -> subprocess.Popen[bytes]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_US)  # the child inherits it
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", __spec__.name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ended or left behind: who waits for a dead filesystem may not even be killed."""
    if process.poll() is None:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_REAP_S)
    for pipe in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
