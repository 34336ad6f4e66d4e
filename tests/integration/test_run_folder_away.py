"""A run folder that nobody can read while a program begins or ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

AGENT = """
import json, os, sys, time
from pathlib import Path
from relight.resilience.worker.program import Program

folder, when, code = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def goes_away():
    folder.chmod(0)
    if os.geteuid() == 0:
        os.seteuid(65534)

if when == "before":
    goes_away()
program = Program(generation=1, argv=["bash", "-c", f"exit {code}"], env=dict(os.environ),
                  secret_files={}, cwd="/", log=folder / "logs" / "0.log")
if when == "after":
    goes_away()
while (end := program.poll()) is None:
    time.sleep(0.01)
print(json.dumps(end))
"""


@pytest.mark.parametrize(
    ("when", "code", "told"), [("after", 0, 0), ("after", 3, 3), ("before", 0, 127)]
)
def test_the_end_of_a_program_is_told_all_the_same(
    when: str, code: int, told: int, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    command = [sys.executable, "-c", AGENT, str(folder), when, str(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    folder.chmod(0o700)
    assert done.returncode == 0, done.stderr
    end = json.loads(done.stdout)
    assert end["code"] == told
    assert end["tail"][-1].startswith("relight: the run folder is away: [Errno 13]")
