"""Copies of a node's shards on its partner: whole or not at all, from nobody else, and of use."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from relight.errors import RelightError
from relight.storage.checkpointer import load_shard, save_shard
from relight.storage.choose import newest_valid
from relight.storage.commit import claim_epoch, commit, commit_complete
from relight.storage.depot import _Depot, listening_socket, take
from relight.storage.drain import drain
from relight.storage.errors import CheckpointDamaged, CopyRefused, Fenced, PartnerUnknown
from relight.storage.layout import Incarnation, incarnation_dir, shard_path
from relight.storage.partner_line import PartnerLine
from relight.storage.receipt import Receipt
from relight.storage.send import send
from relight.storage.tier_folder import make_private, tier_folder

ONE, OTHER = Incarnation("1.0", 1), Incarnation("2.0", 1)
VALUES = np.arange(50_000)
KEY = b"token"
SHARE_BYTES = 10**7

Way = Callable[[socket.socket], socket.socket]


class Nodes:
    """A rank's node, its partner, and the directory that both see."""

    def __init__(self, place: Path) -> None:
        self.directory = place / "checkpoints"
        self.directory.mkdir()
        self.own, self.partner = (tier_folder(place, "run", name) for name in ("n1", "n2"))
        make_private(self.own)
        self.epoch = claim_epoch(self.directory, ONE)

    def save(self, step: int, writer: Incarnation = ONE, more: int = 0) -> Receipt:
        return save_shard(self.own, step, writer, 0, 1, {"w": VALUES + step + more})

    def copy(
        self,
        step: int,
        *,
        writer: Incarnation = ONE,
        key: bytes = KEY,
        share_bytes: int = SHARE_BYTES,
        way: Way = lambda connection: connection,
    ) -> Receipt:
        """What the depot has taken. Raises what the sender does, with the depot's fault behind."""

        def taken() -> Receipt:
            with way(server.accept()[0]) as connection:
                connection.settimeout(10)
                line = PartnerLine(connection, KEY, caller=False, within_s=10)
                return take(line, self.partner, share_bytes)

        with listening_socket() as server, ThreadPoolExecutor(1) as pool:
            server.settimeout(10)
            taking = pool.submit(taken)
            try:
                send(self.own, step, writer, 0, ("127.0.0.1", server.getsockname()[1]), key)
            except (OSError, RelightError) as error:
                raise error from taking.exception()
            return taking.result()

    def left(self) -> list[str]:
        """The files at the partner."""
        return [str(path) for path in self.partner.rglob("*") if path.is_file()]

    def steps(self) -> list[int]:
        return sorted(int(path.name) for path in self.partner.iterdir())


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


def relayed(change: Callable[[bytes, int], bytes]) -> Way:
    """The bytes from the sender pass through ``change``, with their place; "" cuts it off."""

    def way(connection: socket.socket) -> socket.socket:
        near, far = socket.socketpair()

        def there() -> None:
            place = 0
            with suppress(OSError):
                while changed := change(data := connection.recv(4096), place):
                    near.sendall(changed)
                    place += len(data)
            for end in (near, connection):  # not closed: the other thread reads from it
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        def back() -> None:
            with near, connection, suppress(OSError):
                while data := near.recv(4096):
                    connection.sendall(data)

        threading.Thread(target=there, daemon=True).start()
        threading.Thread(target=back, daemon=True).start()
        return far

    return way


def test_what_a_lost_node_had_not_copied_comes_from_its_partner(nodes: Nodes) -> None:
    for step in (1, 2, 3):
        receipt = nodes.save(step)
        assert nodes.copy(step) == receipt
    assert nodes.steps() == [2, 3], "they are pruned as the tier is"
    assert nodes.copy(3) == nodes.copy(3), "what is here is not sent again"
    shutil.rmtree(nodes.own)
    durable = drain(nodes.partner, nodes.directory, receipt)
    manifest = commit(nodes.directory, 3, ONE, nodes.epoch, [durable], {})
    loaded = load_shard(nodes.directory, manifest, 0)["w"]
    assert np.array_equal(np.asarray(loaded), VALUES + 3)
    shutil.rmtree(incarnation_dir(nodes.directory, 3, ONE))
    loaded = load_shard(nodes.directory, manifest, 0, tier=nodes.partner)["w"]
    assert np.array_equal(np.asarray(loaded), VALUES + 3), "and a restart needs no directory"


