"""A run on this machine, in the background, as its user sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from relight.resilience.supervise.journal import read_journals

RELIGHT = Path(sys.executable).with_name("relight")
PATIENCE_S = 180.0

PROGRAM = """\
import time
import numpy as np
import relight

run = relight.join()
field = np.zeros(64)
run.protect(field=field)
for step in run.steps({steps}):
    field += step
    time.sleep(0.02)
print("digest", field.sum(), flush=True)
"""

# Goes on until there is a file, and says then what its state has lost: nothing.
UNTIL_TOLD = """\
import time
from pathlib import Path
import numpy as np
import relight

run = relight.join()
field = np.zeros(64)
run.protect(field=field)
for step in run.steps(100_000):
    field += step
    if Path({stop!r}).exists():
        break
    time.sleep(0.02)
print("lost", field.sum() - 64 * sum(range(step + 1)), flush=True)
"""
UNDISTURBED = "lost 0.0"


class Run:
    """A ``relight run`` in the background."""

    def __init__(self, home: Path, *arguments: str, quiet: bool = True) -> None:
        self._env = {**os.environ, "RELIGHT_HOME": str(home)}
        self._home = home
        self.process = subprocess.Popen(
            [RELIGHT, "run", *(["--json"] if quiet else []), *arguments],
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def folder(self) -> Path:
        (folder,) = (self._home / "runs").iterdir()
        return folder

    def progress(self) -> Mapping[str, object]:
        try:
            content: dict[str, object] = json.loads((self.folder / "progress.json").read_text())
        except (OSError, ValueError):
            return {}
        return content

    def wait_for_checkpoint(self, least: int = 1) -> None:
        def there() -> bool:
            newest = self.progress().get("last_checkpoint")
            return isinstance(newest, int) and newest >= least

        wait_until(there)

    def wait_for_checkpoint_of_generation(self, number: int) -> None:
        def there() -> bool:
            records = read_journals(self.folder / "journal")
            commits = [record.data for record in records if record.name == "CheckpointCommitted"]
            return any(data["generation"] == number for data in commits)

        wait_until(there)

    def end(self) -> tuple[int, list[dict[str, object]]]:
        """The exit code and the records that were printed."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in err
        return self.process.returncode, [json.loads(line) for line in out.splitlines()]

    def relight(self, *arguments: str) -> str:
        return subprocess.run(
            [RELIGHT, *arguments],
            env=self._env,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout

    def status(self) -> dict[str, object]:
        answer: dict[str, object] = json.loads(self.relight("status", self.folder.name, "--json"))
        return answer


def below(process: psutil.Process) -> dict[psutil.Process, list[str]]:
    """All that it has started and that still runs, the parents first, with their command lines."""
    found = {}
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found[child] = child.cmdline()
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)
