"""What runs on every node and at every command starts without heavy packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
