"""The stand-in for srun: places, exit codes, and that nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from relight.launcher.clusters import adoption

PATIENCE_S = 60.0


def start(tmp_path: Path, *argv: str, nodes: str = "node0,node2") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "relight.launcher.clusters.local_step",
            f"--nodes={nodes}",
            f"--tasks-per-node={','.join('2' for _ in nodes.split(','))}",
            f"--output={tmp_path / 'out'}",
            "--",
            *argv,
        ]
    )


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def shell(code: str) -> tuple[str, ...]:
    return ("bash", "-c", code)


def test_every_task_knows_its_place(tmp_path: Path) -> None:
    step = start(tmp_path, *shell("echo $RELIGHT_NODE $RELIGHT_TASK $RELIGHT_LOCAL_TASK"))
    assert step.wait(PATIENCE_S) == 0
    lines = sorted((tmp_path / "out").read_text().splitlines())
    assert lines == ["node0 0 0", "node0 1 1", "node2 2 0", "node2 3 1"]


def test_the_end_of_one_does_not_end_the_others(tmp_path: Path) -> None:
    step = start(tmp_path, *shell("[ $RELIGHT_TASK = 1 ] && exit 3; sleep 0.3; echo done"))
    assert step.wait(PATIENCE_S) == 3
    assert (tmp_path / "out").read_text().count("done") == 3


def test_a_killed_task_counts_as_128_and_its_signal(tmp_path: Path) -> None:
    step = start(tmp_path, *shell("[ $RELIGHT_TASK = 2 ] && kill -9 $$; exit 1"))
    assert step.wait(PATIENCE_S) == 137


def test_term_is_passed_on(tmp_path: Path) -> None:
    step = start(
        tmp_path, *shell("trap 'echo told; exit 5' TERM; echo up; while :; do sleep 0.05; done")
    )
    wait_until(
        lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text().count("up") == 4
    )
    step.terminate()
    assert step.wait(PATIENCE_S) == 5
    assert (tmp_path / "out").read_text().count("told") == 4


def test_orphans_are_adopted_and_killed(tmp_path: Path) -> None:
    code = f"setsid sleep 1000 & echo $! >> {tmp_path}/pids; exit 0"
    step = start(tmp_path, *shell(code), nodes="node0")
    assert step.wait(PATIENCE_S) == 0
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_what_cannot_be_killed_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process that waits in the kernel for a dead file system."""
    before = frozenset(adoption.children())
    stuck, other = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    kill = os.kill

    def spares(pid: int, number: int) -> None:
        if pid != stuck.pid:
            kill(pid, number)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    monkeypatch.setattr(os, "kill", spares)
    monkeypatch.setattr(adoption, "_REAP_S", 0.1)
    adoption.kill_adopted(before)
    assert not psutil.pid_exists(other.pid)
    assert stuck.poll() is None
    monkeypatch.undo()
    stuck.kill()
    stuck.wait()
    other.wait()


def test_a_killed_step_takes_its_tasks_along(tmp_path: Path) -> None:
    step = start(tmp_path, *shell(f"echo $$ >> {tmp_path}/pids; exec sleep 1000"))
    wait_until(
        lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text().count("\n") == 4
    )
    step.kill()
    step.wait()
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    wait_until(lambda: not any(_runs(pid) for pid in pids))


def test_the_step_dies_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-m', 'relight.launcher.clusters.local_step',"
        " '--nodes=node0', '--tasks-per-node=1', '--', 'sleep', '1000'])\n"
        "print(p.pid, flush=True); time.sleep(1000)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    step = psutil.Process(int(parent.stdout.readline()))
    wait_until(lambda: bool(step.children()))
    (task,) = step.children()
    parent.kill()
    parent.communicate()
    wait_until(lambda: not _runs(step.pid) and not _runs(task.pid))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
