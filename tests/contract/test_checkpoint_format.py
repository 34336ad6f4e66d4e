"""What docs/checkpoint-format.md promises to those who read a shard without relight.

Everything here reads files with h5py, json, zlib and Debian's hdf5-tools only, and what is
compressed with hdf5plugin.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
import torch
import xxhash
import zstandard

from relight.storage.checkpointer import save_shard
from relight.storage.commit import claim_epoch, commit
from relight.storage.drain import drain
from relight.storage.layout import Incarnation
from relight.storage.manifest import Manifest
from relight.storage.sealed import seal

INCARNATION = Incarnation("77.0", 2)
BIG = np.random.default_rng(1).normal(size=(300, 100))
LARGE_BLOCKS = np.arange(3 << 20, dtype="i8")
SMALL = [np.arange(n, dtype="i2" if n % 2 else "f8") for n in (4, 3, 4, 3, 1)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("checkpoints")
    epoch = claim_epoch(folder, INCARNATION)
    state = {
        "model": {"w": BIG, "bf16": torch.arange(5, dtype=torch.bfloat16), "again": BIG},
        "step": 12,
        "large": LARGE_BLOCKS,
        "none": np.zeros((0, 2), "f4"),
        "small": SMALL,
    }
    receipt = save_shard(folder, 12, INCARNATION, 0, 1, state)
    commit(folder, 12, INCARNATION, epoch, [receipt], {"loss": 0.5})
    return folder


@pytest.fixture(scope="module")
def small(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same shard, compressed."""
    record = json.loads((directory / "000000000012" / "MANIFEST.json").read_bytes())
    (receipt,) = Manifest.parse(seal(record["body"])).receipts
    folder: Path = tmp_path_factory.mktemp("compressed")
    tier = Path(shutil.copytree(directory, folder / "tier"))
    drain(tier, folder, receipt, compress=True)
    return folder / "000000000012" / receipt.file


@pytest.fixture(scope="module")
def shard(directory: Path) -> Path:
    return directory / "000000000012" / "77.0.g2" / "shard-00000.h5"


def read_index(file: h5py.File) -> dict[str, Any]:
    index: dict[str, Any] = json.loads(zlib.decompress(file["index"][:].tobytes()))
    return index


def array_bytes(file: h5py.File, index: dict[str, Any]) -> list[bytes]:
    """As the documentation says where arrays lie."""
    forms, below = index["forms"], index["packed_below_bytes"]
    own = [n for n, form in enumerate(index["arrays"]) if forms[form]["bytes"] >= below]
    found = {n: bytes(file[f"t/{place:06d}"][:]) for place, n in enumerate(own)}
    start = 0
    packed = [n for n in range(len(index["arrays"])) if n not in found]
    for n in sorted(packed, key=lambda n: index["arrays"][n]):
        size = forms[index["arrays"][n]]["bytes"]
        found[n] = bytes(file["pack"][start : start + size])
        start += size
    return [found[n] for n in range(len(found))]


def test_plain_h5py_reads_every_value(shard: Path) -> None:
    with h5py.File(shard, "r") as file:
        index = read_index(file)
        offsets = [file["t"][name].id.get_offset() for name in file["t"]]
        content = array_bytes(file, index)
    assert index["at"] == offsets
    forms = [index["forms"][number] for number in index["arrays"]]
    tree = index["tree"]["dict"]
    model = tree["model"]["dict"]
    assert tree["step"] == 12
    assert model["w"] == model["again"]
    form = forms[model["w"]["array"]]
    assert form["kind"] == "numpy"
    values = np.frombuffer(content[model["w"]["array"]], form["dtype"]).reshape(form["shape"])
    assert (values == BIG).all()
    half = forms[model["bf16"]["array"]]
    assert (half["kind"], half["dtype"], half["shape"]) == ("torch", "bfloat16", [5])
    assert content[model["bf16"]["array"]][2:4] == b"\x80\x3f"
    assert forms[tree["none"]["array"]]["bytes"] == 0
    for n, small in enumerate(SMALL):
        assert content[tree["small"][n]["array"]] == small.tobytes()