def test_a_bit_that_flips_on_the_way_is_found(nodes: Nodes) -> None:
    def flip(data: bytes, place: int) -> bytes:
        if not place <= 200_000 < place + len(data):
            return data
        at = 200_000 - place
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    nodes.save(1)
    with pytest.raises(CopyRefused, match=r"damaged at w: its digest does not match$") as caught:
        nodes.copy(1, way=relayed(flip))
    assert isinstance(caught.value.__cause__, CheckpointDamaged)
    assert nodes.left() == []
    assert nodes.copy(1).step == 1, "the next one is a copy"


def test_a_node_that_is_lost_while_it_sends_leaves_nothing(nodes: Nodes) -> None:
    nodes.save(1)
    with pytest.raises(ConnectionError) as caught:
        nodes.copy(1, way=relayed(lambda data, place: data if place < 200_000 else b""))
    assert isinstance(caught.value.__cause__, OSError)
    assert nodes.left() == []


def test_of_two_connections_for_one_shard_none_spoils_the_other(nodes: Nodes) -> None:
    """A sender was cut off half way, and its agent sends again."""
    receipt = nodes.save(1)

    def overtaken(data: bytes, place: int) -> bytes:
        return data if place < 200_000 or nodes.copy(1) != receipt else b""

    with pytest.raises(OSError, match=r"closed|reset"):
        nodes.copy(1, way=relayed(overtaken))
    assert len(nodes.left()) == 2
    assert drain(nodes.partner, nodes.directory, receipt).digest == receipt.digest


