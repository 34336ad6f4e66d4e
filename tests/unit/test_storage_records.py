"""Names, sealed records, receipts and manifests: pure values in and out."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.storage.errors import FormatUnknown
from relight.storage.layout import Incarnation, step_name, step_of
from relight.storage.manifest import Manifest, ManifestDamaged
from relight.storage.notes import Notes
from relight.storage.receipt import AsSaved, Receipt
from relight.storage.sealed import Json, seal, unseal

ATTEMPT = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
JSON: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


def receipt(rank: int = 0, world_size: int = 2, step: int = 7) -> Receipt:
    incarnation = Incarnation("12.0", 1)
    return Receipt(
        step=step,
        rank=rank,
        world_size=world_size,
        incarnation=incarnation,
        file=f"12.0.g1/shard-{rank:05d}.h5",
        size_bytes=4096,
        digest="ab" * 16,
        payload_bytes=100,
        seconds=0.25,
        index_at=2048,
        index_bytes=300,
        digests_at=1024,
        digests_bytes=32,
        notes=Notes(metrics={"loss": 1.5}, provenance={"code": {"dirty": True}, "packages": []}),
    )


PLAIN = AsSaved(
    size_bytes=9000, digest="cd" * 16, index_at=1, index_bytes=2, digests_at=3, digests_bytes=4
)


def manifest(world_size: int = 2) -> Manifest:
    return Manifest(
        step=7,
        incarnation=Incarnation("12.0", 1),
        epoch=3,
        world_size=world_size,
        receipts=tuple(receipt(rank, world_size) for rank in range(world_size)),
        created="2026-01-01T00:00:00+00:00",
        details={"loss": 1.5, "tags": ["a", None]},
    )


@given(ATTEMPT, st.integers(0, 10**9))
def test_an_incarnation_is_its_folder(attempt: str, generation: int) -> None:
    incarnation = Incarnation(attempt, generation)
    assert Incarnation.parse(incarnation.folder) == incarnation


@pytest.mark.parametrize("attempt", ["", "a/b", "..", ".x", "a\n", "a b", "ä"])
def test_an_attempt_is_a_plain_file_name(attempt: str) -> None:
    with pytest.raises(ValueError, match="no plain file name"):
        Incarnation(attempt, 0)


@pytest.mark.parametrize("folder", ["x", "x.g", "x.g01", "x.g-1", ".g1", "x.g1.tmp"])
def test_a_foreign_folder_is_no_incarnation(folder: str) -> None:
    with pytest.raises(ValueError, match="attempt"):
        Incarnation.parse(folder)


@given(st.integers(0, 10**15), st.integers(0, 10**15))
def test_step_names_sort_like_steps(one: int, other: int) -> None:
    assert step_of(step_name(one)) == one
    if len(step_name(one)) == len(step_name(other)):
        assert (one < other) == (step_name(one) < step_name(other))


@pytest.mark.parametrize("name", ["5", "00000000000x", "0000000000012", "epochs", "", "²" * 12])
def test_other_names_are_no_steps(name: str) -> None:
    assert step_of(name) is None


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_a_sealed_record_comes_back(body: dict[str, Json]) -> None:
    assert unseal(seal(body)) == body


def test_every_flipped_bit_and_every_cut_breaks_the_seal() -> None:
    data = manifest().to_bytes()
    for position in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            with pytest.raises(ManifestDamaged):
                Manifest.parse(bytes(changed))
        with pytest.raises(ManifestDamaged):
            Manifest.parse(data[:position])


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\0" * 100, b"null", b"[" * 100_000])
def test_garbage_is_a_damaged_manifest(data: bytes) -> None:
    with pytest.raises(ManifestDamaged):
        Manifest.parse(data)


def test_receipts_and_manifests_come_back() -> None:
    assert Receipt.from_json(receipt(1).to_json()) == receipt(1)
    assert Manifest.parse(manifest(3).to_bytes()) == manifest(3)
    copied = replace(receipt(1), copied_from=PLAIN)
    assert Receipt.from_json(copied.to_json()) == copied
    assert copied.as_saved == replace(receipt(1), **asdict(PLAIN))
    assert receipt(1).as_saved == receipt(1)


def test_a_manifest_has_the_lowest_format_that_says_all_of_it() -> None:
    first, second = manifest().receipts
    shared = replace(first, bases={"shard-00000.from-000000000001.1.0.g0.h5": 9})
    smaller = replace(second, copied_from=PLAIN)
    for receipts, number in (((first, second), 1), ((shared, second), 2), ((shared, smaller), 3)):
        assert replace(manifest(), receipts=receipts).format == number


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rank", 2),
        ("rank", -1),
        ("rank", True),
        ("rank", 1),
        ("step", "7"),
        ("step", None),
        ("file", "../shard-00000.h5"),
        ("seconds", 1),
        ("attempt", "../x"),
        ("surplus", 1),
    ],
)
def test_a_sealed_receipt_that_makes_no_sense_is_refused(name: str, value: Json) -> None:
    with pytest.raises(ValueError):  # each names another field
        Receipt.from_json(seal(receipt().to_body() | {name: value}))


def test_a_manifest_needs_every_rank_once() -> None:
    whole = manifest(3)
    first, second, third = whole.receipts
    for receipts in [(), (first,), (first, third), (first, second, second), (second, first, third)]:
        with pytest.raises(ManifestDamaged, match=r"missing|each once"):
            Manifest.parse(replace(whole, receipts=receipts).to_bytes())
    foreign = replace(whole, receipts=(first, second, replace(third, step=6)))
    with pytest.raises(ManifestDamaged, match="rank 2 belongs to another save"):
        Manifest.parse(foreign.to_bytes())


def test_a_sound_manifest_of_a_later_format_is_not_damage() -> None:
    with pytest.raises(FormatUnknown, match="format 4"):
        Manifest.parse(seal(manifest().to_body() | {"format": 4}))


def test_later_steps_and_later_commits_are_newer() -> None:
    old = manifest()
    assert replace(old, step=8, epoch=1).order > old.order
    assert replace(old, epoch=4, created="2020").order > old.order
