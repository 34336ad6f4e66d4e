"""From a fault to the first new step: relight, torchrun, and a script that requeues itself.

As root on the mini cluster: ``.venv/bin/python benchmarks/recovery.py``. One run brings the cluster
up, tries every contender with every fault ``--rounds`` times in turn, prints a table of medians,
and brings the cluster down. The job is the same DDP job for all: 2 nodes with 2 ranks each, a
checkpoint every 10 steps of 0.1 s.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import yaml
from stage.site import PYTHON, RELIGHT, REPOSITORY, Site, eventually

JOB = REPOSITORY / "benchmarks" / "recovery_jobs" / "ddp_job.py"
LIMIT_S = 180.0
STEADY_S = 22.0  # of steps before the fault: in a long run everything is warm


@dataclass(frozen=True, slots=True)
class Trial:
    """One job under one contender; ``trace`` holds a line for each step of rank 0."""

    site: Site
    folder: Path

    @property
    def trace(self) -> Path:
        return self.folder / "trace.jsonl"

    def steps(self) -> list[dict[str, float]]:
        if not self.trace.exists():
            return []
        return [json.loads(line) for line in self.trace.read_text().splitlines() if line]

    def submit_script(self, body: str, *options: str) -> str:
        script = self.folder / "job.sh"
        script.write_text(f"#!/bin/bash\n{body}\n")
        script.chmod(0o755)
        return self.site.user(
            "sbatch", "--parsable", "-N2", "--ntasks-per-node=2", "--requeue", "--open-mode=append",
            f"--output={self.folder}/out", *options, str(script),
        ).strip()  # fmt: skip

    def rank_command(self, save: str) -> list[str]:
        own = ["--checkpoint", str(self.folder / "own.pt")] if save == "own" else []
        return [str(PYTHON), str(JOB), "--save", save, "--trace", str(self.trace), *own]


def start_relight(trial: Trial) -> None:
    spec = trial.folder / "job.yaml"
    spec.write_text(
        yaml.safe_dump(
            {
                "name": "bench",
                "command": trial.rank_command("relight"),
                "resources": {"nodes": 2, "tasks_per_node": 2, "time": "0:20:00"},
                "env": {"OMP_NUM_THREADS": "1"},
                "checkpoint": {"interval": "10 steps"},
            }
        )
    )
    spec.chmod(0o644)
    trial.site.user(str(RELIGHT), "submit", str(spec))


def start_torchrun(trial: Trial) -> None:
    """Elastic agents on both nodes; the script requeues itself when they give up."""
    torchrun = [str(PYTHON), "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
    torchrun += ["--max-restarts=9", "--rdzv-backend=c10d", "--rdzv-id=$SLURM_JOB_ID"]
    command = shlex.join(trial.rank_command("own")[1:])
    trial.submit_script(
        "export OMP_NUM_THREADS=1\nhead=$(scontrol show hostnames | head -n1)\n"
        f"srun --ntasks-per-node=1 {' '.join(torchrun)} --rdzv-endpoint=$head:29517 {command}"
        " || scontrol requeue $SLURM_JOB_ID"
    )


def start_requeue(trial: Trial) -> None:
    """What people write: srun ends the step when a rank fails, and the script requeues itself."""
    command = shlex.join(trial.rank_command("own"))
    ranks = "export RANK=$SLURM_PROCID WORLD_SIZE=4 MASTER_ADDR=$head MASTER_PORT=29518"
    trial.submit_script(
        "export OMP_NUM_THREADS=1\nexport head=$(scontrol show hostnames | head -n1)\n"
        f"srun --kill-on-bad-exit=1 bash -c {shlex.quote(f'{ranks}; exec {command}')}"
        " || scontrol requeue $SLURM_JOB_ID"
    )


CONTENDERS: dict[str, Callable[[Trial], None]] = {
    "relight": start_relight,
    "torchrun": start_torchrun,
    "requeue script": start_requeue,
}


def kill_rank(trial: Trial) -> Callable[[], None]:
    """SIGKILL to the process of a rank other than 0."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or not _is_rank_1(entry, trial):
            continue
        os.kill(int(entry.name), signal.SIGKILL)
        return lambda: None
    raise AssertionError("rank 1 does not run")


