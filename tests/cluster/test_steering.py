"""A run under Slurm does what its user wants of it: save, leave a node, wait, go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from stage.local import UNDISTURBED, UNTIL_TOLD
from stage.run import Run
from stage.site import PYTHON, RELIGHT, Site
from stage.whole import whole


@pytest.fixture
def site(generous: Site) -> Iterator[Site]:
    yield from whole(generous)


def test_save_leave_a_node_hold_and_release(site: Site) -> None:
    program = site.shared / "steered.py"
    stop = site.shared / "stop"
    program.write_text(UNTIL_TOLD.format(stop=str(stop)))
    resources = {"nodes": 2, "time": "0:20:00"}
    command = [str(PYTHON), str(program)]
    checkpoint = {"interval": "1h"}
    run = Run.submit(
        site,
        {"name": "s", "command": command, "resources": resources, "checkpoint": checkpoint},
    )
    run.wait(lambda: isinstance(run.status()["step"], int))
    shown = site.user(str(RELIGHT), "exec", run.run_id, "--", "printenv", "RELIGHT_RUN_ID")
    assert shown.count(run.run_id) == 2, "once on each node"
    site.user(str(RELIGHT), "checkpoint", run.run_id)
    assert len(run.committed()) == 1
    left = run.nodes()[1]
    site.user(str(RELIGHT), "restart", run.run_id, "--exclude", left)
    run.wait_for("RanksStarted", 2)
    assert left not in run.nodes(), "it has no spare, so it went to other nodes"
    run.wait(lambda: isinstance(run.status()["step"], int))
    assert "is held" in site.user(str(RELIGHT), "hold", run.run_id)
    held = run.status()
    assert held["state"] == "RESTARTING"
    assert "`relight release` lets it go" in str(held["waits_for"])
    assert site.idle(), "its nodes are free"
    site.user(str(RELIGHT), "release", run.run_id)
    run.wait_for("RanksStarted", 3)
    stop.touch()
    assert run.finish()["state"] == "COMPLETED", run.story()
    assert site.user(str(RELIGHT), "logs", run.run_id).count(UNDISTURBED) == 2
    assert run.status()["excluded"] == [left]
    assert len(run.data_of("AttemptStarted")) == 3


def until_told(site: Site, name: str, **more: object) -> tuple[Run, Path]:
    """A run that goes on until there is a file."""
    program, stop = site.shared / f"{name}.py", site.shared / f"{name}.stop"
    program.write_text(UNTIL_TOLD.format(stop=str(stop)))
    spec: dict[str, object] = {
        "name": name,
        "command": [str(PYTHON), str(program)],
        "resources": {"nodes": 1, "time": "0:20:00"},
        "health": {"preflight": "off"},
        **more,
    }
    return Run.submit(site, spec), stop


def test_a_run_waits_for_another_over_its_restarts(site: Site) -> None:
    first, stop = until_told(site, "first")
    first.wait(lambda: isinstance(first.status()["step"], int))
    second, stop_second = until_told(site, "second", after=[first.run_id])
    stop_second.touch()
    site.user(str(RELIGHT), "restart", first.run_id, "--exclude", first.nodes()[0])
    first.wait_for("RanksStarted", 2)
    (arranged,) = first.data_of("AllocationArranged")
    waits = site.user("scontrol", "show", "job", second.job_id)
    assert f"Dependency=afterany:{arranged['job_id']}" in waits
    assert second.status()["state"] == "PENDING"
    stop.touch()
    assert first.finish()["state"] == "COMPLETED", first.story()
    assert second.finish()["state"] == "COMPLETED", second.story()
    started = second.records()[0]
    assert started.name == "AttemptStarted"
    assert started.time > first.records()[-1].time
    assert started.attempt == f"{second.job_id}.0", "it never started too early"
