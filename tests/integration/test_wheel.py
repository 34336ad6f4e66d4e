"""The wheel holds every file of the rooms, though they are links in ``src/relight``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

HOME = Path(__file__).parents[2]
ROOMS = ("launcher", "resilience", "slurm_templates", "storage")
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info")


def test_the_wheel_is_whole(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for folder in ("src", *ROOMS):
        shutil.copytree(HOME / folder, copy / folder, symlinks=True, ignore=IGNORED)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(HOME / name, copy)
    wanted = {
        str((Path(root) / name).relative_to(copy / "src"))
        for root, _, names in os.walk(copy / "src", followlinks=True)
        for name in names
    }
    build = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run(
        [sys.executable, "-m", *build, "--wheel-dir", str(tmp_path), str(copy)],
        check=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    (wheel,) = tmp_path.glob("relight-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("relight/")}
    assert packed == wanted
