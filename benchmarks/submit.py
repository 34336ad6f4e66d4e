"""A submission as a whole process: sbatch, submitit, relight submit, relight sbatch.

As root on the mini cluster: ``.venv/bin/python benchmarks/submit.py``. One run brings the cluster
up, lets every contender submit a held job ``--rounds`` times in turn, prints a table, and brings
the cluster down. The least processor time, of the process and all that it starts, is what work of
others disturbs least.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from stage.site import PYTHON, RELIGHT, Site

SCRIPT = "#!/bin/bash\n#SBATCH --hold --output=/dev/null\ntrue\n"
SPEC = "command: hostname\nsbatch: {hold: true}\n"
TASKS = 200
SWEEP = f"{SPEC}sweep: {{number: {list(range(TASKS))}}}\n"
SUBMITIT = """
import submitit
executor = submitit.SlurmExecutor("submitit")
executor.update_parameters(time=5, additional_parameters={"hold": True})
print(executor.submit(print, "hello").job_id)
"""


def contenders(folder: Path) -> dict[str, list[str]]:
    """The commands, and the files that they need."""
    (folder / "job.sh").write_text(SCRIPT)
    (folder / "job.yaml").write_text(SPEC)
    (folder / "sweep.yaml").write_text(SWEEP)
    (folder / "send.py").write_text(SUBMITIT)
    return {
        "sbatch": ["sbatch", "job.sh"],
        "submitit": [str(PYTHON), "send.py"],
        "relight submit": [str(RELIGHT), "submit", "job.yaml"],
        f"relight submit, {TASKS} jobs": [str(RELIGHT), "submit", "sweep.yaml"],
        "relight sbatch": [str(RELIGHT), "sbatch", "job.sh"],
    }


def processor_s() -> float:
    """Of all children that have ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(folder: Path, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds of each submission, by the clock and of a processor, the contenders in turn; the
    first round is not counted."""
    commands = contenders(folder)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for round_ in range(rounds + 1):
        for name, command in commands.items():
            begin, used_s = time.perf_counter(), processor_s()
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            if round_ > 0:
                taken[name].append((time.perf_counter() - begin, processor_s() - used_s))
    subprocess.run(["scancel", "--me"], check=True)
    return taken


def table(taken: dict[str, Sequence[tuple[float, float]]]) -> str:
    base = statistics.median(wall for wall, _ in taken["sbatch"])
    lines = [
        "| whole process | median | least | beside sbatch | processor time, least |",
        "|---|---|---|---|---|",
    ]
    for name, seconds in taken.items():
        walls, used = zip(*seconds, strict=True)
        median = statistics.median(walls)
        lines.append(
            f"| {name} | {median * 1e3:.0f} ms | {min(walls) * 1e3:.0f} ms "
            f"| +{(median - base) * 1e3:.0f} ms | {min(used) * 1e3:.0f} ms |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside is not None:  # as the cluster's user
        print(json.dumps(measure(options.inside, options.rounds)))
        return
    site = Site(())
    with site.running():
        here, rounds = str(Path(__file__).resolve()), str(options.rounds)
        answer = site.user(str(PYTHON), here, "--inside", str(site.shared), "--rounds", rounds)
    print(table(json.loads(answer.splitlines()[-1])))


if __name__ == "__main__":
    main()
