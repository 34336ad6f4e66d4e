"""Runs whose files are closed to their user, or damaged: they are told, not passed over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from relight.launcher.cli.main import relight
from relight.resilience.config import RunConfig


def test_what_cannot_be_read_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_config: RunConfig
) -> None:
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path))
    for name in ("closed", "torn"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    plan = {"version": 1, "cluster": "local", "submitted_by": "test", "created": 0}
    whole = json.dumps({**plan, "run": run_config.to_json()})
    (tmp_path / "runs" / "closed" / "plan.json").write_text(whole)
    (tmp_path / "runs" / "closed" / "journal").touch()  # no folder: that root cannot list, either
    (tmp_path / "runs" / "torn" / "plan.json").write_text(whole[:50])
    told = CliRunner().invoke(relight, ["status"])
    assert told.exit_code == 0
    assert "repair: [Errno 20] Not a directory" in told.stdout
    assert f"{tmp_path}/runs/torn/plan.json is damaged" in told.stderr
    end = {"state": "FAILED", "exit_code": 1, "cause": "c", "reason": "r", "tail": [], "time": 1.0}
    verdict = tmp_path / "runs" / "closed" / "verdict.json"
    verdict.write_text(json.dumps(end))
    for words in (["history"], ["replay"], ["run", "--resume"]):
        fault = CliRunner().invoke(relight, [*words, f"{tmp_path}/runs/closed"]).exception
        assert isinstance(fault, NotADirectoryError), "it is no run without a past"
    assert json.loads(verdict.read_text()) == end, "which is all that is known of it"
