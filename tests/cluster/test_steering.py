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
    assert held["state"] == "HELD"
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


def test_each_run_of_a_sweep_restarts_by_itself(site: Site) -> None:
    program, stop = site.shared / "swept.py", site.shared / "swept.stop"
    text = UNTIL_TOLD.format(stop=str(stop))
    program.write_text(f"{text}import sys\nprint('point', sys.argv[1])\n")
    spec: dict[str, object] = {
        "name": "swept",
        "command": [str(PYTHON), str(program), "${sweep.n}"],
        "sweep": {"n": [7, 8]},
        "resources": {"nodes": 1, "time": "0:20:00"},
        "health": {"preflight": "off"},
    }
    sweep = Run.submit(site, spec)
    runs = [
        Run(site, f"{sweep.run_id}_{n}", f"{sweep.job_id}_{n}", sweep.root / "tasks" / str(n))
        for n in (0, 1)
    ]
    for run in runs:
        run.wait(lambda run=run: (run.root / "progress.json").exists())  # type: ignore[misc]
        run.wait(lambda run=run: isinstance(run.status()["step"], int))  # type: ignore[misc]
    site.user(str(RELIGHT), "restart", runs[1].run_id, "--exclude", runs[1].nodes()[0])
    runs[1].wait_for("RanksStarted", 2)
    assert runs[1].data_of("AllocationArranged")[0]["mode"] == "successor"
    assert len(runs[0].data_of("RanksStarted")) == 1
    assert sweep.status()["tasks"] == {"STARTED": 2}
    stop.touch()
    for run, point in zip(runs, ("point 7", "point 8"), strict=True):
        assert run.finish()["state"] == "COMPLETED", run.story()
        said = site.user(str(RELIGHT), "logs", run.run_id)
        assert (said.count(UNDISTURBED), said.count(point)) == (1, 1)
    assert sweep.status()["state"] == "COMPLETED"


def test_a_cancelled_sweep_leaves_nothing(site: Site) -> None:
    spec: dict[str, object] = {
        "name": "swept",
        "command": ["sleep", "300"],
        "sweep": {"n": [1, 2, 3]},
        "at_once": 2,
        "resources": {"nodes": 1, "time": "0:20:00"},
        "health": {"preflight": "off"},
    }
    sweep = Run.submit(site, spec)
    sweep.wait(lambda: sweep.status()["tasks"] == {"STARTED": 2, "WAITING": 1})
    site.user(str(RELIGHT), "cancel", sweep.run_id)
    assert sweep.status()["state"] == "CANCELLED"
    assert not site.jobs()
    assert not (sweep.root / "tasks" / "2" / "journal").exists(), "it never came to start"


def test_a_sweep_that_is_too_large_for_one_array_is_waited_for_as_a_whole(site: Site) -> None:
    output = site.shared / "points"
    more: dict[str, object] = {
        "resources": {"nodes": 1, "time": "0:20:00"},
        "health": {"preflight": "off"},
    }
    words = f"until [ -e {output}.go ]; do sleep 0.1; done; echo $0 >> {output}"
    spec = {"command": ["bash", "-c", words, "${sweep.n}"], "sweep": {"n": [1, 2, 3, 4, 5]}}
    sweep = Run.submit(site, {"name": "wide", **spec, **more})
    last = {"command": ["bash", "-c", f"echo last >> {output}"], "after": [sweep.run_id]}
    after = Run.submit(site, {"name": "after", **last, **more})
    arrays = site.user(
        "squeue", "-h", "-r", "-o", "%F %K", "-n", f"{sweep.run_id},{sweep.run_id}.3"
    )
    tasks = [line.split() for line in arrays.splitlines()]
    assert sorted(task for _, task in tasks) == ["0", "0", "1", "1", "2"]
    assert len({job for job, _ in tasks}) == 2, "MaxArraySize is 3"
    waits = site.user("squeue", "-h", "-j", after.job_id, "-o", "%T %r")
    assert waits == "PENDING Dependency\n"
    site.user("touch", f"{output}.go")
    assert after.finish()["state"] == "COMPLETED", after.story()
    written = output.read_text().split()
    assert (sorted(written[:-1]), written[-1]) == (["1", "2", "3", "4", "5"], "last")
    assert sweep.status()["state"] == "COMPLETED"