@pytest.mark.parametrize("form", ["shard", "small"])
def test_the_example_of_the_documentation_runs(
    form: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard: Path = request.getfixturevalue(form)
    document = Path(__file__).parents[2] / "docs" / "checkpoint-format.md"
    code = document.read_text().partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(shard.parent)
    names: dict[str, Any] = {}
    exec(code, names)
    assert (names["values"] == BIG).all()


def test_hdf5_with_plugins_reads_what_is_compressed(shard: Path, small: Path) -> None:
    assert small.stat().st_size < shard.stat().st_size / 2
    with h5py.File(shard) as plain, h5py.File(small) as file:
        index = read_index(file)
        for name in plain["t"]:
            np.testing.assert_array_equal(file["t"][name][:].view("u1"), plain["t"][name][:])
        large = file["t/000001"]
        filters = large.id.get_create_plist()
        assert [filters.get_filter(n)[0] for n in range(filters.get_nfilters())] == [2, 32015]
    assert index["format"] == 3
    if shutil.which("h5dump") is not None:
        dumped = subprocess.run(
            ["h5dump", "-y", "-w", "0", "-d", "/t/000001", "-s", "2000000", "-c", "3", str(small)],
            env={**os.environ, "HDF5_PLUGIN_PATH": hdf5plugin.PLUGIN_PATH},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "2000000, 2000001, 2000002" in dumped.stdout


def test_the_index_says_where_the_chunks_are(small: Path) -> None:
    data = small.read_bytes()
    with h5py.File(small) as file:
        index = read_index(file)
    values = b""
    (chunked,) = (one for one in index["chunked"] if one[0] == 1)
    _, width, chunks = chunked
    for at, size, digest in chunks:
        chunk = data[at : at + size]
        assert xxhash.xxh3_128_hexdigest(chunk) == digest
        planes = np.frombuffer(zstandard.ZstdDecompressor().decompress(chunk), "u1")
        values += planes.reshape(width, -1).T.tobytes()
    assert values == LARGE_BLOCKS.tobytes()
    assert index["at"][1] == chunks[0][0]


def test_the_index_says_whose_shard_it_is(shard: Path) -> None:
    with h5py.File(shard, "r") as file:
        index = read_index(file)
    found = {name: index[name] for name in ("format", "step", "rank", "world_size", "writer")}
    assert found == {"format": 1, "step": 12, "rank": 0, "world_size": 1, "writer": "77.0.g2"}


def test_the_digests_are_those_of_the_blocks(shard: Path) -> None:
    data = shard.read_bytes()
    with h5py.File(shard, "r") as file:
        index = read_index(file)
        digests = file["digests"][:].tobytes()
    sizes = [index["forms"][form]["bytes"] for form in index["arrays"]]
    own = [size for size in sizes if size >= index["packed_below_bytes"]]
    runs = list(zip(index["at"], own, strict=True))
    runs.append((index["pack_at"], index["pack_bytes"]))
    width = index["block_bytes"]
    expected = [
        xxhash.xxh3_128_digest(data[start : min(start + width, at + size)])
        for at, size in runs
        for start in range(at, at + size, width)
    ]
    assert len(expected) == 1 + 3 + 1
    assert [digests[n : n + 16] for n in range(0, len(digests) - 16, 16)] == expected


def test_the_manifest_names_digest_and_places(directory: Path, shard: Path) -> None:
    record = json.loads((directory / "000000000012" / "MANIFEST.json").read_bytes())
    body = record["body"]
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    assert record["digest"] == xxhash.xxh3_128_hexdigest(text.encode())
    assert (body["format"], body["step"], body["world_size"]) == (1, 12, 1)
    assert body["details"] == {"loss": 0.5}
    (receipt,) = body["receipts"]
    data = shard.read_bytes()
    assert receipt["size_bytes"] == len(data)
    parts = b"".join(
        data[receipt[f"{name}_at"] :][: receipt[f"{name}_bytes"]] for name in ("index", "digests")
    )
    assert receipt["digest"] == xxhash.xxh3_128_hexdigest(parts)


def test_big_arrays_begin_at_pages(shard: Path) -> None:
    with h5py.File(shard, "r") as file:
        assert all(file["t"][name].id.get_offset() % 4096 == 0 for name in file["t"])
        assert all(file["t"][name].chunks is None for name in file["t"])


@pytest.mark.parametrize("command", [["h5ls", "-r"], ["h5dump", "-H"], ["h5dump", "-d", "/index"]])
def test_debians_tools_read_it(command: list[str], shard: Path) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed (package hdf5-tools)")
    done = subprocess.run([*command, str(shard)], capture_output=True, text=True, check=True)
    assert "index" in done.stdout
