"""What records mean as time passes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.resilience.ledger.faults import DAY_S, HOUR_S, RULES, Fault
from relight.resilience.ledger.record import (
    MAX_TTL_S,
    Evidence,
    Identity,
    Record,
    Release,
    from_bytes,
    to_bytes,
)
from relight.resilience.ledger.score import (
    ENOUGH,
    HALF_LIFE_S,
    Standing,
    changed_hardware,
    is_over,
    release_of,
    seen_by,
    standings,
)
from relight.resilience.ledger.ticket import ticket

T0 = 1_800_000_000.0


def evidence(
    fault: Fault = Fault.HARDWARE, run_id: str = "a", seen: float = T0, node: str = "n1"
) -> Evidence:
    return Evidence(
        cluster="mini",
        node=node,
        fault=fault,
        lines=(f"gpu 0: {fault}",),
        weight=RULES[fault].weight,
        ttl_s=RULES[fault].ttl_s,
        first_seen=seen,
        last_seen=seen,
        run_id=run_id,
        identity=Identity("boot-1", ("S1",)),
    )


def release(time: float) -> Release:
    return Release(cluster="mini", node="n1", time=time, reason="by hand")


def at(now: float, *records: Record) -> Standing | None:
    found = standings(records, now)
    assert len(found) <= 1
    return found[0] if found else None


def avoided(now: float, *records: Record) -> bool:
    found = at(now, *records)
    return found is not None and found.avoided


@pytest.mark.parametrize("fault", [fault for fault in Fault if RULES[fault].weight >= ENOUGH])
def test_evidence_counts_until_it_expires(fault: Fault) -> None:
    ends = T0 + RULES[fault].ttl_s
    assert avoided(ends - 1, evidence(fault))
    assert not avoided(ends, evidence(fault))


def test_how_long_each_kind_counts() -> None:
    days = {fault.value: rule.ttl_s / DAY_S for fault, rule in RULES.items()}
    assert days == {
        "hardware": 14,
        "network": 1,
        "slow": 3,
        "lost": 1,
        "condition": 0.25,
        "program": 0.25,
        "trend": 14,
        "by hand": 14,
    }


@pytest.mark.parametrize("fault", [Fault.PROGRAM, Fault.TREND])
def test_weak_evidence_alone_is_not_enough_and_two_runs_are(fault: Fault) -> None:
    one, other = evidence(fault, "a"), evidence(fault, "b")
    assert not avoided(T0, one)
    assert avoided(T0, one, other)


def test_the_score_halves_in_a_week() -> None:
    fresh, old = at(T0, evidence()), at(T0 + HALF_LIFE_S, evidence())
    assert fresh is not None
    assert old is not None
    assert (fresh.score, old.score) == (1.0, 0.5)


def test_a_lemon_is_three_runs_in_28_days() -> None:
    weekly = [evidence(Fault.CONDITION, run, T0 + i * 7 * DAY_S) for i, run in enumerate("abc")]
    now = T0 + 20 * DAY_S
    found = at(now, *weekly)
    assert found is not None
    assert (found.lemon, found.avoided, found.runs) == (True, True, ("c", "b", "a"))
    assert found.until == T0 + 28 * DAY_S
    assert not avoided(T0 + 28 * DAY_S + 1, *weekly)
    assert not avoided(now, *weekly[:2])


def test_what_three_runs_see_at_once_is_one_event() -> None:
    ends = T0 + RULES[Fault.LOST].ttl_s
    at_once = [evidence(Fault.LOST, run, T0 - 20 * n) for n, run in enumerate("abc")]
    assert not avoided(ends + 1, *at_once)
    apart = [evidence(Fault.LOST, run, T0 - 3600 * n) for n, run in enumerate("abc")]
    assert avoided(ends + 1, *apart)


def test_the_same_run_three_times_is_no_lemon() -> None:
    kinds = [Fault.CONDITION, Fault.NETWORK, Fault.SLOW]
    assert not avoided(T0 + 4 * DAY_S, *(evidence(kind) for kind in kinds))


def test_program_errors_and_hands_make_no_lemon() -> None:
    for fault in (Fault.PROGRAM, Fault.HAND):
        records = [replace(evidence(fault, run), ttl_s=HOUR_S) for run in "abcd"]
        assert not avoided(T0 + DAY_S, *records)


def test_a_release_ends_what_was_seen_before_it() -> None:
    assert not avoided(T0 + 2, evidence(), release(T0 + 1))
    assert at(T0 + 2, evidence(), release(T0 + 1)) is None
    assert avoided(T0 + 3, evidence(seen=T0 + 2), release(T0 + 1))


@pytest.mark.parametrize("clock_s", [0.0, 20 * HOUR_S, -20 * HOUR_S, 400 * DAY_S])
def test_a_release_covers_what_was_known_whatever_clocks_say(clock_s: float) -> None:
    ahead = evidence(run_id="b", seen=T0 + 20 * HOUR_S)
    held = at(T0, evidence(), ahead)
    assert held is not None
    word = release_of(held, "repaired", T0 + clock_s)
    assert at(T0, evidence(), ahead, word) is None
    for again in (
        evidence(run_id="c", seen=T0 + 1),
        evidence().later(evidence(seen=T0 + 1)),
        ahead.later(evidence(run_id="b", seen=T0 + 1)),
    ):
        assert avoided(T0 + 2, again, word), "what is seen later counts"
        held = at(T0 + 2, again)
        assert held is not None
        both = word.later(release_of(held, "again", T0 + 2))
        assert at(T0 + 2, evidence(), ahead, again, both) is None


def test_one_release_is_enough_for_many_records() -> None:
    records = [evidence(run_id=f"run {number}", seen=T0 + number) for number in range(500)]
    held = at(T0, *records)
    assert held is not None
    word = release_of(held, "repaired", T0)
    assert at(T0, *records, word) is None
    assert from_bytes(to_bytes(word)) == word


def test_a_release_with_a_wrong_clock_forgives_nothing() -> None:
    word = Release(cluster="mini", node="n1", time=T0 + 400 * DAY_S, reason="by hand")
    assert at(T0, evidence(), word) is not None


def test_a_record_with_a_wrong_clock_does_not_count() -> None:
    assert avoided(T0, evidence(seen=T0 + HOUR_S))
    assert not avoided(T0, evidence(seen=T0 + 30 * DAY_S))


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        (Identity("boot-1", ("S1",)), False),
        (Identity("boot-2", ("S1",)), False),
        (Identity("boot-1", ("S2",)), False),
        (Identity("boot-2", ("S2",)), True),
        (Identity("boot-2", ()), False),
        (Identity("", ("S2",)), False),
    ],
)
def test_another_machine_has_other_gpus_after_a_boot(now: Identity, changed: bool) -> None:
    assert changed_hardware(Identity("boot-1", ("S1",)), now) is changed


def test_a_part_of_the_boards_is_no_other_machine() -> None:
    whole, half = tuple(f"S{number}" for number in range(8)), ("S0", "S1", "S2", "S3")
    for then, now in ((whole, half), (half, whole), (whole, (*half, "new"))):
        assert not changed_hardware(Identity("boot-1", then), Identity("boot-2", now))
    one_replaced = Identity("boot-2", (*whole[:7], "new"))
    assert changed_hardware(Identity("boot-1", whole), one_replaced)


def test_nodes_come_worst_first_and_clusters_are_kept_apart() -> None:
    here = [evidence(run_id="a"), evidence(run_id="b"), evidence(node="n2")]
    there = replace(evidence(node="n2"), cluster="other")
    found = standings([*here, there], T0)
    assert [(one.cluster, one.node) for one in found] == [
        ("mini", "n1"),
        ("mini", "n2"),
        ("other", "n2"),
    ]


def test_a_file_may_go_when_its_record_can_never_count_again() -> None:
    """A release is over when the longest word that it may let go is."""
    word = replace(evidence(Fault.HAND), ttl_s=MAX_TTL_S)
    for record, days in ((evidence(Fault.CONDITION), 28), (release(T0), 90), (word, 90)):
        assert not is_over(record, T0 + (days - 1) * DAY_S)
        assert is_over(record, T0 + (days + 1) * DAY_S)


def test_a_ticket_says_all_that_an_administrator_needs() -> None:
    found = at(T0 + DAY_S, evidence(), evidence(Fault.NETWORK, "b", T0 + HOUR_S))
    assert found is not None
    assert ticket(found) == (
        "Node n1 (mini): network fault\n"
        "Seen from 2027-01-15 08:00:00Z to 2027-01-15 09:00:00Z by 2 independent runs: b, a\n"
        "Boot: boot-1\n"
        "GPUs: S1\n"
        "Evidence, newest first:\n"
        "- 2027-01-15 09:00:00Z b: gpu 0: network\n"
        "- 2027-01-15 08:00:00Z a: gpu 0: hardware\n"
        "Slurm was told nothing. To keep jobs away until it is repaired:\n"
        "  scontrol update NodeName=n1 State=DRAIN Reason='network fault'\n"
    )


def test_until_is_when_what_is_left_weighs_too_little() -> None:
    heavy, light = evidence(Fault.CONDITION, "a"), evidence(Fault.TREND, "b")
    for records in ([heavy, light], [evidence(Fault.PROGRAM, run) for run in "ab"]):
        found = at(T0 + HOUR_S, *records)
        assert found is not None
        assert found.until == T0 + 6 * HOUR_S
        assert not avoided(found.until, *records)
    two = at(T0 + HOUR_S, light, replace(light, run_id="c", last_seen=T0 + HOUR_S))
    assert two is not None
    assert two.until == T0 + 14 * DAY_S


def test_people_are_no_runs_and_their_newest_word_counts() -> None:
    first = replace(evidence(Fault.HAND, "by ann"), lines=("fan",))
    again = first.later(replace(first, lines=("fan", "burnt"), last_seen=T0 + 1))
    found = at(T0 + 2, again.later(replace(first, last_seen=T0 + 2)))
    assert found is not None
    assert (found.avoided, found.runs, seen_by(found)) == (True, (), "by ann")
    assert found.evidence[0].newest == "fan"
    told = ticket(found).splitlines()
    assert told[0] == "Node n1 (mini): excluded by hand"
    assert told[1] == "Seen from 2027-01-15 08:00:00Z to 2027-01-15 08:00:02Z"
    assert [line.rpartition(": ")[2] for line in told[5:7]] == ["fan", "burnt"]
    assert told[-1].endswith("Reason=fan")
    both = at(T0 + 2, again, evidence(run_id="lm-1"))
    assert both is not None
    assert seen_by(both) == "1 run, by ann"


TIMES = st.floats(T0, T0 + 60 * DAY_S)
RECORDS = st.lists(
    st.builds(evidence, st.sampled_from(Fault), st.sampled_from("abcd"), TIMES)
    | st.builds(release, TIMES),
    max_size=8,
)


@given(RECORDS, TIMES)
def test_without_news_every_node_is_forgiven(records: list[Record], now: float) -> None:
    found = at(now, *records)
    if found is not None and found.until is not None:
        assert found.until >= now
        assert not avoided(max(found.until, T0 + 61 * DAY_S) + 28 * DAY_S + 1, *records)


@given(RECORDS)
def test_a_release_now_forgives_everything(records: list[Record]) -> None:
    now = T0 + 61 * DAY_S
    assert at(now, *records, release(now)) is None
