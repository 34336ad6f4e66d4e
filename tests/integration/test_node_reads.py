"""Ranks of a node read together what all of them want: once, and right, whoever fails meanwhile."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from relight.storage import node_reads, node_reads_host, read_shard
from relight.storage.blocks import BLOCK_BYTES
from relight.storage.boxes import Box, Part, Replicated
from relight.storage.checkpointer import CheckpointDamaged, load_shard, save_shard
from relight.storage.commit import claim_epoch, commit
from relight.storage.drain import drain
from relight.storage.input import Block, Input
from relight.storage.layout import Incarnation
from relight.storage.manifest import Manifest
from relight.storage.needs import Needs, Piece
from relight.storage.node_reads import Neighbours
from relight.storage.progress import Advance
from relight.storage.resize import load_for
from relight.storage.way import Way

ONE = Incarnation("1.0", 0)
MODEL = {f"w{n}": np.random.default_rng(n).bytes(BLOCK_BYTES + n) for n in range(3)}
MODEL["zero"] = bytes(2 * BLOCK_BYTES)  # two equal blocks
SHARED_BYTES = sum(map(len, MODEL.values())) - BLOCK_BYTES


@pytest.fixture(autouse=True)
def small_and_on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_reads, "WORTH_SHARING_BYTES", 1)
    monkeypatch.setattr(read_shard, "in_memory", lambda _: False)


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What is read from files of values, by file name."""
    counted: Counter[str] = Counter()
    fill, lock = Input.fill, threading.Lock()

    def counting(self: Input, block: Block, way: Way) -> bytes:
        if self.path.suffix == ".h5":
            with lock:
                counted[self.path.name] += len(block[1])
        return fill(self, block, way)

    monkeypatch.setattr(Input, "fill", counting)
    return counted


def save(directory: Path, states: list[dict[str, object]], *, compressed: bool = False) -> Manifest:
    epoch = claim_epoch(directory, ONE)
    size = len(states)
    place = directory / "tier" if compressed else directory
    place.mkdir(exist_ok=True)
    receipts = [save_shard(place, 1, ONE, n, size, state) for n, state in enumerate(states)]
    if compressed:
        receipts = [drain(place, directory, one, compress=True) for one in receipts]
    return commit(directory, 1, ONE, epoch, receipts, {})


def marked(model: object, *, plain: bool) -> list[dict[str, object]]:
    """States of two ranks, with the model as each of them has it, and a number of their own."""
    return [{"model": model if plain else Replicated(model), "own": n} for n in range(2)]


def together(directory: Path, manifest: Manifest, name: str) -> list[dict[str, object]]:
    with ThreadPoolExecutor(2) as pool:
        meeting, bars = Neighbours(f"{directory} {name}", 2), [Bar(), Bar()]
        loads = [
            pool.submit(load_shard, directory, manifest, n, neighbours=meeting, shown=bar.shown)
            for n, bar in enumerate(bars)
        ]
        found = [one.result(timeout=60) for one in loads]
    assert [bar.done for bar in bars] == [bar.total for bar in bars]
    return found


class Bar:
    """How many bytes it was told of, of how many."""

    def __init__(self) -> None:
        self.total = self.done = 0
        self._lock = threading.Lock()

    @contextmanager
    def shown(self, total_bytes: int) -> Iterator[Advance]:
        self.total += total_bytes
        yield self._advance

    def _advance(self, size_bytes: int) -> None:
        with self._lock:
            self.done += size_bytes


@pytest.mark.parametrize(("plain", "compressed"), [(False, False), (True, False), (False, True)])
def test_what_two_ranks_want_is_read_once(
    tmp_path: Path, read_bytes: Counter[str], plain: bool, compressed: bool
) -> None:
    """Marked as replicated, and so saved once; or saved by each of them, with the same digests."""
    manifest = save(tmp_path, marked(MODEL, plain=plain), compressed=compressed)
    read_bytes.clear()
    assert together(tmp_path, manifest, "restore") == marked_back()
    assert read_bytes.total() == SHARED_BYTES


@pytest.mark.parametrize("plain", [True, False])
def test_a_part_that_is_like_what_is_shared_comes_back_too(tmp_path: Path, plain: bool) -> None:
    """As averages of weights are at their first save: the same bytes, in another place."""
    weights = np.frombuffer(MODEL["w0"][:BLOCK_BYTES] * 2, np.uint8)
    states = marked(weights, plain=plain)
    for number, state in enumerate(states):
        state["average"] = Part(weights[:BLOCK_BYTES], weights.shape, (number * BLOCK_BYTES,))
    for restored in together(tmp_path, save(tmp_path, states), "restore"):
        assert np.array_equal(np.asarray(restored["model"]), weights)
        assert np.array_equal(np.asarray(restored["average"]), weights[:BLOCK_BYTES])


def marked_back() -> list[dict[str, object]]:
    return [{"model": MODEL, "own": n} for n in range(2)]


