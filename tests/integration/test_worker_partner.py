"""What agents do for a partner, with the real processes beside them."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from relight.resilience.messages import Message
from relight.resilience.worker.partner import Partner
from relight.storage.checkpointer import save_shard
from relight.storage.layout import Incarnation, receipt_path
from relight.storage.tier_folder import make_private, tier_folder

ONE = Incarnation("1.0", 1)
PATIENCE_S = 60.0


class Node:
    """The agent of one node."""

    def __init__(self, place: Path, name: str) -> None:
        self.tier = tier_folder(place, "run", name)
        self.processes: set[int] = set()
        self.partner = Partner("token", self.processes)

    def said(self) -> Message:
        """The next word for the supervisor."""
        give_up_at_s = time.monotonic() + PATIENCE_S
        while not (words := self.partner.look()):
            assert time.monotonic() < give_up_at_s
            time.sleep(0.02)
        (word,) = words
        return word

    def heard_from(self, sender: Node) -> list[Message]:
        """Words because of what another sends, which has no trouble with it."""
        give_up_at_s = time.monotonic() + PATIENCE_S
        while not (words := self.partner.look()):
            assert sender.partner.look() == []
            assert time.monotonic() < give_up_at_s
            time.sleep(0.02)
        return words

    def come_to_rest(self) -> None:
        """Until nothing is sent any more, without a word."""
        give_up_at_s = time.monotonic() + PATIENCE_S
        while self.processes:
            assert self.partner.look() == []
            assert time.monotonic() < give_up_at_s
            time.sleep(0.02)

    def offer(self, step: int) -> None:
        make_private(self.tier)
        save_shard(self.tier, step, ONE, 1, 2, {"w": np.arange(50_000)})
        place = {"tier": str(self.tier), "step": step, "writer": ONE.folder, "rank": 1}
        self.partner.offer({"type": "saved", **place})
        self.partner.look()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    both = Node(tmp_path, "n1"), Node(tmp_path, "n2")
    yield both
    for node in both:
        node.partner.end()


def test_a_save_is_copied_until_the_partner_is_gone(nodes: tuple[Node, Node]) -> None:
    own, other = nodes
    other.partner.open(str(other.tier), 10**7)
    depot = other.said()
    assert depot["type"] == "depot"
    assert isinstance(depot["port"], int)
    own.offer(10)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = {"host": "127.0.0.1", "port": silent.getsockname()[1]}
        for _ in range(2):
            shard = {"tier": str(own.tier), "step": 10, "writer": ONE.folder, "rank": 1}
            own.partner.bring({"type": "bring", **shard, **address})
        own.partner.look()
        own.partner.bring_no_more()
        own.come_to_rest()
    own.partner.meet("127.0.0.1", depot["port"])
    own.partner.look()
    assert other.said() == {"type": "took", "step": 10, "rank": 1, "writer": "1.0.g1"}
    assert receipt_path(other.tier, 10, ONE, 1).exists()
    (process,) = other.processes
    os.kill(process, signal.SIGKILL)
    lost = other.said()
    assert (lost["type"], lost["port"], other.processes) == ("depot", None, set())
    own.offer(20)
    failed = own.said()
    assert (failed["type"], failed["step"], failed["rank"]) == ("not_sent", 20, 1)
    assert "refused" in str(failed["reason"])
    assert own.processes == set()


def test_a_partner_that_is_lost_holds_up_nothing(nodes: tuple[Node, Node]) -> None:
    own, other = nodes
    other.partner.open(str(other.tier), 10**7)
    port = other.said()["port"]
    assert isinstance(port, int)
    took = {"type": "took", "step": 10, "rank": 1, "writer": "1.0.g1"}
    with socket.create_server(("127.0.0.1", 0)) as lost:
        own.partner.meet("127.0.0.1", lost.getsockname()[1])
        own.offer(10)
        with lost.accept()[0]:  # and says nothing
            shard = {"tier": str(own.tier), "step": 10, "writer": ONE.folder, "rank": 1}
            own.partner.bring({"type": "bring", **shard, "host": "127.0.0.1", "port": port})
            assert other.heard_from(own) == [took]
            own.partner.meet("127.0.0.1", port)
            assert other.heard_from(own) == [took], "the save itself, for its new partner"
    own.come_to_rest()
    (process,) = other.processes
    os.kill(process, signal.SIGKILL)
    assert other.said()["port"] is None
