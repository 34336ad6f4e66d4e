"""`code: snapshot`, `relight init`, completion: as a user meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from relight.launcher.snapshot import take_snapshot
from relight.launcher.spec_file import parse_spec
from relight.resilience.run_folder import RunFolder

RELIGHT = Path(sys.executable).with_name("relight")


def relight(
    cwd: Path, home: Path, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "RELIGHT_HOME": str(home), "PATH": "/usr/bin:/bin", **more}
    return subprocess.run(
        [RELIGHT, *arguments],
        env=env, cwd=cwd, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def git(tree: Path, *words: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=e", "-c", "protocol.file.allow=always")
    subprocess.run(["git", "-C", str(tree), *who, *words], check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A work tree with a submodule, a change, a new file, a deleted one and an ignored one."""
    library, tree = tmp_path / "library", tmp_path / "tree"
    for folder in (library, tree):
        folder.mkdir()
        git(folder, "init", "-q")
    (library / "lib.py").write_text("lib = 1\n")
    git(library, "add", ".")
    git(library, "commit", "-qm", "one")
    (tree / "src").mkdir()
    (tree / "src" / "program.py").write_text("print('committed')\n")
    (tree / "gone.py").touch()
    (tree / ".gitignore").write_text("*.bin\n")
    git(tree, "submodule", "add", "-q", str(library), "library")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "one")
    (tree / "src" / "program.py").write_text("import helper\nprint(helper.said)\n")
    (tree / "src" / "helper.py").write_text("said = 'submitted'\n")
    (tree / "src" / "odd \n name").write_text("x")
    (tree / "src" / "link").symlink_to("program.py")
    (tree / "data.bin").write_text("large")
    (tree / "src" / "key").write_text("s3cret")
    (tree / "gone.py").unlink()
    (tree / "src" / "job.yaml").write_text(
        f"command: [{sys.executable}, program.py]\ncode: snapshot\nhealth: {{preflight: off}}\n"
        "secrets: {A_KEY: {file: key}}\n"
    )
    return tree


def test_the_run_has_the_code_of_its_submission(tree: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = relight(tree / "src", home, "run", "job.yaml")
    assert done.returncode == 0, done.stderr
    (folder,) = (home / "runs").iterdir()
    (log,) = folder.glob("attempts/*/logs/1/0.log")
    assert log.read_text() == "submitted\n"
    copied = {str(path.relative_to(folder / "code")) for path in (folder / "code").rglob("*")}
    assert {"src/helper.py", "library/lib.py", "src/odd \n name", "src/link"} <= copied
    assert not {"data.bin", "gone.py", ".git", "src/key"} & copied
    assert "leaves out src/key" in done.stderr
    assert json.loads((folder / "code.json").read_text())["dirty"] is True
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["run"]["working_dir"] == str(folder / "code" / "src")


def snapshot(tree: Path, root: Path) -> Path:
    root.mkdir(parents=True)
    (root / "job.sh").touch()
    take_snapshot(tree, RunFolder(root))
    return root / "code"


def test_a_link_that_leaves_the_tree_leads_to_the_same_place(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("numbers")
    (tree / "src" / "data").symlink_to("../../data")
    code = snapshot(tree, tmp_path / "far" / "away" / "run")
    assert (code / "src" / "data").read_text() == "numbers"
    assert (code / "src" / "link").readlink() == Path("program.py")


def test_a_folder_that_has_become_a_link(tree: Path, tmp_path: Path) -> None:
    (tree / "src").rename(tree / "source")
    (tree / "src").symlink_to("source")
    code = snapshot(tree, tmp_path / "run")
    assert (code / "src").is_symlink()
    assert (code / "src" / "helper.py").read_text() == "said = 'submitted'\n"


def test_runs_that_are_kept_in_the_work_tree_are_no_code(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELIGHT_HOME", str(tree / ".relight"))
    code = snapshot(tree, tree / ".relight" / "runs" / "a-0a1b2c")
    (code / "large").touch()
    again = snapshot(tree, tree / ".relight" / "runs" / "a-111111")
    assert (again / "src" / "helper.py").exists()
    assert not (again / ".relight").exists()
    elsewhere = snapshot(tree, tree / "mine")
    assert not (elsewhere / "mine").exists()


def test_without_a_work_tree_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("command: a\ncode: snapshot\n")
    done = relight(tmp_path, tmp_path / "home", "run", "job.yaml")
    assert done.returncode == 2
    assert "copies a git work tree, and git finds none" in done.stderr
    assert not list((tmp_path / "home").rglob("*"))


def test_init_writes_a_spec_that_is_valid_and_overwrites_nothing(tmp_path: Path) -> None:
    done = relight(tmp_path, tmp_path / "home", "init")
    assert done.returncode == 0, done.stderr
    assert parse_spec((tmp_path / "job.yaml").read_text(), "job.yaml").command[0] == "python"
    again = relight(tmp_path, tmp_path / "home", "init")
    assert (again.returncode, "`relight init -` prints it" in again.stderr) == (2, True)


def test_completion_of_verbs_and_runs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in ("lm-0a1b2c", "lm-111111", "other-222222"):
        (home / "runs" / name).mkdir(parents=True)
    assert "_RELIGHT_COMPLETE=bash_complete" in relight(tmp_path, home, "completion", "bash").stdout
    asked = {
        "_RELIGHT_COMPLETE": "bash_complete",
        "COMP_WORDS": "relight logs lm",
        "COMP_CWORD": "2",
    }
    told = relight(tmp_path, home, **asked).stdout
    assert told.splitlines() == ["plain,lm-0a1b2c", "plain,lm-111111"]
