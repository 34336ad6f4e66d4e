"""The thread, in one of a node's ranks, through which they agree on who reads which block.

It hands out a memfd(2) and tasks, by packets over a socket in the abstract namespace of unix(7):
nothing of either has a name that could be left behind. It never touches a block itself. When it
ends, however that comes about, the others see the end of their connection and read for themselves.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import threading
import time
from contextlib import ExitStack, suppress
from typing import Final

from .blocks import BLOCK_BYTES, DIGEST_BYTES
from .node_reads_plan import Answers, Exchange, Task
from .peer import peer
from .staging_room import room_bytes

GATHER_S: Final = 10.0  # ranks start together; whoever has not come by then is not waited for
_LINGER_S: Final = 60.0  # for those who come later: else one of them would wait for the others
_MOST_SLOTS: Final = 128
_SLOTS_PER_RANK: Final = 16
_PACKET_BYTES: Final = 1 << 16
_TASK: Final = struct.Struct(f"<4s{DIGEST_BYTES}sI")


def pack_task(task: Task) -> bytes:
    return _TASK.pack(task.kind.encode(), task.block, task.slot)


def unpack_task(packet: bytes) -> Task:
    """Raises ValueError for what is no task."""
    try:
        kind, block, slot = _TASK.unpack(packet)
    except struct.error as error:
        raise ValueError(f"{packet!r:.80} is no task") from error
    for known in ("read", "copy"):
        if kind == known.encode():
            return Task(known, block, slot)
    return Task("end")


def is_ours(connection: socket.socket) -> bool:
    """Whether the process at the other end is of this user."""
    return peer(connection)[1] == os.getuid()


class Host(threading.Thread):
    """Serves `ranks` members at a listening socket, until all of them have come and gone.

    Packets of a member: `want` and digests, as often as needed; `go`, when that is all; then `next`
    for each task that it can do at once, and `read`, `fail` or `copy` with the digest of one that
    is done, which asks for another.
    """

    def __init__(self, door: socket.socket, ranks: int) -> None:
        super().__init__(name="relight-node-reads", daemon=True)
        self._door = door
        self._ranks = ranks
        self._began_s = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._lines: dict[int, socket.socket] = {}
        self._wanted: dict[int, list[bytes]] = {}
        self._ready: set[int] = set()
        self._come = 0
        self._exchange: Exchange | None = None

    def run(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._close)
            self._selector.register(self._door, selectors.EVENT_READ, None)
            with suppress(OSError):  # the others notice, and read for themselves
                while self._goes_on():
                    self._turn()

    def _close(self) -> None:
        self._selector.close()
        for line in self._lines.values():
            line.close()
        self._door.close()

    def _goes_on(self) -> bool:
        if self._lines:
            return True
        return self._come < self._ranks and time.monotonic() - self._began_s < _LINGER_S

    def _turn(self) -> None:
        for key, _ in self._selector.select(timeout=0.1):
            if key.data is None:
                self._admit()
            else:
                self._hear(key.data)
        if self._exchange is None and self._lines:
            late = time.monotonic() - self._began_s >= GATHER_S
            if late or (self._come >= self._ranks and self._ready == self._lines.keys()):
                self._begin()

    def _admit(self) -> None:
        line, _ = self._door.accept()
        if not is_ours(line):
            line.close()
            return
        self._come += 1
        member = self._come
        if self._exchange is not None:  # too late to have a share in it
            line.close()
            return
        line.setblocking(False)
        self._lines[member], self._wanted[member] = line, []
        self._selector.register(line, selectors.EVENT_READ, member)

    def _hear(self, member: int) -> None:
        if member not in self._lines:
            return
        try:
            packet = self._lines[member].recv(_PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if packet:
            self._answer(self._obey(member, packet[:4], packet[4:]))
        else:
            self._leave(member)

    def _obey(self, member: int, word: bytes, rest: bytes) -> Answers:
        if self._exchange is None:
            if word == b"want":
                starts = range(0, len(rest), DIGEST_BYTES)
                self._wanted[member] += [rest[at : at + DIGEST_BYTES] for at in starts]
            elif word == b"go  ":
                self._ready.add(member)
            return []
        match word:
            case b"next":
                return self._exchange.ask(member)
            case b"read":
                return self._exchange.read(member, rest)
            case b"fail":
                return self._exchange.failed(member, rest)
            case b"copy":
                return self._exchange.copied(member, rest)
        return []

    def _begin(self) -> None:
        """Those who are not ready yet come too late."""
        for member in self._lines.keys() - self._ready:
            self._leave(member)
        exchange = Exchange({member: self._wanted[member] for member in self._lines})
        wanted = sum(len(self._wanted[member]) for member in self._lines)
        slots = _slots(len(self._lines), exchange.shared, wanted)
        self._exchange = exchange
        memory = os.memfd_create("relight-node-reads")
        try:
            os.ftruncate(memory, slots * BLOCK_BYTES)
            for member in list(self._lines):
                self._send_memory(member, memory, b"go  " if slots else b"none")
        finally:
            os.close(memory)
        self._answer(exchange.begin(slots))

    def _send_memory(self, member: int, memory: int, word: bytes) -> None:
        if member in self._lines:
            try:
                socket.send_fds(self._lines[member], [word], [memory])
            except OSError:
                self._leave(member)

    def _answer(self, answers: Answers) -> None:
        for member, task in answers:
            if member in self._lines:
                try:
                    self._lines[member].send(pack_task(task))
                except OSError:
                    self._leave(member)

    def _leave(self, member: int) -> None:
        line = self._lines.pop(member, None)
        if line is None:
            return
        self._selector.unregister(line)
        line.close()
        self._ready.discard(member)
        if self._exchange is not None:
            self._answer(self._exchange.left(member))


def _slots(ranks: int, shared: int, wanted: int) -> int:
    """How many blocks may lie in memory at a time; none where there is too little of it."""
    # What ranks want they have memory for, which is not taken yet.
    room = max(0, room_bytes() // BLOCK_BYTES - wanted) // 4
    slots = min(_MOST_SLOTS, _SLOTS_PER_RANK * ranks, shared, room)
    return slots if slots >= min(shared, 2 * ranks) else 0
