"""A save that takes long is seen while it goes on: in the terminal of the run, and by status."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from relight.launcher.cli.main import relight

RELIGHT = Path(sys.executable).with_name("relight")
PATIENCE_S = 60.0
MIB = 1024**2
# A file system that takes 12 MiB, and then nothing more until it is told to.
PROGRAM = f"""\
import sys
import threading
import time
from pathlib import Path
import numpy as np
import relight
from relight.storage.output import Output

go, one_by_one, taken = Path(sys.argv[1]), threading.Lock(), [0]
write = Output._write

def held(self, at, data):
    with one_by_one:
        while taken[0] + len(data) > {12 * MIB} and not go.exists():
            time.sleep(0.02)
        taken[0] += len(data)
        write(self, at, data)

Output._write = held
run = relight.join(rng=False)
run.protect(field=np.zeros({20 * MIB}, np.uint8))
for step in run.steps(2):
    pass
"""


class Terminal:
    """What is shown on one, as it comes."""

    def __init__(self) -> None:
        self.shown = ""
        self._ours, self.theirs = pty.openpty()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # EIO, once nobody writes any more
            while piece := os.read(self._ours, 65536):
                self.shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", piece.decode())
        os.close(self._ours)

    def close(self) -> None:
        self._reader.join(PATIENCE_S)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    one = Terminal()
    yield one
    one.close()


def wait_until(run: subprocess.Popen[bytes], condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        assert run.poll() is None, "the run has ended"
        time.sleep(0.2)


def test_a_save_that_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: Terminal
) -> None:
    home, go = tmp_path / "home", tmp_path / "go"
    monkeypatch.setenv("RELIGHT_HOME", str(home))
    (tmp_path / "program.py").write_text(PROGRAM)
    spec = tmp_path / "job.yaml"
    spec.write_text(
        f"command: [{sys.executable}, {tmp_path / 'program.py'}, {go}]\n"
        "checkpoint: {interval: 2 steps, async: false}\nhealth: {preflight: off}\n"
    )
    process = subprocess.Popen(
        [RELIGHT, "run", str(spec)],
        env={**os.environ, "TERM": "xterm", "COLUMNS": "150"},
        stderr=terminal.theirs,
    )
    os.close(terminal.theirs)

    def status(*options: str) -> str:
        return CliRunner().invoke(relight, ["status", *options]).output

    def transfer() -> dict[str, object]:
        (one,) = json.loads(status("--json")) or [{}]
        found: dict[str, object] = one.get("transfer") or {}
        return found

    try:
        wait_until(process, lambda: transfer().get("done_bytes") == 12 * MIB)
        found = transfer()
        assert (found["what"], found["step"], found["ranks_done"]) == ("save", 2, 0)
        assert found["total_bytes"] == 20 * MIB
        (run,) = (home / "runs").iterdir()
        assert re.search(
            r"now +saving step 2: 12\.6 of 21\.0 MB, [\d.]+ .B/s, \d+ s left\n", status(run.name)
        )
        wait_until(
            process, lambda: re.search(r"saving step 2 +\S+ +12\.6 of 21\.0 MB", terminal.shown)
        )
    finally:
        go.touch()
        assert process.wait(PATIENCE_S) == 0
    assert transfer() == {}
    assert "checkpoint of step 2" in terminal.shown
