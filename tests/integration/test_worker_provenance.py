"""A checkpoint knows the code, the packages and the job that it comes from, and no secrets."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from relight.resilience.worker.errors import ProtectRefused
from relight.resilience.worker.join import join
from relight.storage.choose import newest_valid
from relight.storage.layout import code_path, manifest_path
from relight.storage.manifest import Manifest

PROGRAM = """
import relight
run = relight.join()
run.note(data="sha256:1234", shards=12)
for step in run.steps(1):
    pass
"""

SPEC = """
name: a
command: python train.py
resources: {nodes: 2, time: "1:00:00"}
env: {OMP_NUM_THREADS: "2", KEY: hunter2}
secrets: {TOKEN: {file: ~/hunter2}}
setup: [export OTHER=hunter2]
notify: {webhook: "https://example.org/hunter2", on: [failed]}
components: [{nodes: 1, env: {KEY: hunter2}}]
"""


def run_in(folder: Path, program: Path, **environment: str) -> Manifest:
    directory = folder / "checkpoints"
    variables = {"RELIGHT_CHECKPOINT_DIR": str(directory), "MY_TOKEN": "hunter2"}
    subprocess.run(
        [sys.executable, str(program)],
        env=os.environ | variables | environment,
        cwd=folder,
        timeout=60,
        check=True,
    )
    manifest = newest_valid(directory)
    assert manifest is not None
    assert b"hunter2" not in manifest_path(directory, manifest.step).read_bytes()
    return manifest


def git(folder: Path, *words: str) -> bytes:
    names = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(
        ["git", "-C", str(folder), *names, *words], capture_output=True, check=True
    )
    return done.stdout


def test_of_a_work_tree_the_commit_and_what_was_changed_since(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    program = tree / "train.py"
    program.write_text(PROGRAM)
    git(tree, "init", "-q")
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "first")
    head = git(tree, "rev-parse", "HEAD").decode().strip()
    (tmp_path / "clean").mkdir()
    assert run_in(tmp_path / "clean", program).provenance["code"] == {
        "commit": head,
        "dirty": False,
        "tree": str(tree),
    }
    program.write_text(PROGRAM + "# changed\n")
    (tree / "new.py").write_text("")
    (tmp_path / "dirty").mkdir()
    found = run_in(tmp_path / "dirty", program).provenance
    diff = git(tree, "diff", "HEAD")
    digest = hashlib.sha256(diff).hexdigest()
    expected = {
        "commit": head,
        "dirty": True,
        "tree": str(tree),
        "untracked": 1,
        "diff_sha256": digest,
    }
    assert found["code"] == expected
    stored = code_path(tmp_path / "dirty/checkpoints", digest)
    assert stored.read_bytes() == diff
    assert stored.stat().st_mode & 0o077 == 0


def test_of_a_job_its_place_and_what_the_user_says(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    run = tmp_path / "run"
    (run / "code").mkdir(parents=True)
    (run / "spec.yaml").write_text(SPEC)
    found = run_in(
        tmp_path,
        program,
        RELIGHT_RUN_ID="a-123",
        RELIGHT_RUN_DIR=str(run),
        SLURM_JOB_ID="77",
        SLURM_JOB_NODELIST="n[1-2]",
        SLURM_JWT="hunter2",
        APPTAINER_CONTAINER="/images/a.sif",
    ).provenance
    packages = found.pop("packages")  # type: ignore[attr-defined]
    assert f"numpy=={np.__version__}" in packages
    assert found == {
        "run": "a-123",
        "spec_sha256": hashlib.sha256(SPEC.encode()).hexdigest(),
        "spec": {
            "name": "a",
            "command": "python train.py",
            "resources": {"nodes": 2, "time": "1:00:00"},
            "env": ["KEY", "OMP_NUM_THREADS"],
            "components": [{"env": ["KEY"], "nodes": 1}],
        },
        "python": ".".join(map(str, sys.version_info[:3])),
        "slurm": {"job_id": "77", "job_nodelist": "n[1-2]"},
        "container": "/images/a.sif",
        "noted": {"data": "sha256:1234", "shards": 12},
    }


@pytest.mark.parametrize("fact", [float("nan"), [1], None])
def test_what_is_no_fact_is_refused(fact: object) -> None:
    with pytest.raises(ProtectRefused, match="data"):
        join(rng=False).note(data=fact)  # type: ignore[arg-type]