def test_another_number_of_ranks_reads_together_too(
    tmp_path: Path, read_bytes: Counter[str]
) -> None:
    """Three ranks are two now: what is in parts, each reads for itself."""
    field = np.arange(300_000.0)
    parts = [
        Part(field[at : at + 100_000], field.shape, (at,)) for at in range(0, 300_000, 100_000)
    ]
    manifest = save(tmp_path, [{"model": Replicated(MODEL), "field": part} for part in parts])
    meeting = Neighbours(f"{tmp_path} resize", 2)

    def load(rank: int) -> dict[str, object]:
        box = Box((150_000 * rank,), (150_000,))
        needs = Needs(pieces={("field",): Piece(box, field.shape)})
        return load_for(tmp_path, manifest, rank, 2, needs, neighbours=meeting).state

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(load, range(2))
    assert (first["model"], second["model"]) == (MODEL, MODEL)
    assert np.array_equal(np.concatenate([first["field"], second["field"]]), field)
    assert read_bytes.total() < SHARED_BYTES + 5 * 800_000


def test_who_has_no_neighbours_after_all_reads_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other rank never comes; and then it comes to a host that has no word for it."""
    manifest = save(tmp_path, marked(MODEL, plain=False))
    monkeypatch.setattr(node_reads_host, "GATHER_S", 0.2)
    monkeypatch.setattr(node_reads, "GATHER_S", 0.2)
    meeting = Neighbours(f"{tmp_path} alone", 2)
    for rank in range(2):
        found = load_shard(tmp_path, manifest, rank, neighbours=meeting)
        assert found == {"model": MODEL, "own": rank}
    monkeypatch.setattr(node_reads, "PATIENCE_S", 0.2)
    monkeypatch.setattr(node_reads_host.Host, "_begin", lambda _: None)
    assert together(tmp_path, manifest, "silent host") == marked_back()


def test_who_may_open_no_more_files_reads_alone(tmp_path: Path) -> None:
    """And does not wait for the others first."""
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
    try:
        filled = node_reads.fill(Neighbours(f"{tmp_path} few", 2), {}, lambda _: None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, most))
    assert filled == frozenset()


def test_without_memory_to_share_each_reads_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: Counter[str]
) -> None:
    manifest = save(tmp_path, marked(MODEL, plain=False))
    monkeypatch.setattr(node_reads_host, "room_bytes", lambda: 25 * BLOCK_BYTES)
    assert together(tmp_path, manifest, "restore") == marked_back()
    assert read_bytes.total() == 2 * sum(map(len, MODEL.values()))


def test_damage_is_found_and_what_others_put_into_memory_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = save(tmp_path, marked(MODEL, plain=False))
    monkeypatch.setattr(node_reads, "_write", lambda fd, data, at: os.pwrite(fd, b"x" * 99, at))
    assert together(tmp_path, manifest, "spoilt memory") == marked_back()
    monkeypatch.undo()
    for receipt in manifest.receipts:
        with (tmp_path / "000000000001" / receipt.file).open("r+b") as file:
            file.seek(receipt.size_bytes // 2)
            file.write(b"damage")
    with pytest.raises(CheckpointDamaged):
        together(tmp_path, manifest, "damaged")


STUCK = """
import os, sys, threading
from pathlib import Path
from relight.storage import node_reads, read_shard
from relight.storage.checkpointer import load_shard
from relight.storage.manifest import Manifest
directory, name, hosts = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "True"
node_reads.WORTH_SHARING_BYTES = 1
read_shard.in_memory = lambda _: False
if not hosts:
    node_reads._host = lambda *_: None
def stuck(self, place):
    os.write(1, b"reading\\n")  # whole, also when several threads say so
    threading.Event().wait()
node_reads._Files.fill = stuck
manifest = Manifest.parse((directory / "000000000001/MANIFEST.json").read_bytes())
print("up", flush=True)
load_shard(directory, manifest, 1, neighbours=node_reads.Neighbours(name, 2))
"""


@pytest.mark.parametrize("hosts", [False, True])
def test_a_reader_that_is_killed_in_the_middle_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: Counter[str], hosts: bool
) -> None:
    """Also when the others have met at its door, which goes with it."""
    manifest = save(tmp_path, marked(MODEL, plain=False))
    name = f"{tmp_path} killed"
    other_reads, fill = threading.Event(), node_reads._Files.fill

    def fill_then(self: node_reads._Files, place: node_reads.BlockPlace) -> bytes:
        other_reads.wait()
        return fill(self, place)

    monkeypatch.setattr(node_reads._Files, "fill", fill_then)
    monkeypatch.setattr(node_reads, "_THREADS", 1)  # it takes few blocks at a time
    if hosts:
        monkeypatch.setattr(node_reads, "_host", lambda *_: None)
    command = [sys.executable, "-P", "-c", STUCK, str(tmp_path), name, str(hosts)]
    with (
        ThreadPoolExecutor(1) as pool,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other,
        ExitStack() as ending,
    ):
        ending.callback(other.kill)  # before it is waited for, whatever goes wrong
        ending.callback(other_reads.set)
        assert other.stdout is not None
        assert other.stdout.readline() == "up\n"
        load = pool.submit(load_shard, tmp_path, manifest, 0, neighbours=Neighbours(name, 2))
        assert other.stdout.readline() == "reading\n"
        other.send_signal(signal.SIGKILL)
        other_reads.set()
        assert load.result(timeout=60) == marked_back()[0]
    assert read_bytes.total() <= sum(map(len, MODEL.values()))
