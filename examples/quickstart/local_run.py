"""One ``relight run``, as a user would start it, and the processes below it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.journal import Record, read_journals

from .telling import NotProven

RELIGHT = Path(sys.executable).with_name("relight")
EXAMPLE = Path(__file__).resolve().parents[1] / "train_lm.py"
PATIENCE_S = 600.0  # a machine that is busy with other things is no fault of the run
GENTLE_S = 15.0  # for a cancelled run to end by itself
TICK_S = 0.05


class LocalRun:
    """A run of the training example on 2 pretend nodes with a rank each.

    Leaving the ``with`` block ends whatever of it still runs.
    """

    def __init__(self, folder: Path, name: str, *, steps: int, every: int, step_s: float) -> None:
        self._name = name
        self._spec = folder / f"{name}.yaml"
        self._output = folder / f"{name}.out"
        self._home = folder / "home"
        command = [sys.executable, str(EXAMPLE), f"--steps={steps}", f"--step-time={step_s}"]
        spec = {
            "name": name,
            "command": command,
            "resources": {"nodes": 2},
            "env": {"OMP_NUM_THREADS": "1"},
            "checkpoint": {"interval": f"{every} steps"},
        }
        self._spec.write_text(json.dumps(spec))  # JSON is YAML, too
        own = {name: value for name, value in os.environ.items() if not name.startswith("RELIGHT_")}
        temporary = folder / "tmp"  # what ranks leave in theirs goes, too
        temporary.mkdir(exist_ok=True)
        self._env = {**own, "RELIGHT_HOME": str(self._home), "TMPDIR": str(temporary)}

    def __enter__(self) -> LocalRun:
        with self._output.open("wb") as output:
            self._front = subprocess.Popen(
                [RELIGHT, "run", str(self._spec)],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the quickstart, which ends this below
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._front.poll() is not None:
            return
        self._front.send_signal(signal.SIGINT)  # cancels the run
        deadline_s = time.monotonic() + GENTLE_S
        while self._front.poll() is None and time.monotonic() < deadline_s:
            for program in self._programs():  # there is nothing to save any more
                with suppress(psutil.NoSuchProcess):
                    program.kill()
            time.sleep(TICK_S)
        if self._front.poll() is None:
            below = psutil.Process(self._front.pid).children(recursive=True)
            self._front.kill()
            self._front.wait()
            for process in below:
                with suppress(psutil.NoSuchProcess):
                    process.kill()

    # What it says

    @property
    def folder(self) -> RunFolder:
        found = list((self._home / "runs").glob(f"{self._name}-*"))
        return RunFolder(found[0] if found else self._home / "runs" / "none yet")

    def records(self) -> list[Record]:
        return read_journals(self.folder.journals)

    def named(self, name: str) -> list[Record]:
        """The journal's records of one name."""
        return [record for record in self.records() if record.name == name]

    def saved(self) -> int:
        """The step of the newest checkpoint, 0 before the first."""
        steps = [record.data["step"] for record in self.named("CheckpointCommitted")]
        return max((step for step in steps if isinstance(step, int)), default=0)

    def relight(self, verb: str) -> str:
        """What a verb of ``relight`` prints about this run."""
        done = subprocess.run(
            [RELIGHT, verb, self.folder.root.name],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if done.returncode != 0:
            raise NotProven(f"relight {verb} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def digest(self) -> str:
        """What rank 0 printed at the end: once, however often it was restarted."""
        found = re.findall(r"^digest (\w+)$", self.relight("logs"), re.MULTILINE)
        if len(found) != 1:
            raise NotProven(f"{len(found)} digests where one was due\n{self._said()}")
        return str(found[0])

    def _said(self) -> str:
        return self._output.read_text(errors="replace")

    # Waiting

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Until the condition holds.

        Raises:
            NotProven: the run ended before, or it took too long.
        """
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            if self._front.poll() is not None and not condition():
                raise NotProven(f"the run ended before {what}\n{self._said()}")
            if time.monotonic() > deadline_s:
                raise NotProven(f"no {what} in {PATIENCE_S:.0f} s\n{self._said()}")
            time.sleep(TICK_S)

    def finish(self) -> None:
        """Wait for the end.

        Raises:
            NotProven: the run did not complete, or took too long.
        """
        try:
            code = self._front.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise NotProven(f"no end in {PATIENCE_S:.0f} s\n{self._said()}") from None
        if code != 0:
            raise NotProven(f"relight run ended with {code}\n{self._said()}")

    # Its processes

    def supervisor(self) -> psutil.Process:
        """The child of ``relight run``: on Slurm it would be the batch script."""
        (process,) = psutil.Process(self._front.pid).children()
        return process

    def program(self, rank: int) -> psutil.Process:
        """The process of a rank.

        Raises:
            NotProven: it does not run.
        """
        for process in self._programs():
            with suppress(psutil.Error):
                of_rank = process.environ().get("RANK") == str(rank)
                if of_rank and str(EXAMPLE) in process.cmdline():
                    return process
        raise NotProven(f"rank {rank} does not run\n{self._said()}")

    def _programs(self) -> Iterator[psutil.Process]:
        """The ranks' processes, among the descendants of ``relight run``."""
        for process in psutil.Process(self._front.pid).children(recursive=True):
            with suppress(psutil.Error):
                if "RANK" in process.environ():
                    yield process
