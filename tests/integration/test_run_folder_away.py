"""A run folder that nobody can read while a program begins or ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relight.resilience.decide.causes import FaultCause
from relight.resilience.decide.classify import fault_of_exit
from relight.resilience.decide.events import RankExited
from relight.resilience.decide.rules import Budget
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.rules_file import stored_rules

AGENT = """
import json, os, sys, time
from pathlib import Path
from relight.resilience.worker.program import Program

folder, when, command = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def goes_away():
    folder.chmod(0)
    if os.geteuid() == 0:
        os.seteuid(65534)

if when == "before":
    goes_away()
program = Program(generation=1, argv=["bash", "-c", command], env=dict(os.environ),
                  secret_files={}, cwd="/", log=folder / "logs" / "0.log")
if when == "after":
    goes_away()
while (end := program.poll()) is None:
    time.sleep(0.01)
print(json.dumps(end))
"""


def end_of(command: str, folder: Path, when: str) -> dict[str, Any]:
    argv = [sys.executable, "-c", AGENT, str(folder), when, command]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    end: dict[str, Any] = json.loads(done.stdout)
    return end


@pytest.mark.parametrize("small_disk", ["tmpfs"], indirect=True)
def test_a_program_that_could_not_say_why_it_ended_ended_by_the_full_disk(small_disk: Path) -> None:
    """Its traceback would have been written to that very disk."""
    fill = "head -c 20M /dev/zero; echo 'Traceback: what nobody can read'; exit 1"
    end = end_of(fill, small_disk, "never")
    seen = RankExited(generation=1, rank=0, node="n1", code=end["code"], tail=tuple(end["tail"]))
    fault = fault_of_exit(seen, stored_rules(RunFolder(small_disk)))
    assert (fault.cause, fault.budget) == (FaultCause.DISK_FULL, Budget.STOP)
    assert "make room" in fault.advice


@pytest.mark.parametrize(
    ("when", "code", "told"), [("after", 0, 0), ("after", 3, 3), ("before", 0, 127)]
)
def test_the_end_of_a_program_is_told_all_the_same(
    when: str, code: int, told: int, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    end = end_of(f"exit {code}", folder, when)
    folder.chmod(0o700)
    assert end["code"] == told
    assert end["tail"][-1].startswith("relight: the run folder is away: [Errno 13]")
