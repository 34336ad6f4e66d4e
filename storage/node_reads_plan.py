"""Which rank of a node reads which block, when several of them want the same: decided, not done.

A block is known by its digest, wherever it lies. Ranks ask for work. They copy first what another
one has read already, else they read what nobody has, into a slot of memory that all of them share,
and else they wait. A slot is free again when all have copied that want its block. What a rank has
begun and does not bring to its end, because it died or its disk failed, is another one's to read.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class Task(NamedTuple):
    """`end`: nothing is left that others want too."""

    kind: Literal["read", "copy", "end"]
    block: bytes = b""
    slot: int = 0


Answers = list[tuple[int, Task]]  # to whom, by the numbers of the members


@dataclass(slots=True)
class _Member:
    """What it still wants, by where that is: nobody's yet, being read by another, or in a slot."""

    unread: dict[bytes, None]
    awaited: set[bytes] = field(default_factory=set)
    offered: dict[bytes, None] = field(default_factory=dict)

    @property
    def wants_nothing(self) -> bool:
        return not (self.unread or self.awaited or self.offered)


class Exchange:
    """Ranks of a node, each with the blocks that it wants, in its order."""

    def __init__(self, wanted: Mapping[int, Iterable[bytes]]) -> None:
        wanting = Counter(block for blocks in wanted.values() for block in set(blocks))
        self.shared = sum(1 for count in wanting.values() if count > 1)
        self._members: dict[int, _Member] = {}
        for place, (member, blocks) in enumerate(wanted.items()):
            own = [block for block in dict.fromkeys(blocks) if wanting[block] > 1]
            # Each begins elsewhere, so that it reads what lies together.
            begin = place * len(own) // len(wanted)
            self._members[member] = _Member(dict.fromkeys([*own[begin:], *own[:begin]]))
        self._asks: deque[int] = deque()
        self._free: list[int] = []
        self._slots: dict[bytes, int] = {}
        self._readers: dict[bytes, int] = {}
        self._takers: dict[bytes, set[int]] = {}  # who has not copied yet what is in its slot

    def begin(self, slots: int) -> Answers:
        """From now on there are so many places for blocks."""
        self._free = list(range(slots))
        return self._serve()

    def ask(self, member: int) -> Answers:
        """It has nothing to do; it may ask several times, and gets as many answers."""
        self._asks.append(member)
        return self._serve()

    def read(self, member: int, block: bytes) -> Answers:
        """It has put a block into its slot."""
        if self._readers.get(block) == member:
            del self._readers[block]
            takers = {name for name, one in self._members.items() if block in one.awaited}
            for name in takers:
                self._members[name].awaited.discard(block)
                self._members[name].offered[block] = None
            self._takers[block] = takers
            self._release_if_taken(block)
        return self.ask(member)

    def failed(self, member: int, block: bytes) -> Answers:
        """It could not, and will see to that block itself."""
        if self._readers.get(block) == member:
            self._give_up(block)
        return self.ask(member)

    def copied(self, member: int, block: bytes) -> Answers:
        self._taken(member, block)
        return self.ask(member)

    def left(self, member: int) -> Answers:
        """It is gone, whatever it was doing."""
        if self._members.pop(member, None) is not None:
            self._asks = deque(one for one in self._asks if one != member)
            for block in [block for block, reader in self._readers.items() if reader == member]:
                self._give_up(block)
            for block in list(self._takers):
                self._taken(member, block)
        return self._serve()

    def _taken(self, member: int, block: bytes) -> None:
        if block in self._takers:
            self._takers[block].discard(member)
            self._release_if_taken(block)

    def _release_if_taken(self, block: bytes) -> None:
        if not self._takers[block]:
            del self._takers[block]
            self._free.append(self._slots.pop(block))

    def _give_up(self, block: bytes) -> None:
        del self._readers[block]
        self._free.append(self._slots.pop(block))
        for one in self._members.values():
            if block in one.awaited:
                one.awaited.discard(block)
                one.unread[block] = None

    def _serve(self) -> Answers:
        return list(self._served())

    def _served(self) -> Iterator[tuple[int, Task]]:
        for _ in range(len(self._asks)):
            member = self._asks.popleft()
            task = self._task(member, self._members[member])
            if task is None:
                self._asks.append(member)
            else:
                yield member, task

    def _task(self, member: int, one: _Member) -> Task | None:
        if one.offered:
            block = next(iter(one.offered))
            del one.offered[block]
            return Task("copy", block, self._slots[block])
        if one.wants_nothing:
            return Task("end")
        if not one.unread or not self._free:
            return None
        block = next(iter(one.unread))
        for other in self._members.values():
            if block in other.unread:
                del other.unread[block]
                other.awaited.add(block)
        one.awaited.discard(block)
        self._readers[block] = member
        self._slots[block] = self._free.pop()
        return Task("read", block, self._slots[block])
