"""A run folder that nobody can read while a program begins or ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
def test_a_full_disk_ends_no_program_and_its_last_words_are_heard(small_disk: Path) -> None:
    """The log says what it lacks: here room came back before the last words."""
    filler = small_disk / "filler"
    fill = (
        f"echo first; head -c 20M /dev/zero > {filler} 2> /dev/null; "
        "head -c 1M /dev/zero || exit 4; "
        f"echo no room && rm {filler} && sleep 1.5 && echo KeyError: 3 && exit 1"
    )
    end = end_of(fill, small_disk, "never")
    assert (end["code"], end["tail"][-1]) == (1, "KeyError: 3")
    log = small_disk / "logs" / "0.log"
    first, *_, notice, last = log.read_text().splitlines()
    assert (first, last) == ("first", "KeyError: 3")
    assert re.fullmatch(
        r"relight: [0-9]+ bytes of output are missing here, the run folder did not take them: "
        "No space left on device",
        notice,
    )
    lost_bytes = int(notice.split()[1])
    assert lost_bytes + log.stat().st_size == (
        len("first\n") + 1024**2 + len("no room\n") + len(f"\n{notice}\n") + len("KeyError: 3\n")
    )


@pytest.mark.parametrize(
    ("when", "code", "told"), [("after", 0, 0), ("after", 3, 3), ("before", 0, 0)]
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
