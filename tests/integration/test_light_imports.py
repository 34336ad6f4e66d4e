"""What runs on every node and at every command starts without heavy packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
HEAVY = ("h5py", "jinja2", "numpy", "pydantic", "rich", "submitit", "torch")
LIGHT = (
    "resilience/decide/*.py",
    "resilience/health/*.py",
    "resilience/supervise/*.py",
    "resilience/worker/agent.py",
    "launcher/cli/main.py",
    "launcher/cli/logs.py",
    "launcher/cli/sbatch.py",
    "launcher/cli/status.py",
    "launcher/supervise.py",
    "launcher/too_early.py",
)

# Imports one module after the other; says which of them was the first to bring a heavy package.
PROGRAM = """
import importlib, sys
heavy = set(sys.argv[1].split(","))
for name in sys.argv[2:]:
    importlib.import_module(name)
    for found in sorted(heavy & set(sys.modules)):
        print(f"{name} imports {found}")
    heavy -= set(sys.modules)
"""

# Runs a verb; says which programs it starts, and at the end which packages it has brought.
VERB = """
import atexit, sys
wanted = set(sys.argv.pop(1).split())
def started(event, arguments):
    if event == "subprocess.Popen":
        print("starts", arguments[0], file=sys.__stderr__)
sys.addaudithook(started)
atexit.register(lambda: print("brings", *sorted(wanted & set(sys.modules)), file=sys.stderr))
from relight.launcher.cli.main import main
main()
"""
NEVER = "h5py numpy psutil rich torch"


def light_modules() -> list[str]:
    paths = [path for pattern in LIGHT for path in sorted(HOME.glob(pattern))]
    names = [".".join(path.relative_to(HOME).with_suffix("").parts) for path in paths]
    return ["relight", *(f"relight.{name.removesuffix('.__init__')}" for name in names)]


def test_they_import_nothing_heavy() -> None:
    modules = light_modules()
    assert "relight.resilience.health.preflight" in modules
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(HEAVY), *modules],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_a_heavy_import_would_be_seen() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "decimal,numpy", "relight", "decimal"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "decimal imports decimal\n"


@pytest.mark.parametrize(
    ("words", "programs", "without"),
    [
        (
            "sbatch job.sh",
            ["sbatch", "scontrol", "scontrol"],
            f"{NEVER} asyncio jinja2 pydantic submitit yaml",
        ),
        ("plan job.yaml", [], f"{NEVER} asyncio submitit"),
        ("submit job.yaml", ["env", "scontrol", "scontrol"], NEVER),
    ],
)
def test_what_a_submission_costs(
    tmp_path: Path, words: str, programs: list[str], without: str
) -> None:
    """Neither packages that it has no use for, nor another interpreter; Slurm is asked for what the
    job may meet in a partition that preempts."""
    (tmp_path / "job.sh").write_text("#!/bin/sh\n")
    (tmp_path / "job.yaml").write_text("command: hostname\n")
    (tmp_path / "sbatch.out").write_text("Submitted batch job 42\n")
    recorded = HOME / "tests" / "data" / "slurm" / "22.05"
    for call, name in enumerate(("partition", "config"), 1):
        shutil.copy(recorded / f"scontrol-show-{name}.txt", tmp_path / f"scontrol.{call}.out")
    own = {"RELIGHT_HOME": str(tmp_path / "home"), "FAKE_SLURM": str(tmp_path)}
    fake_bin = HOME / "tests" / "data" / "slurm" / "fake" / "bin"
    done = subprocess.run(
        [sys.executable, "-P", "-c", VERB, without, *words.split()],
        env={**os.environ, **own, "PATH": f"{fake_bin}:{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    expected = [*(f"starts {program}" for program in programs), "brings"]
    said = [line for line in done.stderr.splitlines() if line.startswith(("starts", "brings"))]
    assert (done.returncode, said) == (0, expected), done.stderr
