"""The batch script of ``relight doctor --try``: does what runs do, and notes how it went.

``python -m relight.launcher.clusters.slurm.trial_job FOLDER``, in a job of one node or more. In its
second life, after the requeue, it only says that it is there.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relight.errors import RelightError

from ...trial_notes import Note, What
from .client import SlurmClient
from .cluster import reachable_name
from .hostlist import expand_nodes

LIMIT_S: Final = 30.0  # a busy Slurm takes its time to start a step
_PYTHON: Final = (sys.executable, "-P", "-c")  # without the working directory in its path
_STEP: Final = ("srun", "--overlap", "--ntasks-per-node=1", "--mpi=none", "--input=none")
_PEER: Final = """
import os, socket, sys
host, port, seen = sys.argv[1:]
with socket.create_connection((host, int(port)), timeout=10) as line:
    line.sendall(b"yes" if os.path.exists(seen) else b"no")
"""
_LISTENER: Final = """
import os, signal, sys, time
folder = sys.argv[1]
child = os.fork()
name = "child" if child == 0 else "direct"
signal.signal(signal.SIGUSR2, lambda *_: open(f"{folder}/heard-{name}", "w").close())
open(f"{folder}/ready-{name}", "w").close()
while not os.path.exists(f"{folder}/enough"):
    time.sleep(0.1)
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """One job, and the file of its notes."""

    folder: Path
    job_id: str
    nodes: tuple[str, ...]
    client: SlurmClient

    def note(self, what: What, fact: str, *, ok: bool = True) -> None:
        with (self.folder / "notes").open("a") as file:
            file.write(Note(what, ok, fact).to_line())

    def all(self) -> None:
        if len(self.nodes) > 1:
            self.network()
        self.successor()
        self.batch_signal()
        self.step_signal()
        self.mpi()
        self.no_kill()
        self.requeue()

    def network(self) -> None:
        """Steps on the other nodes call the first one, as agents call the supervisor."""
        host = reachable_name(self.nodes[0], otherwise=socket.gethostname())
        others = self.nodes[1:]
        with socket.create_server(("", 0), family=socket.AF_INET) as server:
            server.settimeout(LIMIT_S)
            where = (f"--nodelist={','.join(others)}", f"--nodes={len(others)}")
            told = (host, str(server.getsockname()[1]), str(self.folder / "notes"))
            (self.folder / "notes").touch()
            step = subprocess.Popen(
                [*_STEP, *where, f"--ntasks={len(others)}", *_PYTHON, _PEER, *told],
                stdout=subprocess.DEVNULL,
            )
            try:
                seen = [self._called(server) for _ in others]
            except OSError as error:
                fact = f"no call from {', '.join(others)} to {host} in {LIMIT_S:.0f} s: {error}"
                self.note("network", fact, ok=False)
                return
            finally:
                _ended(step)
        self.note("network", f"{', '.join(others)} called {host}")
        self.note("folder", f"{self.folder} on {', '.join(others)}", ok=all(seen))

    def _called(self, server: socket.socket) -> bool:
        line, _ = server.accept()
        with line:
            line.settimeout(LIMIT_S)
            return line.recv(3) == b"yes"

    def successor(self) -> None:
        """A held job that waits for this one, as a run sends it; it never starts."""
        with _deaf_to_its_end():
            self._send_and_cancel(self.folder / "job.sh")

    def _send_and_cancel(self, script: Path) -> None:
        try:
            sent = self.client.submit_successor(script, self.job_id, (), held=True)
        except RelightError as error:
            self.note("successor", str(error), ok=False)
            return
        self.note("successor", f"job {sent} was accepted, and cancelled")
        try:
            self.client.update(sent, "ExcNodeList", self.nodes[0])
            excluded = self.client.job(sent).excluded
            fact = f"job {sent} excludes {', '.join(excluded) or 'nothing'}"
            self.note("exclusion", fact, ok=excluded == (self.nodes[0],))
        except RelightError as error:
            self.note("exclusion", str(error), ok=False)
        finally:
            self.client.cancel([sent])

    def batch_signal(self) -> None:
        heard: list[int] = []
        signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
        self._signal("--batch", "--signal=USR1")
        ok = _in_time(lambda: bool(heard))
        self.note("batch signal", "USR1 was heard" if ok else "USR1 was not heard", ok=ok)

    def step_signal(self) -> None:
        """Who hears what Slurm sends to a step: its process, and a child of that."""
        step = subprocess.Popen(
            [*_STEP, "--nodes=1", "--ntasks=1", *_PYTHON, _LISTENER, str(self.folder)]
        )
        try:
            ready = _in_time(lambda: all(self._is("ready", who) for who in ("direct", "child")))
            self._signal("--signal=USR2")
            heard = ready and _in_time(lambda: self._is("heard", "direct"))
            child = heard and _in_time(lambda: self._is("heard", "child"), 1.0)
        finally:
            (self.folder / "enough").touch()
            _ended(step)
        told = "its children, too" if child else "but not its children"
        fact = f"a step's process heard USR2, {told}" if heard else "a step's process heard nothing"
        self.note("step signal", fact, ok=heard)

    def _is(self, word: str, who: str) -> bool:
        return (self.folder / f"{word}-{who}").exists()

    def _signal(self, *options: str) -> None:
        subprocess.run(["scancel", *options, self.job_id], timeout=LIMIT_S, check=False)

    def mpi(self) -> None:
        """Which of Slurm's kinds of PMI tell a rank who it is."""
        kinds = [word for word in _output(["srun", "--mpi=list"]).split() if word.startswith("pmi")]
        works = [kind for kind in dict.fromkeys(kinds) if kind.isidentifier() and self._tells(kind)]
        listed = ", ".join(dict.fromkeys(kinds)) or "nothing"
        fact = ", ".join(works) if works else f"srun --mpi=list has {listed}, and none works"
        self.note("mpi", fact, ok=bool(works))

    def _tells(self, kind: str) -> bool:
        step = ["srun", "--overlap", f"--mpi={kind}", "--nodes=1", "--ntasks=1", "env"]
        return any(line.startswith(("PMIX_RANK=0", "PMI_RANK=0")) for line in _output(step).split())

    def no_kill(self) -> None:
        """The job was sent with it; whether a step takes it, too."""
        step = [*_STEP, "--no-kill", "--nodes=1", "--ntasks=1", *_PYTHON, "print('here')"]
        output = _output(step)
        ok = "here" in output.split()
        fact = f"job {self.job_id} and a step took it" if ok else f"srun: {output.strip()}"
        self.note("no kill", fact, ok=ok)

    def requeue(self) -> None:
        """The last thing: Slurm ends this process for it, so the note comes first."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            self.client.requeue(self.job_id)
        except RelightError as error:
            self.note("requeue", str(error), ok=False)
            self.note("done", "")
            return
        self.note("requeue", f"job {self.job_id} was accepted")


@contextmanager
def _deaf_to_its_end() -> Iterator[None]:
    """Whoever cancels the job now must not leave what it has just sent: SIGTERM waits."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_time(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _output(argv: Sequence[str]) -> str:
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, check=False
        )
        return done.stdout + done.stderr
    return ""


def _ended(step: subprocess.Popen[bytes]) -> None:
    try:
        step.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        step.kill()
        step.wait()


def main(arguments: Sequence[str]) -> int:
    trial = Trial(
        Path(arguments[0]),
        os.environ["SLURM_JOB_ID"],
        expand_nodes(os.environ["SLURM_JOB_NODELIST"]),
        SlurmClient(timeout_s=LIMIT_S, pauses_s=(0.5, 1.0)),
    )
    if os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
        trial.all()
    else:
        trial.note("second life", f"job {trial.job_id} started again")
        trial.note("done", "")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