def _is_rank_1(entry: Path, trial: Trial) -> bool:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
        environment = (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False  # it ended while we looked
    return str(trial.trace).encode() in words and b"RANK=1" in environment and b"-c" not in words


def lose_host(trial: Trial) -> Callable[[], None]:
    """Power loss of a host that is not the batch host."""
    nodes = trial.site.user("squeue", "-h", "-t", "R", "-o", "%N").strip()
    names = trial.site.user("scontrol", "show", "hostnames", nodes).split()
    trial.site.node("kill", names[-1])
    return lambda: trial.site.node("start", names[-1])


def preempt(trial: Trial) -> Callable[[], None]:
    """A job of one second takes all nodes."""
    trial.site.preempt(seconds=1)
    return lambda: None


FAULTS: dict[str, Callable[[Trial], Callable[[], None]]] = {
    "SIGKILL of a rank": kill_rank,
    "loss of a host": lose_host,
    "preemption": preempt,
}


def measure(site: Site, contender: str, fault: str, number: int) -> tuple[float, int] | None:
    """(seconds from the fault to the first new step, steps done twice); None: never."""
    folder = site.shared / f"{contender.replace(' ', '-')}-{fault.split()[0].lower()}-{number}"
    folder.mkdir()
    folder.chmod(0o777)
    trial = Trial(site, folder)
    CONTENDERS[contender](trial)
    try:
        eventually(lambda: bool(trial.steps()), LIMIT_S, lambda: f"{contender} did not start")
        begun = trial.steps()[0]["time"]
        eventually(lambda: time.time() > begun + STEADY_S, 2 * STEADY_S, lambda: "")
        fault_at = time.time()
        repair = FAULTS[fault](trial)
        try:
            return _wait_for_new_step(trial, fault_at)
        finally:
            repair()
    finally:
        site.user("scancel", "-u", "mini", check=False)
        eventually(lambda: not site.jobs() and site.idle(), 90, lambda: site.user("squeue"))


def _wait_for_new_step(trial: Trial, fault_at: float) -> tuple[float, int] | None:
    pid_before = trial.steps()[-1]["pid"]

    def new() -> list[dict[str, float]]:
        return [step for step in trial.steps() if step["pid"] != pid_before]

    try:
        eventually(lambda: bool(new()), LIMIT_S, lambda: "no new step")
    except AssertionError:
        return None
    first = new()[0]
    last_before = max(step["step"] for step in trial.steps() if step["time"] < first["time"])
    return first["time"] - fault_at, int(last_before + 1 - first["step"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--faults", nargs="+", choices=list(FAULTS), default=list(FAULTS))
    options = parser.parse_args()
    site = Site(("--grace", "20", "--kill-wait", "10", "--cred-expire", "120"))
    results: dict[tuple[str, str], list[tuple[float, int] | None]] = {}
    with site.running():
        for number in range(options.rounds):
            for fault in options.faults:
                for contender in CONTENDERS:
                    result = measure(site, contender, fault, number)
                    results.setdefault((fault, contender), []).append(result)
                    print(f"round {number + 1}: {fault}: {contender}: {result}", flush=True)
    print("| fault | contender | seconds to the first new step | steps done twice |")
    print("|---|---|---|---|")
    for (fault, contender), rounds in results.items():
        back = [result for result in rounds if result is not None]
        if not back:
            print(f"| {fault} | {contender} | not in {LIMIT_S:.0f} s | |")
            continue
        seconds = statistics.median(result[0] for result in back)
        steps = statistics.median(result[1] for result in back)
        share = f"{len(back)} of {len(rounds)}"
        print(f"| {fault} | {contender} | {seconds:.1f} ({share}) | {steps:.0f} |")


if __name__ == "__main__":
    main()
