"""torchrun under Slurm: one on each node, whose ranks are saved, moved and blamed one by one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from stage.below_torchrun import counting
from stage.run import Run
from stage.site import PYTHON, Site
from stage.whole import assert_survived, whole

STEPS = 1200


@pytest.fixture
def site(generous: Site) -> Iterator[Site]:
    yield from whole(generous)


def test_ranks_of_torchrun_on_two_nodes_are_preempted_and_one_crashes(site: Site) -> None:
    program, go = site.shared / "ranks.py", site.shared / "go"
    program.write_text(counting(STEPS))
    program.chmod(0o644)
    command = [str(Path(PYTHON).with_name("torchrun")), str(program), str(go)]
    resources = {"nodes": 2, "tasks_per_node": 2, "memory": "2GB", "time": "0:20:00"}
    checkpoint = {"interval": "40 steps"}
    run = Run.submit(
        site,
        {"name": "t", "command": command, "resources": resources, "checkpoint": checkpoint},
    )
    run.wait_for_checkpoint(40)
    site.preempt(seconds=1)
    run.wait_for("Finish")
    assert run.cause_of_end() == "preempted", run.story()
    saved = run.committed()[-1]
    run.wait_for("RanksStarted", 2)
    assert run.data_of("RanksStarted")[1]["restored_step"] == saved, "to the last step"
    run.wait_for_checkpoint(saved + 1)
    run.kill_rank(3, signal.SIGSEGV)
    run.wait_for("RanksStarted", 3)
    crashed = f"crashed (rule crash): rank 3 on {run.nodes()[1]} ended by SIGSEGV"
    assert crashed in run.reasons("StartRanks")[-1], run.story()
    assert len(run.data_of("AttemptStarted")) == 2, "after the crash it went on in place"
    go.touch()
    assert_survived(run, str(sum(range(STEPS))))
