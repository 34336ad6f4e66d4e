"""scripts/gpu_check, on the processor as far as it goes, and on a Python that has nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check"
LIMIT_S = 240.0

Parts = dict[str, dict[str, object]]


def check(folder: Path, *arguments: str) -> tuple[int, Parts, str]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), "--small", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert "Traceback" not in done.stderr
    found = json.loads((folder / "gpu_check.json").read_text())
    return done.returncode, found["parts"], (folder / "gpu_check.md").read_text()


def rows(parts: Parts, name: str) -> dict[str, tuple[str, str]]:
    found = parts[name]["rows"]
    assert isinstance(found, list), parts[name]
    return {what: (str(value), str(remark)) for what, value, remark in found}


def test_it_goes_as_far_as_this_machine_does(tmp_path: Path) -> None:
    code, parts, page = check(tmp_path / "out", "--python", sys.executable)
    assert (code, list(parts)) == (0, ["about", "passive", "active", "save", "world", "tests"])
    assert rows(parts, "about")["torch"][0] != "missing"
    passive = rows(parts, "passive")
    assert passive["disk"][0] == "PASS"
    assert {"gpu_present", "gpu_ecc", "gpu_xid"} < set(passive)
    assert rows(parts, "active")["product"][1].startswith("PASS")
    assert rows(parts, "save")["read back"][0] == "sound"
    assert rows(parts, "world").keys() == {
        *("first world", "second world", "from the kill to the sum")
    }
    assert "| read back | sound |" in page
    assert not (tmp_path / "out" / "saves").exists()


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A Python without any package."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -s -S "$@"\n')
    python.chmod(0o755)
    return python


def test_what_is_missing_is_said_and_the_rest_goes_on(tmp_path: Path, bare: Path) -> None:
    code, parts, page = check(tmp_path / "out", "--python", str(bare))
    assert code == 1
    assert rows(parts, "about")["torch"][0] == "missing"
    passive = rows(parts, "passive")
    assert passive["disk"][0] == "PASS"
    assert passive["memory"] == ("UNKNOWN", passive["memory"][1])
    assert "psutil" in passive["memory"][1]
    for name, needed in (("save", "torch"), ("world", "torch"), ("tests", "pytest")):
        assert f"without {needed}" in str(parts[name]["said"])
    assert "Not to be had" in page
    assert list(parts) == ["about", "passive", "active", "save", "world", "tests"]


def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nsleep 300\n")
    python.chmod(0o755)
    code, parts, _ = check(tmp_path / "out", "--python", str(python), "--minutes", "0.04")
    assert code == 1
    assert "was ended after" in str(parts["about"]["missing"])
    assert parts["tests"]["missing"] == "the time was over before this part"
