"""A program that was imported beforehand is the same program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from relight.resilience.worker.standby import (
    ANSWER_LIMIT_S,
    PythonCommand,
    Standby,
    modules_worth_having,
)
from relight.resilience.worker.warm_start import WarmStart

PATIENCE_S = 120.0

SCRIPT = """
import json, os, sys
import neighbour
from __main__ import __file__ as file
print(json.dumps({
    "argv": sys.argv, "path": sys.path[0], "name": __name__, "file": file, "cwd": os.getcwd(),
    "colour": os.environ.get("COLOUR"), "leak": os.environ.get("LEAK"),
    "numpy": "numpy" in sys.modules,
    "stdin": sys.stdin.read(), "main": sys.modules["__main__"].__dict__ is globals(),
}), flush=True)
print("to stderr", file=sys.stderr)
raise SystemExit(3)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "neighbour.py").write_text("")
    (folder / "program.py").write_text(SCRIPT)
    return folder / "program.py"


def run_warm(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path, modules: Sequence[str] = ()
) -> int:
    command = PythonCommand.of(argv)
    assert command is not None
    standby = Standby(command, modules, {**os.environ, "LEAK": "old"}, lambda: None)
    assert standby.ready(PATIENCE_S)
    process = standby.become(argv, env, str(cwd))
    assert process is not None
    assert process.stdout is not None
    with process.stdout as output:
        log.write_bytes(output.read())
    return process.wait(PATIENCE_S)


@pytest.mark.parametrize("as_module", [False, True], ids=["script", "module"])
def test_it_cannot_be_told_from_a_cold_start(script: Path, tmp_path: Path, as_module: bool) -> None:
    what = ["-m", "program"] if as_module else [str(script)]
    argv = [sys.executable, "-u", *what, "--steps", "3"]
    env = {**os.environ, "COLOUR": "blue"}
    env.pop("LEAK", None)
    log = tmp_path / "warm.log"
    assert run_warm(argv, env, script.parent, log, ["numpy", "no_such_module"]) == 3
    cold = subprocess.run(
        argv, env=env, cwd=script.parent, capture_output=True, text=True, check=False
    )
    warm_says, stderr = log.read_text().splitlines()
    expected = json.loads(cold.stdout)
    assert json.loads(warm_says) == {**expected, "numpy": True}
    assert (cold.returncode, stderr) == (3, "to stderr")


def test_an_exception_ends_it_with_1_and_its_last_line(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("raise ValueError('no')")
    log = tmp_path / "log"
    assert run_warm([sys.executable, str(program)], os.environ, tmp_path, log) == 1
    assert log.read_text().splitlines()[-1] == "ValueError: no"


@pytest.mark.parametrize(
    "argv",
    [
        ["bash", "-c", "python x.py"],
        ["torchrun", "x.py"],
        ["python", "-c", "print(1)"],
        ["python", "-X", "dev", "x.py"],
        ["python", "-m"],
        ["python"],
        [],
    ],
)
def test_other_commands_start_cold(argv: list[str]) -> None:
    assert PythonCommand.of(argv) is None


def test_a_standby_of_another_command_or_a_dead_one_is_not_used(
    script: Path, tmp_path: Path
) -> None:
    command = PythonCommand.of([sys.executable, str(script)])
    assert command is not None
    standby = Standby(command, [], os.environ, lambda: None)
    assert standby.become(["bash"], {}, "/") is None
    standby.end()
    assert standby.become([sys.executable, str(script)], {}, "/") is None


@pytest.mark.parametrize("when", ["importing", "ready"])
def test_a_stopped_one_is_not_waited_for(script: Path, tmp_path: Path, when: str) -> None:
    """Neither for its answer nor for it to read: the environment is larger than a pipe."""
    argv = [sys.executable, str(script)]
    command = PythonCommand.of(argv)
    assert command is not None
    standby = Standby(command, [], os.environ, lambda: None)
    if when == "ready":
        assert standby.ready(PATIENCE_S)
    os.kill(standby.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, standby.pid, os.WSTOPPED)
    begun = time.monotonic()
    for size_bytes in (0, 200_000):
        env = {"LARGE": "x" * size_bytes}
        assert standby.become(argv, env, "/") is None
    assert time.monotonic() - begun < 10 * ANSWER_LIMIT_S
    standby.end()


def test_on_a_node_without_a_rank_a_process_gets_ready_at_once(
    script: Path, tmp_path: Path
) -> None:
    argv, env = [sys.executable, str(script)], {**os.environ, "COLOUR": "blue"}
    warm = WarmStart()
    warm.get_ready(argv, ["numpy"], env)
    warm.get_ready(argv, ["numpy"], env)  # as after a connection that broke
    assert len(psutil.Process().children()) == 1
    standby = warm.take()
    assert standby is not None
    assert warm.take() is None
    assert standby.ready(PATIENCE_S)
    process = standby.become(argv, env, str(script.parent))
    assert process is not None
    assert process.stdout is not None
    with process.stdout as output:
        said = output.read()
    assert process.wait(PATIENCE_S) == 3
    assert json.loads(said.splitlines()[0])["numpy"] is True


def test_only_installed_packages_are_worth_having() -> None:
    names = modules_worth_having(sys.modules)
    assert "pytest" in names
    assert "json" not in names
    assert __name__ not in names
    assert "relight.resilience.worker.standby" in names
