"""A run on the mini cluster: submitted, watched by its journal, hurt, and judged by its digest."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.journal import Record, read_journals

from .site import PYTHON, RELIGHT, REPOSITORY, Site, eventually

Spec = dict[str, object]


def lm(steps: int = 40, step_time_s: float = 0.2, **more: object) -> Spec:
    """The training example: 2 nodes with a rank each, for torch costs 3 s of CPU per rank."""
    script = REPOSITORY / "examples" / "train_lm.py"
    command = [str(PYTHON), str(script), "--steps", str(steps), "--step-time", str(step_time_s)]
    return _spec("lm", command, 1, {"env": {"OMP_NUM_THREADS": "1"}, **more})


def heat(steps: int = 120, step_time_s: float = 0.05, **more: object) -> Spec:
    """The MPI example: 2 nodes with 2 ranks each."""
    script = REPOSITORY / "examples" / "heat.py"
    command = [str(PYTHON), str(script), "--steps", str(steps), "--size", "64"]
    command += ["--step-time", str(step_time_s)]
    # Open MPI under srun does not see that ranks share a core: they would spin while they wait.
    env = {"OMPI_MCA_mpi_yield_when_idle": "1"}
    return _spec("heat", command, 2, {"mpi": "pmix", "env": env, **more})


GATED = """\
import sys, time
from pathlib import Path
import numpy as np
import relight

run = relight.join()
total = np.zeros(1, dtype=np.int64)
run.protect(total=total)
for step in run.steps(40):
    while step in (15, 25) and not Path(sys.argv[1], f"gate-{step}").exists():
        time.sleep(0.05)
    total += step
