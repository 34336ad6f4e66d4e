"""What `relight run` says at the end of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relight.launcher.cli.run import _last_word
from relight.launcher.launch_plan import LaunchPlan
from relight.launcher.run_creation import new_run_folder
from relight.launcher.runs import StoredRun, find_run
from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.exit_codes import EXIT_DONE, EXIT_FAILED
from relight.resilience.supervise.standing import write_verdict


@pytest.fixture
def run(run_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredRun:
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path / "home"))
    plan = LaunchPlan(cluster="local", config=run_config, script="")
    with new_run_folder(plan, "command: a") as folder:
        pass
    return find_run(str(folder.root))


@pytest.mark.parametrize(
    ("cause", "log", "where"),
    [
        ("preflight", False, "`relight history lm-0a1b2c` says why"),
        ("setup", False, "`relight logs lm-0a1b2c` has the output"),
        ("crash", True, "`relight logs lm-0a1b2c` has the output"),
    ],
)
def test_it_names_the_verb_that_tells_more(
    run: StoredRun, cause: str, log: bool, where: str
) -> None:
    if log:
        output = run.folder.rank_log("local.0", 0, 0)
        output.parent.mkdir(parents=True)
        output.touch()
        run.folder.journals.mkdir(parents=True, exist_ok=True)
        Path(run.folder.journals, "local.0.jsonl").touch()
    order = Finish(outcome=Outcome.FAILED, exit_code=EXIT_FAILED, cause=cause, reason="")
    write_verdict(run.folder, order, 0.0)
    assert where in _last_word(run, None, EXIT_FAILED)


def test_a_job_that_was_at_its_end_already_is_told_as_such(run: StoredRun) -> None:
    def word(reached: int) -> str:
        run.folder.progress.write_text(json.dumps({"step": reached}))
        return _last_word(run, None, EXIT_DONE)

    run.folder.journals.mkdir(parents=True, exist_ok=True)
    start = {"place": 1, "time": 1.0, "kind": "event", "name": "RanksStarted"}
    line = json.dumps({**start, "data": {"restored_step": 100}}) + "\n"
    Path(run.folder.journals, "local.0.jsonl").write_text(line)
    write_verdict(
        run.folder, Finish(outcome=Outcome.COMPLETED, exit_code=0, cause="", reason=""), 0.0
    )
    assert "no step was done: the checkpoint of step 100" in word(100)
    assert "no step" not in word(140)
