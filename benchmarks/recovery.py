"""From a fault to the first new step: relight beside torchrun, submitit and a requeue script.

As root on the mini cluster: ``.venv/bin/python benchmarks/recovery.py``. One run brings the cluster
up, tries every contender with every fault ``--rounds`` times in turn, prints a table of medians,
and brings the cluster down.
"""

from __future__ import annotations

import argparse
import statistics
import time

from contenders import CONTENDERS, Trial
from faults import FAULTS
from stage.site import Site, eventually

LIMIT_S = 180.0
STEADY_S = 22.0  # of steps before the fault: in a long run everything is warm


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
    parser.add_argument(
        "--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS)
    )
    options = parser.parse_args()
    site = Site(("--grace", "20", "--kill-wait", "10", "--cred-expire", "120"))
    results: dict[tuple[str, str], list[tuple[float, int] | None]] = {}
    with site.running():
        for number in range(options.rounds):
            for fault in options.faults:
                for contender in options.contenders:
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
