"""Runs that must not go on: failed by their own fault, or cancelled."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from stage.run import Run, Spec, faulty, heat
from stage.site import PYTHON, RELIGHT, Site
from stage.whole import whole


@pytest.fixture
def site(generous: Site) -> Iterator[Site]:
    yield from whole(generous)


def program(code: str, **more: object) -> Spec:
    """A one-node run of a line of Python."""
    return {
        "name": "short",
        "command": [str(PYTHON), "-c", code],
        "resources": {"nodes": 1, "time": "0:05:00"},
        **more,
    }


def test_a_program_that_cannot_be_imported_is_stopped_and_its_last_lines_are_shown(
    site: Site,
) -> None:
    run = Run.submit(site, program("import no_such_module"))
    assert run.finish()["state"] == "FAILED", run.story()
    assert len(run.data_of("RanksStarted")) == 2, "a fault at start-up is tried once more"
    assert "no_such_module" in run.history()
    assert not site.jobs()


def test_exit_3_on_every_attempt_is_stopped_with_the_code_shown(site: Site) -> None:
    run = Run.submit(site, program("raise SystemExit(3)", restart={"failures": 1}))
    assert run.finish()["state"] == "FAILED", run.story()
    assert len(run.data_of("RanksStarted")) == 2
    assert "code 3" in run.history()


def test_a_cancelled_run_leaves_nothing_pending(site: Site) -> None:
    run = Run.submit(site, heat(steps=2000))
    run.wait_for_checkpoint(10)
    site.user(str(RELIGHT), "cancel", run.run_id)
    assert run.finish()["state"] == "CANCELLED", run.story()
    assert not site.jobs()


def test_cancel_between_attempts_leaves_nothing_pending(site: Site) -> None:
    run = Run.submit(site, heat(steps=2000))
    run.wait_for_checkpoint(10)
    site.preempt(seconds=600)  # the successor has to wait
    run.wait_for("Finish")
    run.wait(lambda: "PENDING" in site.user("squeue", "-h", f"--name={run.run_id}", "-o", "%T"))
    site.user(str(RELIGHT), "cancel", run.run_id)
    state = run.finish()
    assert state["state"] == "CANCELLED", run.story()
    assert len(run.data_of("AttemptStarted")) == 1


def test_scancel_by_the_user_is_final(site: Site) -> None:
    run = Run.submit(site, heat(steps=2000))
    run.wait_for_checkpoint(10)
    site.user("scancel", run.job_id)
    assert run.finish()["state"] == "CANCELLED", run.story()
    assert run.data_of("AllocationArranged") == []
    assert not site.jobs()


def test_a_signal_to_one_rank_saves_and_the_run_goes_on_in_place(site: Site, marker: Path) -> None:
    run = Run.submit(site, faulty(heat(), "wait", marker=marker, rank=2))
    run.wait_until_it_stands(marker)
    run.kill_rank(2, signal.SIGTERM)
    run.wait_for("SaveAndStop")
    marker.with_suffix(".go").touch()
    assert run.finish()["state"] == "COMPLETED", run.story()
    assert len(run.data_of("AttemptStarted")) == 1
    saved = [step for step in run.committed() if step % 10]
    assert len(saved) <= 1, "one emergency save at most, of a step that all ranks share"


def test_logs_hold_what_every_rank_printed(site: Site) -> None:
    run = Run.submit(site, program("import os; print('I am rank', os.environ['RANK'])"))
    run.finish()
    assert "I am rank 0" in site.user(str(RELIGHT), "logs", run.run_id)


def test_checkpoints_are_listed_and_verified(site: Site) -> None:
    run = Run.submit(site, heat())
    run.finish()
    listed = json.loads(site.user(str(RELIGHT), "ckpt", "ls", "--json", run.run_id))
    assert "120" in json.dumps(listed)
    site.user(str(RELIGHT), "ckpt", "verify", run.run_id)
