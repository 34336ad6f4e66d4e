"""Blocks that several ranks of a node want are read by one of them, and copied by the others.

What a rank copies from another is one more place to read a block from: it is compared with its
digest in this rank's own memory, as what comes from a disk is. So nothing that others do, or fail
to do, can put a wrong value there, and nobody has to wait for long: a rank that does not get on
leaves, and reads what it still lacks by itself.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from .blocks import BLOCK_BYTES, ahead
from .chunks import Stored
from .errors import CodecMissing
from .input import Input
from .node_reads_host import GATHER_S, Host, is_ours, unpack_task
from .node_reads_plan import Task
from .way import WORTH_A_TRIAL_BYTES, Way

WORTH_SHARING_BYTES: Final = WORTH_A_TRIAL_BYTES
PATIENCE_S: Final = 20.0
_MOST_OPEN: Final = 256  # a process may often have 1024 files open
_WANTS_PER_PACKET: Final = 2000
_PAUSE_S: Final = 0.05
_THREADS: Final = 8
_MEMORY: Final = Way(direct=False, threads=_THREADS)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The ranks of a node that restore the same checkpoint now, this one among them.

    Attributes:
        name: under which they meet; no other restore has the same.
        ranks: how many they are.
    """

    name: str
    ranks: int


class BlockPlace(NamedTuple):
    """Where a block lies, and where it is to go; `way` is that of its file."""

    file: Path
    at: Stored
    data: memoryview
    way: Way


Wanted = Mapping[bytes, Sequence[BlockPlace]]  # by digest


def fill(
    neighbours: Neighbours, wanted: Wanted, advance: Callable[[int], None]
) -> frozenset[bytes]:
    """Fills what other ranks of the node want too, and gives the digests of what is filled.

    Tells of the bytes of each block, from any thread. The rest, also what could not be read, is the
    caller's. All ranks of the node have to call it.
    """
    size_bytes = sum(len(places[0].data) for places in wanted.values())
    offered = wanted if size_bytes >= WORTH_SHARING_BYTES else {}
    try:
        line = _meet(neighbours)
        if line is None:
            return frozenset()
        with line:
            return _Share(line, offered, advance).taken()
    except OSError:  # no file can be opened, or the host is gone or silent before the first task
        return frozenset()


def _meet(neighbours: Neighbours) -> socket.socket | None:
    """A connection to the host of this node, which is in this process when no other has one.

    Raises OSError where a process may open no more files.
    """
    name = sha256(neighbours.name.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    address = f"\0relight-reads-{name}"
    give_up_at_s = time.monotonic() + GATHER_S
    while time.monotonic() < give_up_at_s:
        _host(address, neighbours.ranks)
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.settimeout(GATHER_S)
        try:
            line.connect(address)
        except OSError:  # it is about to listen, or has just ended
            line.close()
            time.sleep(_PAUSE_S)
            continue
        if is_ours(line):
            return line
        line.close()
        break
    return None


def _host(address: str, ranks: int) -> None:
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        door.bind(address)
        door.listen(ranks)
        Host(door, ranks).start()
    except (OSError, RuntimeError):  # another rank was faster, or no thread can be started
        door.close()


class _Share:
    """One rank's share in the work, over a connection to the host."""

    def __init__(self, line: socket.socket, wanted: Wanted, advance: Callable[[int], None]) -> None:
        self._line = line
        self._wanted = wanted
        self._advance = advance
        self._files = _Files()
        self._filled: set[bytes] = set()

    def taken(self) -> frozenset[bytes]:
        """Does tasks until none is left. Raises OSError before the first one."""
        self._line.settimeout(PATIENCE_S)
        digests = list(self._wanted)
        for start in range(0, len(digests), _WANTS_PER_PACKET):
            self._line.send(b"want" + b"".join(digests[start : start + _WANTS_PER_PACKET]))
        self._line.send(b"go  ")
        if not digests:
            return frozenset()
        self._line.settimeout(GATHER_S + PATIENCE_S)
        word, descriptors, _, _ = socket.recv_fds(self._line, 4, 1)
        self._line.settimeout(PATIENCE_S)
        with _received(descriptors) as memory:
            if word == b"go  " and memory is not None:
                with self._files, Input(Path(f"/proc/self/fd/{memory}")) as shared:
                    self._work(memory, shared)
        return frozenset(self._filled)

    def _work(self, memory: int, shared: Input) -> None:
        running: list[Future[None]] = []
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="relight-blocks")
        with pool, suppress(OSError, ValueError):  # after one of these this rank goes on alone
            asks = ahead(_THREADS)
            for _ in range(asks):
                self._line.send(b"next")
            while asks:
                task = unpack_task(self._line.recv(64))
                if task.kind == "end":
                    asks -= 1
                elif task.block in self._wanted:
                    running.append(pool.submit(self._do, task, memory, shared))
        for one in running:
            one.result()

    def _do(self, task: Task, memory: int, shared: Input) -> None:
        place, *others = self._wanted[task.block]
        at, word = task.slot * BLOCK_BYTES, task.kind.encode()
        try:
            if task.kind == "copy":
                sound = shared.fill((at, place.data), _MEMORY) == task.block
            else:
                sound = self._files.fill(place) == task.block
                if sound:
                    _write(memory, place.data, at)
        except (OSError, CodecMissing):  # it is read once more, and told then
            sound = False
        if sound:
            for other in others:
                other.data[:] = place.data
            self._filled.add(task.block)
            self._advance(len(place.data) * (1 + len(others)))
        elif task.kind == "read":
            word = b"fail"
        with suppress(OSError):
            self._line.send(word + task.block)


class _Files:
    """Files that are read from, opened as they are needed by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Path, Input] = {}

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()

    def fill(self, place: BlockPlace) -> bytes:
        """The digest of what was read. Raises OSError."""
        with self._lock:
            file = self._open.get(place.file)
            if file is None and len(self._open) < _MOST_OPEN:
                file = self._open[place.file] = Input(place.file)
        if file is not None:
            return file.fill((place.at, place.data), place.way)
        with Input(place.file) as own:
            return own.fill((place.at, place.data), place.way)


@contextmanager
def _received(descriptors: Sequence[int]) -> Iterator[int | None]:
    try:
        yield descriptors[0] if descriptors else None
    finally:
        for one in descriptors:
            os.close(one)


def _write(fd: int, data: memoryview, at: int) -> None:
    while data:
        written = os.pwrite(fd, data, at)
        at, data = at + written, data[written:]