def test_strangers_hold_no_place_of_a_depot(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("relight.storage.depot._STRANGERS", 4)
    monkeypatch.setattr("relight.storage.depot._PROOF_S", 30)
    nodes.save(1)
    agent, its = socket.socketpair()
    depot = _Depot(its, KEY, nodes.partner, SHARE_BYTES)

    def serve() -> None:
        with suppress(OSError):
            depot.serve(server)

    with agent, its, listening_socket() as server:
        address = "127.0.0.1", server.getsockname()[1]
        begun_s = time.monotonic()
        strangers = [socket.create_connection(address) for _ in range(10)]
        for stranger in strangers:
            stranger.sendall(b"x")
        serving = threading.Thread(target=serve)
        serving.start()
        send(nodes.own, 1, ONE, 0, address, KEY)
        assert time.monotonic() - begun_s < 20, "nobody has waited for them"
        server.shutdown(socket.SHUT_RDWR)
        serving.join()
        for stranger in strangers:
            stranger.close()
    assert nodes.steps() == [1]
    assert capsys.readouterr().err.count("somebody else") == 1


def test_a_proof_has_its_time_however_slowly_it_comes() -> None:
    near, far = socket.socketpair()
    is_over = threading.Event()

    def drip() -> None:
        while not is_over.wait(0.05):
            far.sendall(b"x")

    with near, far:
        dripping = threading.Thread(target=drip)
        dripping.start()
        with pytest.raises((PartnerUnknown, TimeoutError), match=r"too long|timed out"):
            PartnerLine(near, KEY, caller=False, within_s=0.2)
        is_over.set()
        dripping.join()


def test_an_answer_that_is_none_is_told(nodes: Nodes) -> None:
    nodes.save(1)

    def answer() -> None:
        with server.accept()[0] as connection:
            line = PartnerLine(connection, KEY, caller=False, within_s=10)
            line.hear()
            line.say({"answer": 5})

    with listening_socket() as server:
        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(CopyRefused, match="'answer': 5"):
            send(nodes.own, 1, ONE, 0, ("127.0.0.1", server.getsockname()[1]), KEY)
        answering.join()


def test_why_a_partner_hangs_up_in_the_middle_is_told(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a tier that has become read-only, while gigabytes are on their way."""
    save_shard(nodes.own, 1, ONE, 0, 1, {"w": np.zeros(8_000_000)})

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("relight.storage.depot._opened", refuse)
    with pytest.raises(CopyRefused, match=r"does not take it: .*Read-only file system"):
        nodes.copy(1, share_bytes=10**9)


def test_a_partner_that_is_full_or_does_not_listen_takes_nothing(nodes: Nodes) -> None:
    receipt = nodes.save(1)
    with pytest.raises(CopyRefused, match=r"^the partner does not take it: a copy takes") as caught:
        nodes.copy(1, share_bytes=1000)
    assert f"takes {receipt.size_bytes} bytes, and 1000 are left" in str(caught.value)
    assert nodes.left() == []
    shard = shard_path(nodes.partner, 1, ONE, 0)
    half = shard.with_name(f"{shard.name}.1234")  # of a depot that was killed
    half.parent.mkdir(parents=True)
    half.write_bytes(bytes(receipt.size_bytes))
    assert nodes.copy(1, share_bytes=receipt.size_bytes) == receipt
    with listening_socket() as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        send(nodes.own, 1, ONE, 0, ("127.0.0.1", port), KEY)


def test_neither_takes_from_nor_gives_to_one_of_another_attempt(nodes: Nodes) -> None:
    nodes.save(1)
    with pytest.raises((PartnerUnknown, OSError)) as caught:
        nodes.copy(1, key=b"token of another attempt")
    assert isinstance(caught.value.__cause__, PartnerUnknown)
    assert nodes.left() == []
    heard: list[bytes] = []

    def listen() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(bytes(32 + 4 + 2 + 32))  # a number, and a word without its proof
            with suppress(ConnectionResetError):
                while data := connection.recv(4096):
                    heard.append(data)

    with listening_socket() as server:
        stranger = threading.Thread(target=listen)
        stranger.start()
        with pytest.raises(PartnerUnknown):
            send(nodes.own, 1, ONE, 0, ("127.0.0.1", server.getsockname()[1]), KEY)
        stranger.join()
    assert len(b"".join(heard)) == 32 + 32, "a number and a proof, and neither receipt nor state"


def test_a_copy_of_a_superseded_attempt_never_wins(nodes: Nodes) -> None:
    old = nodes.save(5)
    nodes.copy(5)
    epoch = claim_epoch(nodes.directory, OTHER)
    new = save_shard(nodes.directory, 5, OTHER, 0, 1, {"w": VALUES})
    manifest = commit(nodes.directory, 5, OTHER, epoch, [new], {})
    late = drain(nodes.partner, nodes.directory, old)
    with pytest.raises(Fenced):
        commit(nodes.directory, 5, ONE, nodes.epoch, [late], {})
    assert commit_complete(nodes.directory, epoch) == []
    assert shard_path(nodes.partner, 5, ONE, 0).exists()
    for tier in (None, nodes.partner):
        loaded = load_shard(nodes.directory, manifest, 0, tier=tier)["w"]
        assert np.array_equal(np.asarray(loaded), VALUES)


@pytest.mark.parametrize(
    ("at", "is_killed"), [("stripe", True), ("stripe", False), ("require_whole", False)]
)
def test_a_node_that_was_only_cut_off_does_not_touch_what_its_partner_saved(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, at: str, is_killed: bool
) -> None:
    """It copies to the directory when the checkpoint is committed already."""
    receipt = nodes.save(1)
    nodes.copy(1)

    def held_up(*_: object, **__: object) -> None:
        monkeypatch.undo()
        durable = drain(nodes.partner, nodes.directory, receipt)
        commit(nodes.directory, 1, ONE, nodes.epoch, [durable], {})
        if is_killed:
            monkeypatch.setattr(os, "sendfile", killed)

    def killed(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"relight.storage.drain.{at}", held_up)
    with suppress(KeyboardInterrupt):
        assert drain(nodes.own, nodes.directory, receipt).digest == receipt.digest
    newest = newest_valid(nodes.directory)
    assert newest is not None
    loaded = load_shard(nodes.directory, newest, 0)["w"]
    assert np.array_equal(np.asarray(loaded), VALUES + 1)
