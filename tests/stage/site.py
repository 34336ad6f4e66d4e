"""The mini cluster as an ordinary user sees it, and as the power company does."""

from __future__ import annotations

import fcntl
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from minicluster.config import Layout
from minicluster.state import require

REPOSITORY = Path(__file__).resolve().parents[2]
MINICLUSTER = REPOSITORY / "scripts" / "minicluster"
TURN = Path("/run/lock/relight-minicluster-tests")
PYTHON = REPOSITORY / ".venv" / "bin" / "python"
RELIGHT = REPOSITORY / ".venv" / "bin" / "relight"


def eventually(condition: Callable[[], bool], limit_s: float, what: Callable[[], str]) -> None:
    """Wait until something outside this process has come true."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {limit_s:.0f} s: {what()}")
        time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Site:
    """A running mini cluster."""

    options: tuple[str, ...]

    @contextmanager
    def running(self) -> Iterator[None]:
        """The cluster, from up to down. One machine has one: others wait for their turn."""
        with TURN.open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            _minicluster("up", "--share", str(REPOSITORY), *self.options)
            try:
                yield
            finally:
                self.down()

    def down(self) -> None:
        _minicluster("down")

    def node(self, action: str, name: str) -> None:
        """kill, start, cut or heal a host."""
        _minicluster("node", action, name)

    def on(self, name: str, *argv: str) -> None:
        """Run a command as root, where it sees the files of a host."""
        pid = require(Layout()).processes[name].pid
        command = ["nsenter", f"--target={pid}", "--mount", *argv]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{argv} on {name}: {done.stdout}{done.stderr}"

    def controller(self, action: str) -> None:
        _minicluster("controller", action)

    @property
    def shared(self) -> Path:
        """The user's folder on a disk that all hosts see."""
        return Layout().shared

    def user(self, *argv: str, check: bool = True) -> str:
        """Run a command as the ordinary user; what it printed."""
        command = [str(MINICLUSTER), "run", "--", *argv]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{argv} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def fails(self, *argv: str) -> tuple[int, str]:
        """Run a command as the user that is expected to fail; its exit code and complaint."""
        command = [str(MINICLUSTER), "run", "--", *argv]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stderr

    def jobs(self) -> Sequence[str]:
        """The ids of all jobs that Slurm would still run or is running."""
        return self.user("squeue", "-h", "-o", "%A").split()

    def idle(self) -> bool:
        """Whether every node is ready for work."""
        states = self.user("sinfo", "-h", "-N", "-p", "low", "-o", "%T").split()
        return set(states) == {"idle"}

    def preempt(self, seconds: int) -> str:
        """Take all nodes with a job of the high partition; its id."""
        nodes = len(self.user("sinfo", "-h", "-N", "-p", "high", "-o", "%N").split())
        wrap = f"sleep {seconds}"
        return self.user(
            "sbatch", "--parsable", "-p", "high", f"-N{nodes}", "--exclusive",
            "--output=/dev/null", "--wrap", wrap,
        ).strip()  # fmt: skip


def _minicluster(*arguments: str) -> str:
    done = subprocess.run(
        [str(MINICLUSTER), *arguments], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, f"minicluster {arguments}: {done.stdout}{done.stderr}"
    return done.stdout
