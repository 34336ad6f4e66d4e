"""A bad node is left, remembered, and avoided by the next run, on a real Slurm."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from health.plugin import install
from stage.run import Run, Spec, faulty, heat
from stage.site import PYTHON, RELIGHT, Site
from stage.whole import assert_survived, whole

SLOW = """
import time
from relight.resilience.ledger.apart import default_ledger
from relight.resilience.ledger.faults import Fault
from relight.resilience.ledger.record import Evidence
default_ledger().add(Evidence(cluster="mini", node="n1", fault=Fault.SLOW, lines=("product: 0.5",),
    weight=1.0, ttl_s=3600.0, first_seen=time.time(), last_seen=time.time(), run_id="a"))
"""


@pytest.fixture
def site(generous: Site) -> Iterator[Site]:
    yield from whole(generous)


def ledger(site: Site) -> dict[str, dict[str, object]]:
    answer = json.loads(site.user(str(RELIGHT), "nodes", "ls", "--json"))
    return {node["node"]: node for node in answer["nodes"]}


def test_a_bad_node_is_left_and_the_next_run_avoids_it(site: Site) -> None:
    resources = {"nodes": 2, "spares": 1, "tasks_per_node": 1, "memory": "1GB", "time": "0:20:00"}
    command = 'test "$SLURMD_NODENAME" != n1 || { echo burnt; exit 1; }'
    sick = heat(resources=resources, health={"site_command": command}, sbatch={"nodelist": "n1"})
    first = Run.submit(site, sick)
    assert first.finish()["state"] == "COMPLETED", first.story()
    assert "n1" in [data["node"] for data in first.data_of("ExcludeNode")], first.story()

    held = ledger(site)["n1"]
    assert held["avoided"], held
    assert "burnt" in json.dumps(held)

    second = Run.submit(site, heat(steps=20))
    assert "#SBATCH --exclude=n1\n" in (second.root / "job.sh").read_text()
    assert second.finish()["state"] == "COMPLETED", second.story()
    assert "n1" not in second.nodes()

    site.user(str(RELIGHT), "nodes", "release", "n1", "--reason", "repaired")
    assert ledger(site) == {}


def test_what_all_nodes_fail_is_held_against_none(site: Site) -> None:
    run = Run.submit(site, heat(steps=20, health={"site_command": "echo nonsense; exit 1"}))
    assert run.finish()["state"] == "COMPLETED", run.story()
    assert run.data_of("ExcludeNode") == [], run.story()
    assert "it is not the nodes" in json.dumps(run.data_of("PreflightFinished"), ensure_ascii=False)
    assert ledger(site) == {}


def test_one_node_after_another_that_fails_alike_ends_the_run(site: Site) -> None:
    resources = {"nodes": 1, "memory": "1GB", "time": "0:20:00"}
    health = {"min_free_memory": "900TB"}
    run = Run.submit(site, heat(steps=20, resources=resources, health=health))
    assert run.finish()["state"] == "FAILED", run.story()
    left = [data["node"] for data in run.data_of("ExcludeNode")]
    assert len(set(left)) == len(run.data_of("AttemptStarted")) == 3, run.story()
    (*_, end) = run.data_of("Finish")
    assert "fail alike (memory), so it is not the nodes" in str(end["reason"])
    assert not any(ledger(site)[str(node)]["avoided"] for node in left)


def test_a_node_in_the_ledger_is_tested_and_released(site: Site) -> None:
    site.user(str(PYTHON), "-P", "-c", SLOW)
    assert ledger(site)["n1"]["avoided"]
    asked = heat(steps=20, sbatch={"nodelist": "n1"})  # by name, so that it is not excluded
    run = Run.submit(site, asked)
    assert run.finish()["state"] == "COMPLETED", run.story()
    assert "n1" in run.nodes()
    assert ledger(site) == {}


def test_nodes_of_a_live_run_are_looked_at_by_hand(site: Site) -> None:
    resources = {"nodes": 3, "tasks_per_node": 1, "memory": "1GB", "time": "0:20:00"}
    run = Run.submit(site, heat(steps=100_000, resources=resources))
    run.wait_for_checkpoint(10)
    answer = json.loads(site.user(str(RELIGHT), "preflight", run.run_id, "--json"))
    assert answer["bad"] == {}
    assert set(answer["nodes"]) == set(run.nodes())
    for report in answer["nodes"].values():
        reached = [r for r in report["results"] if r["check"] == "peers"]
        assert reached[0]["evidence"] == "2 answered"
    pairs = json.loads(site.user(str(RELIGHT), "preflight", run.run_id, "--pairs", "--json"))
    assert (pairs["bad"], pairs["unclear"]) == ({}, [])
    assert len(pairs["rates"]) == 2
    assert all(pairs["rates"].values())


def test_a_node_that_turns_bad_under_its_ranks_is_left_with_no_lost_step(
    site: Site, marker: Path, undisturbed: Callable[[Site, Callable[..., Spec]], str]
) -> None:
    digest = undisturbed(site, heat)  # first: a later run would test the node, and release it
    flags = install(site.shared / "smoke")
    spec = heat(
        resources={"nodes": 2, "spares": 1, "tasks_per_node": 2, "memory": "1GB"},
        checkpoint={"interval": "1000 steps"},
        health={"during": "1s"},
        restart={"hang": "off"},
        setup=[f"export PYTHONPATH={flags}"],
    )
    run = Run.submit(site, faulty(spec, "wait", marker=marker))
    run.wait(marker.exists)
    bad = run.nodes()[1]
    (flags / f"burnt-{bad}").touch()
    run.wait_for("SaveAndStop", limit_s=240)  # nodes are watched at the lowest priority
    marker.with_suffix(".go").touch()
    assert_survived(run, digest)
    (excluded,) = run.data_of("ExcludeNode")
    assert (excluded["node"], excluded["cause"]) == (bad, "degraded"), run.story()
    assert run.data_of("StopRanks") == [], run.story()
    saved, last = run.committed()
    assert run.data_of("RanksStarted")[1]["restored_step"] == saved < last, run.story()
    assert f"{bad} turns bad while ranks run: smoke: it is burnt" in run.history()
    assert ledger(site)[bad]["avoided"]
