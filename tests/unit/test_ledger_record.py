"""Records as files: what was written is read back, and nothing else passes for one."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.errors import UsageError
from relight.resilience.ledger.faults import Fault
from relight.resilience.ledger.record import (
    CLOCK_ERROR_S,
    MAX_GPUS,
    MAX_LINES,
    MAX_RELEASED,
    MAX_TTL_S,
    Evidence,
    Identity,
    Record,
    RecordDamaged,
    Release,
    check_node_name,
    from_bytes,
    to_bytes,
)
from relight.resilience.ledger.store import MAX_RECORD_BYTES

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
LINES = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=50)
TIMES = st.floats(0, 1e12)
EVIDENCE = st.builds(
    Evidence,
    cluster=LINES,
    node=NAMES,
    fault=st.sampled_from(Fault),
    lines=st.lists(LINES, min_size=1, max_size=MAX_LINES).map(tuple),
    weight=st.floats(0, 1),
    ttl_s=st.floats(0, MAX_TTL_S),
    first_seen=st.floats(0, 1e6),
    last_seen=st.floats(1e6, 1e12),
    run_id=LINES,
    identity=st.builds(Identity, LINES, st.lists(LINES, max_size=8).map(tuple)),
)
RECORDS = EVIDENCE | st.builds(
    Release,
    cluster=LINES,
    node=NAMES,
    time=TIMES,
    reason=LINES,
    faults=st.lists(st.sampled_from(Fault), max_size=3).map(tuple),
    released=st.lists(st.tuples(LINES, TIMES), max_size=3).map(tuple),
)

SOUND: dict[str, object] = {
    "kind": "evidence",
    "cluster": "mini",
    "node": "n1",
    "fault": "hardware",
    "lines": ["Xid 79"],
    "weight": 1,
    "ttl_s": 60,
    "first_seen": 1,
    "last_seen": 2,
    "run_id": "a",
    "identity": {"boot_id": "b", "gpus": []},
}


@given(RECORDS)
def test_round_trip(record: Record) -> None:
    assert from_bytes(to_bytes(record)) == record


def test_the_sound_one_is_sound() -> None:
    assert isinstance(from_bytes(json.dumps(SOUND).encode()), Evidence)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "gossip"},
        {"kind": None},
        {"node": "../../etc/passwd"},
        {"node": "-w"},
        {"node": ""},
        {"fault": "age"},
        {"lines": "Xid 79"},
        {"lines": [79]},
        {"lines": ["x"] * (MAX_LINES + 1)},
        {"weight": 2},
        {"weight": 10**400},
        {"first_seen": 10**400},
        {"first_seen": 3},
        {"first_seen": 1e300, "last_seen": 1e301},
        {"weight": True},
        {"weight": float("nan")},
        {"ttl_s": 1e12},
        {"ttl_s": -1},
        {"last_seen": "now"},
        {"identity": None},
        {"identity": {}},
    ],
)
def test_nonsense(change: dict[str, object]) -> None:
    with pytest.raises(RecordDamaged):
        from_bytes(json.dumps({**SOUND, **change}).encode())


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"1", b"{}", b"\xff", json.dumps(SOUND).encode()[:-9], b"[" * 30000]
)
def test_torn(data: bytes) -> None:
    with pytest.raises(RecordDamaged):
        from_bytes(data)


@pytest.mark.parametrize(
    "released", [None, ["x"], [["x"]], [["x", "y"]], [[1, 2]], [["x", 1]] * (MAX_RELEASED + 1)]
)
def test_nonsense_of_what_is_released(released: object) -> None:
    word = {"kind": "release", "cluster": "mini", "node": "n1", "time": 3, "reason": "repaired"}
    with pytest.raises(RecordDamaged):
        from_bytes(json.dumps({**word, "released": released}).encode())


def test_what_others_wrote_cannot_steer_a_terminal() -> None:
    wicked = {**SOUND, "lines": ["\x1b[2J\nroot# "]}
    record = from_bytes(json.dumps(wicked).encode())
    assert isinstance(record, Evidence)
    assert record.lines == ("?[2J root# ",)


def test_what_is_too_long_is_cut_and_can_be_read_back() -> None:
    sound = from_bytes(json.dumps(SOUND).encode())
    assert isinstance(sound, Evidence)
    lines = tuple(f"{number}: " + "\U0001f525\udcff" * 800 for number in range(3 * MAX_LINES))
    identity = Identity("b", tuple(f"board {number}" for number in range(1000)))
    data = to_bytes(dataclasses.replace(sound, lines=lines, identity=identity))
    assert len(data) < MAX_RECORD_BYTES
    kept = from_bytes(data)
    assert isinstance(kept, Evidence)
    assert [line[:4] for line in kept.lines] == [f"{number}: " for number in range(40, 60)]
    assert kept.identity.gpus == identity.gpus[:MAX_GPUS]


def test_a_node_name_that_is_none() -> None:
    assert check_node_name("gpu-001.site") == "gpu-001.site"
    with pytest.raises(UsageError, match="not the name of a node"):
        check_node_name("n1/..")


@given(EVIDENCE, EVIDENCE)
def test_seeing_it_again_keeps_the_beginning_and_the_newest_lines(
    first: Evidence, again: Evidence
) -> None:
    both = first.later(again)
    if first.last_seen > again.last_seen + CLOCK_ERROR_S:  # by a wrong clock
        assert both == again
        return
    assert both.first_seen == min(first.first_seen, again.first_seen)
    assert both.last_seen == again.last_seen
    newest = tuple(dict.fromkeys(again.lines))[-MAX_LINES:]
    assert both.lines[len(both.lines) - len(newest) :] == newest
    assert len(both.lines) <= MAX_LINES


def test_a_release_without_faults_means_all() -> None:
    """As earlier releases of relight wrote it."""
    word = {"kind": "release", "cluster": "mini", "node": "n1", "time": 3, "reason": "repaired"}
    release = from_bytes(json.dumps(word).encode())
    evidence = from_bytes(json.dumps(SOUND).encode())
    assert isinstance(release, Release)
    assert isinstance(evidence, Evidence)
    assert release.covers(evidence)
    assert not dataclasses.replace(release, faults=(Fault.SLOW,)).covers(evidence)
