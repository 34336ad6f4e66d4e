"""A spec full of quotes, newlines and shell syntax means what it says, and nothing more."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from relight.launcher.plan import plan
from relight.launcher.run_creation import submitter
from relight.launcher.spec_faults import SpecError
from relight.launcher.spec_file import MAX_FILE_BYTES, build_spec, parse_spec
from relight.launcher.yaml_lines import MAX_DEPTH

RELIGHT = Path(sys.executable).with_name("relight")
HOSTILE = (
    "$(touch HIT)",
    "`touch HIT`",
    "'; touch HIT; '",
    '"; touch HIT; "',
    "a\nb\n\ntouch HIT",
    "#SBATCH --wrap=touch HIT",
    "-rf",
    "--help",
    "\\",
    "* ? ~ {a,b}",
    "%j %x %%",
    "ü \u202e \U0001f525",
    "{{ 7 * 7 }} {% for %}",
    "",
)
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['HOSTILE'], os.getcwd()]))"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def relight(home: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "RELIGHT_HOME": str(home)}
    return subprocess.run(
        [RELIGHT, *words],
        env=env, cwd=cwd, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_whole_run_of_hostile_values(home: Path, tmp_path: Path) -> None:
    work = tmp_path / 'it\'s $(touch HIT) `touch HIT`; a; "b" \\ * %j'
    work.mkdir()
    spec = {
        "command": [sys.executable, "-c", SHOW, *HOSTILE],
        "env": {"HOSTILE": "".join(HOSTILE)},
        "run_dir": str(tmp_path / "run '$(touch HIT)' %j"),
        "working_dir": str(work),
        "setup": ["echo set-up"],
        "health": {"preflight": "off"},
    }
    (work / "job.yaml").write_text(yaml.safe_dump(spec, allow_unicode=True))
    done = relight(home, work, "run", "job.yaml")
    assert done.returncode == 0, done.stderr
    root = tmp_path / "run '$(touch HIT)' %j"
    (log,) = root.glob("attempts/*/logs/1/0.log")
    assert json.loads(log.read_text()) == [list(HOSTILE), "".join(HOSTILE), str(work)]
    assert list(tmp_path.rglob("HIT")) == []
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    for name in ("spec.yaml", "plan.json", "job.sh"):
        assert stat.S_IMODE((root / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("value", [text for text in HOSTILE if text != ""])
@pytest.mark.parametrize("key", ["name", "run_dir", "resources.partition", "sbatch.comment", "mpi"])
def test_what_sbatch_is_sent_has_one_meaning(key: str, value: str) -> None:
    """Refused, or one quoted word of one line: never another option."""
    spec, plain = _with(key, value), _with(key, "x")
    with suppress(SpecError):
        assert _options(spec) == _options(plain)


def _with(key: str, value: str) -> Mapping[str, object]:
    group, _, last = key.rpartition(".")
    return {"command": ["a"], **({group: {last: value}} if group else {last: value})}


def _options(spec: Mapping[str, object]) -> list[str]:
    """The names of the options in the script that would be sent."""
    script = plan(build_spec(spec, {}), submitter("x", "0"), "slurm").script
    lines = [line for line in script.splitlines() if line.startswith("#SBATCH")]
    return [line.partition("=")[0] for line in lines]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('command: ["a\\0b"]', "NUL"),
        ('command: a\nenv: {A: "\\0"}', "NUL"),
        ('command: a\nrun_dir: "\\0"', "NUL"),
        ("command: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested more than"),
        ("command: a\nsetup: [" + "x, " * 20_000 + "]", "more than 10000 values"),
        ("x: &x [a]\ncommand: *x\n<<: *x", "unknown key"),
        ("command: &c [*c]", "nested more than"),
        ("command: !!python/object/apply:os.system [touch HIT]", "not allowed"),
        ("command: a\n---\ncommand: b", "not YAML"),
    ],
)
def test_texts_that_are_refused(text: str, part: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "job.yaml")
    assert part in str(caught.value)


def test_a_file_without_end(home: Path, tmp_path: Path) -> None:
    done = relight(home, tmp_path, "plan", "/dev/zero")
    assert done.returncode == 2
    assert f"larger than {MAX_FILE_BYTES // 1024} KiB" in done.stderr


def test_a_link_to_another_users_run_is_not_followed(home: Path, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("to give a folder away needs root")
    theirs = tmp_path / "theirs"
    (tmp_path / "job.yaml").write_text("command: [echo]\nhealth: {preflight: off}\n")
    relight(home, tmp_path, "run", "--set", f"run_dir={theirs}", "job.yaml")
    (link,) = (home / "runs").iterdir()
    assert link.is_symlink()
    for path in (theirs, *theirs.rglob("*")):
        os.chown(path, 12345, 12345, follow_symlinks=False)
    listed = relight(home, tmp_path, "status", "--json")
    assert json.loads(listed.stdout) == []
    for verb in ("status", "cancel", "restart", "hold", "logs"):
        refused = relight(home, tmp_path, verb, link.name)
        assert (refused.returncode, "belongs to another user" in refused.stderr) == (2, True)
    shutil.rmtree(theirs)
