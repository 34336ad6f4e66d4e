"""Each task of an array gets a run folder of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from relight.launcher.array_task import folder_of
from relight.launcher.stored_plan import PLAN_VERSION, read_plan
from relight.resilience.config import RunConfig


@pytest.fixture
def root(tmp_path: Path, run_config: RunConfig) -> Path:
    root = tmp_path / "runs" / run_config.run_id
    root.mkdir(parents=True)
    run = replace(run_config, run_dir=root).to_json()
    plan = {"version": PLAN_VERSION, "cluster": "slurm", "run": run}
    (root / "plan.json").write_text(json.dumps({**plan, "submitted_by": "u", "created": 1.0}))
    return root


def test_an_ordinary_job_has_the_folder_that_was_made_for_it(root: Path) -> None:
    assert folder_of(root, {}) == root


def test_a_task_has_its_own_and_finds_it_again(root: Path) -> None:
    folder = folder_of(root, {"SLURM_ARRAY_TASK_ID": "7"})
    config = read_plan(folder).config
    assert (config.run_dir, config.run_id) == (folder, f"{root.name}_7")
    assert config.checkpoint.directory == folder / "checkpoints"
    assert (root.parent / config.run_id).resolve() == folder.resolve()
    assert folder_of(root, {"SLURM_ARRAY_TASK_ID": "7"}) == folder
    assert folder_of(root, {"SLURM_ARRAY_TASK_ID": "8"}) != folder