print("digest", total[0], flush=True)
"""


def gated(checkpoint: Mapping[str, object], folder: Path) -> Spec:
    """40 steps, with a wait for a file before steps 15 and 25; a rank on each of 2 nodes."""
    program = folder / "gated.py"
    program.write_text(GATED)
    program.chmod(0o644)
    command = [str(PYTHON), str(program), str(folder)]
    return _spec("gated", command, 1, {"checkpoint": dict(checkpoint)})


def with_resources(spec: Spec, **more: object) -> Spec:
    """The same with other resources."""
    resources = spec["resources"]
    assert isinstance(resources, dict)
    return {**spec, "resources": {**resources, **more}}


def faulty(
    spec: Spec, fault: str, *, marker: Path | str, rank: int | str = 1, step: int = 25
) -> Spec:
    """The same with a fault of its own in one rank (see ``stage.faulty``)."""
    python, *program = _words(spec["command"])
    script = str(REPOSITORY / "tests" / "stage" / "faulty.py")
    return {**spec, "command": [python, script, fault, str(rank), str(step), str(marker), *program]}


def _words(command: object) -> list[str]:
    assert isinstance(command, list)
    return [str(word) for word in command]


def _spec(name: str, command: list[str], tasks_per_node: int, more: Mapping[str, object]) -> Spec:
    nodes = {"nodes": 2, "tasks_per_node": tasks_per_node, "memory": "1GB", "time": "0:20:00"}
    return {
        "name": name,
        "command": command,
        "resources": nodes,
        "checkpoint": {"interval": "10 steps"},
        **more,
    }


@dataclass(frozen=True, slots=True)
class Run:
    """A submitted run."""

    site: Site
    run_id: str
    job_id: str
    root: Path

    @classmethod
    def submit(cls, site: Site, spec: Spec) -> Run:
        path = site.shared / f"{spec['name']}.yaml"
        path.write_text(yaml.safe_dump(spec))
        path.chmod(0o644)
        answer = json.loads(site.user(str(RELIGHT), "submit", "--json", str(path)))
        return cls(site, answer["run_id"], answer["job_id"], Path(answer["run_dir"]))

    # What it says

    def records(self) -> list[Record]:
        return read_journals(RunFolder(self.root).journals)

    def data_of(self, name: str) -> list[Mapping[str, object]]:
        """What all records of one name hold."""
        return [record.data for record in self.records() if record.name == name]

    def story(self) -> str:
        """For the message of a failed test."""
        lines = [
            f"{record.time:.1f} {record.attempt} {record.name} "
            + str({key: value for key, value in record.data.items() if key != "tail"})
            for record in self.records()
        ]
        queue = self.site.user("squeue", "-o", "%A %T %r %N", check=False)
        outputs = "".join(
            f"--- {path.name}\n{path.read_text()[-1500:]}\n"
            for path in sorted(self.root.glob("attempts/*.out"))
        )
        return "\n".join([self.run_id, *lines, queue, outputs])

    def committed(self) -> list[int]:
        """The steps of all checkpoints so far."""
        return [_number(data, "step") for data in self.data_of("CheckpointCommitted")]

    def reasons(self, name: str) -> list[str]:
        """Why each order of one name was given."""
        return [str(data["reason"]) for data in self.data_of(name)]

    def cause_of_end(self, attempt: int = 0) -> str:
        """The cause that the nth Finish gives."""
        return str(self.data_of("Finish")[attempt]["cause"])

    def status(self) -> dict[str, object]:
        answer: dict[str, object] = json.loads(
            self.site.user(str(RELIGHT), "status", "--json", self.run_id)
        )
        return answer

    def history(self) -> str:
        return self.site.user(str(RELIGHT), "history", self.run_id)

    # Waiting

    def wait(self, condition: Callable[[], bool], limit_s: float = 120.0) -> None:
        eventually(condition, limit_s, self.story)

    def wait_for_checkpoint(self, step: int) -> None:
        """Until a checkpoint of at least this step is committed."""
        self.wait(lambda: any(done >= step for done in self.committed()))

    def wait_until_it_stands(self, marker: Path, checkpoint: int = 20) -> None:
        """Until the rank of a :func:`faulty` run waits, and all others for it, in what follows this
        checkpoint: whatever is done to the run now hits it there, however long it takes."""
        self.wait(marker.exists)
        self.wait_for_checkpoint(checkpoint)

    def wait_for(self, name: str, count: int = 1, limit_s: float = 120.0) -> None:
        """Until the journal holds so many records of this name."""
        self.wait(lambda: len(self.data_of(name)) >= count, limit_s)

    def finish(self, limit_s: float = 300.0) -> dict[str, object]:
        """Wait for the verdict; the state, as `relight status` gives it."""
        verdict = RunFolder(self.root).verdict
        self.wait(verdict.exists, limit_s)
        self.wait(lambda: not self.site.user("squeue", "-h", f"--name={self.run_id}").strip())
        return self.status()

    def digest(self) -> str:
        """The digest that rank 0 printed at the end: one, however often it was restarted."""
        logs = sorted(self.root.glob("attempts/*/logs/*/0.log"))
        found = [
            match.group(1)
            for log in logs
            for match in re.finditer(r"^digest (\w+)$", log.read_text(), re.MULTILINE)
        ]
        assert len(found) == 1, f"{found}\n{self.story()}"
        return found[0]

    # Faults

    def nodes(self) -> list[str]:
        """The nodes of the current generation, the batch host first."""
        nodes = self.data_of("RanksStarted")[-1]["nodes"]
        assert isinstance(nodes, list)
        return [str(node) for node in nodes]

    def batch_node(self) -> str:
        return str(self.data_of("AttemptStarted")[-1]["batch_node"])

    def pid(self, rank: int) -> int:
        """The process of a rank's program, seen from outside of all hosts."""
        wanted = {f"RELIGHT_RUN_ID={self.run_id}".encode(), f"RANK={rank}".encode()}
        parents = {}
        for process in psutil.process_iter():
            with suppress(OSError, psutil.NoSuchProcess):  # it ended while we looked
                if b"relight.resilience.worker.warm" in _words_of(process.pid, "cmdline"):
                    continue  # waits for the next generation
                if wanted <= _words_of(process.pid, "environ"):
                    parents[process.pid] = process.ppid()
        own = [pid for pid, parent in parents.items() if parent not in parents]
        assert own, f"rank {rank} does not run\n{self.story()}"
        return own[0]

    def processes(self, *words: bytes) -> list[int]:
        """Those of this run that have all these words in their command line.

        A child that has not become another program yet has the words of its parent.
        """
        wanted = {*words, str(self.root / "checkpoints").encode()}
        parents = {}
        for process in psutil.process_iter():
            with suppress(OSError, psutil.NoSuchProcess):  # it ended while we looked
                if wanted <= _words_of(process.pid, "cmdline"):
                    parents[process.pid] = process.ppid()
        return [pid for pid, parent in parents.items() if parent not in parents]

    def preempt_at(self, marker: Path) -> str:
        """Takes the nodes while the rank of a :func:`faulty` run waits; the id of who has them."""
        self.wait(marker.exists)
        taker = self.site.preempt(seconds=1)
        self.wait_for("SaveAndStop")
        marker.with_suffix(".go").touch()
        return taker

    def kill_supervisor(self) -> None:
        """SIGKILL to the supervisor itself, not to its parent."""
        words = {b"relight.launcher.supervise", str(self.root).encode()}
        found = [
            process
            for process in psutil.process_iter(["pid", "ppid", "cmdline"])
            if words <= {word.encode() for word in process.info["cmdline"] or ()}
        ]
        pids = {process.pid for process in found}
        (supervisor,) = [process for process in found if process.info["ppid"] in pids]
        supervisor.kill()

    def kill_rank(self, rank: int, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid(rank), number)


def _words_of(pid: int, file: str) -> set[bytes]:
    """What a file of /proc holds that separates its words by zeros."""
    return set(Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0"))


def _number(data: Mapping[str, object], key: str) -> int:
    value = data[key]
    assert isinstance(value, int)
    return value
