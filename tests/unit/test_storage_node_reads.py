"""Who of a node's ranks reads which block: each once, whatever some of them do meanwhile."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from relight.storage.node_reads_plan import Answers, Exchange, Task

Blocks = list[list[bytes]]
blocks = st.lists(st.sampled_from([b"%d" % n for n in range(12)]), max_size=12)


class Node:
    """Members that do their tasks in any order. `have` is what each has got."""

    def __init__(self, wanted: Blocks, slots: int, asks: int) -> None:
        self.exchange = Exchange(dict(enumerate(wanted)))
        self.tasks: list[tuple[int, Task]] = []
        self.in_slots: dict[int, bytes] = {}
        self.have: dict[int, set[bytes]] = {n: set() for n in range(len(wanted))}
        self.ends: Counter[int] = Counter()
        self.reads: Counter[bytes] = Counter()
        self.take(self.exchange.begin(slots))
        for member in range(len(wanted)):
            for _ in range(asks):
                self.take(self.exchange.ask(member))

    def take(self, answers: Answers) -> None:
        for member, task in answers:
            if task.kind == "end":
                self.ends[member] += 1
            else:
                self.tasks.append((member, task))

    def do(self, place: int) -> None:
        member, task = self.tasks.pop(place % len(self.tasks))
        if task.kind == "read":
            self.reads[task.block] += 1
            self.in_slots[task.slot] = task.block
            self.take(self.exchange.read(member, task.block))
        else:
            assert self.in_slots[task.slot] == task.block
            self.take(self.exchange.copied(member, task.block))
        self.have[member].add(task.block)

    def fail(self, place: int) -> None:
        member, task = self.tasks.pop(place % len(self.tasks))
        if task.kind == "read":
            self.take(self.exchange.failed(member, task.block))
        else:
            self.take(self.exchange.copied(member, task.block))

    def kill(self, member: int) -> None:
        self.tasks = [(one, task) for one, task in self.tasks if one != member]
        del self.have[member]
        self.take(self.exchange.left(member))


worlds = st.tuples(st.lists(blocks, min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 3))


@settings(max_examples=60, deadline=None)
@given(worlds, st.randoms(use_true_random=False))
def test_what_several_want_is_read_once_and_reaches_all(
    world: tuple[Blocks, int, int], chance: st.DataObject
) -> None:
    wanted, slots, asks = world
    node = Node(wanted, slots, asks)
    while node.tasks:
        node.do(chance.randrange(100))  # type: ignore[attr-defined]
    many = Counter(block for own in wanted for block in set(own))
    shared = {block for block, count in many.items() if count > 1}
    assert node.have == {n: set(own) & shared for n, own in enumerate(wanted)}
    assert node.reads == dict.fromkeys(shared, 1)
    assert node.ends == dict.fromkeys(range(len(wanted)), asks)


@settings(max_examples=60, deadline=None)
@given(worlds, st.randoms(use_true_random=False))
def test_those_who_are_left_are_never_kept_waiting(
    world: tuple[Blocks, int, int], chance: st.DataObject
) -> None:
    """Members die, and reads fail: the others get all of what at least two of them wanted."""
    wanted, slots, asks = world
    node = Node(wanted, slots, asks)
    failed: Counter[int] = Counter()
    while node.tasks:
        place = chance.randrange(100)  # type: ignore[attr-defined]
        if place < 10:
            failed[node.tasks[place % len(node.tasks)][0]] += 1
            node.fail(place)
        elif place < 15 and len(node.have) > 1:
            node.kill(min(node.have))
        else:
            node.do(place)
    many = Counter(block for own in wanted for block in set(own))
    for member, have in node.have.items():
        assert node.ends[member] == asks
        missing = {block for block in wanted[member] if many[block] > 1} - have
        assert len(missing) <= failed[member]
