"""The simulated run against what is published, and against what must be so."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import mean

import pytest
from click.testing import CliRunner

from relight.launcher.cli.interval import command as interval
from relight.launcher.cli.simulate import command as simulate_verb
from relight.launcher.simulation import Model, simulate
from relight.resilience.decide.cadence import NODE_FAILURE_RATE, daly_s, meta_share, useful_share

DAY_S = 86400.0
MODEL = Model(
    nodes=128,
    spares=0,
    node_rate=NODE_FAILURE_RATE,
    save_s=60.0,
    interval_s=3480.0,
    restart_s=600.0,
    queue_s=0.0,
    wall_s=200 * DAY_S,
)


@pytest.mark.parametrize(("nodes", "save_s"), [(16, 300.0), (128, 60.0), (128, 300.0), (512, 60.0)])
def test_it_is_within_five_percent_of_metas_formula(nodes: int, save_s: float) -> None:
    mttf_s = 1 / (nodes * NODE_FAILURE_RATE)
    every_s = daly_s(save_s, mttf_s)
    model = replace(MODEL, nodes=nodes, save_s=save_s, interval_s=every_s)
    share = mean(simulate(model, seed).useful_share for seed in range(3))
    assert share == pytest.approx(meta_share(every_s, save_s, 600.0, mttf_s), rel=0.05)
    assert share == pytest.approx(useful_share(every_s, save_s, 600.0, mttf_s), rel=0.05)


def test_all_time_is_accounted_for_and_a_seed_repeats_it() -> None:
    tally = simulate(MODEL, 7)
    assert tally.wall_s == pytest.approx(MODEL.wall_s)
    assert tally == simulate(MODEL, 7)
    assert tally != simulate(MODEL, 8)
    assert tally.failures == pytest.approx(MODEL.wall_s * 128 * NODE_FAILURE_RATE, rel=0.25)


def test_each_spare_saves_an_allocation() -> None:
    model = replace(MODEL, queue_s=7200.0)
    none, two = simulate(model, 1), simulate(replace(model, spares=2), 1)
    assert none.allocations == none.failures + 1
    assert two.allocations == two.failures // 3 + 1
    assert two.useful_share > none.useful_share


def test_where_no_save_is_reached_the_machine_gives_up() -> None:
    tally = simulate(replace(MODEL, node_rate=NODE_FAILURE_RATE * 1000, spares=64), 1)
    assert tally.stopped is not None
    assert "no newer checkpoint" in tally.stopped


def test_an_interval_for_numbers_does_not_speak_of_what_was_measured() -> None:
    told = CliRunner().invoke(interval, ["--nodes", "8", "--save-s", "30"]).output
    assert "costs the steps 30 s: what they wait, and a 20th of the rest (as given)" in told


def test_the_verb_compares_like_with_like() -> None:
    """In its table runs wait in the queue for new nodes, which the formula leaves out."""
    words = ["--nodes", "512", "--days", "3", "--json"]
    told = json.loads(CliRunner().invoke(simulate_verb, words).output)
    assert told["share_without_queue"] == pytest.approx(told["meta_share"], rel=0.05)
    assert told["runs"][0]["useful_share"] < told["share_without_queue"]


def test_a_few_nodes_are_saved_as_often_as_by_auto() -> None:
    told = CliRunner().invoke(simulate_verb, ["--nodes", "8", "--days", "1"]).output
    assert "a failure every 461.5 h, a save every 60.0 min" in told
