"""From a fault to the first new step: relight beside torchrun, submitit and a requeue script.

As root on the mini cluster: ``.venv/bin/python benchmarks/recovery.py``. One run brings the cluster
up, tries every contender with every fault ``--rounds`` times in turn, prints a table of medians,
and brings the cluster down; with ``--document`` it also replaces that document's table and the plot
beside it. Results are kept in ``--json`` as they come, and a run that finds some there goes on from
them: contenders that take minutes each time can have fewer rounds than others. The quickest form
that tries anything: ``--rounds 1 --steady 2 --contenders relight --faults "SIGKILL of a rank"``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from contenders import CONTENDERS, ONLY, Trial
from faults import FAULTS
from report import image, plot_bars, replace_part
from stage.site import Site, eventually

LIMIT_S = 240.0  # a requeued job waits for two minutes, after its grace
STEADY_S = 22.0  # of steps before the fault: in a long run everything is warm

Recovered = tuple[float, int]  # seconds from the fault to the first new step, steps done twice
Results = dict[str, dict[str, list[Recovered | None]]]  # by fault and contender; None: never


def measure(
    site: Site, contender: str, fault: str, number: int, steady_s: float
) -> Recovered | None:
    """How long it took and what it cost to come back; None: never."""
    folder = site.shared / f"{contender}-{fault.split()[0].lower()}-{number}".replace(" ", "-")
    folder.mkdir()
    folder.chmod(0o777)
    trial = Trial(site, folder)
    CONTENDERS[contender](trial)
    try:
        eventually(lambda: bool(trial.steps()), LIMIT_S, lambda: f"{contender} did not start")
        begun = trial.steps()[0]["time"]
        eventually(lambda: time.time() > begun + steady_s, 2 * steady_s + 1, lambda: "")
        fault_at = time.time()
        repair = FAULTS[fault](trial)
        try:
            return _wait_for_new_step(site, trial, fault_at)
        finally:
            repair()
    finally:
        site.user("scancel", "-u", "mini", check=False)
        eventually(lambda: not site.jobs() and site.idle(), 90, lambda: site.user("squeue"))


def _wait_for_new_step(site: Site, trial: Trial, fault_at: float) -> Recovered | None:
    pid_before = trial.steps()[-1]["pid"]

    def new() -> list[dict[str, float]]:
        return [step for step in trial.steps() if step["pid"] != pid_before]

    try:
        eventually(lambda: bool(new()) or not site.jobs(), LIMIT_S, lambda: "no new step")
    except AssertionError:
        return None
    if not new():
        return None  # its job has ended
    first = new()[0]
    last_before = max(step["step"] for step in trial.steps() if step["time"] < first["time"])
    return first["time"] - fault_at, int(last_before + 1 - first["step"])


def summary(results: Results) -> Iterator[str]:
    """The medians as a table."""
    yield "| fault | contender | seconds to the first new step | steps done twice |"
    yield "|---|---|---|---|"
    for fault, of_fault in results.items():
        for contender, rounds in of_fault.items():
            back = [result for result in rounds if result is not None]
            if not back:
                yield f"| {fault} | {contender} | not in {LIMIT_S:.0f} s | |"
                continue
            share = f"{len(back)} of {len(rounds)}"
            yield (
                f"| {fault} | {contender} | {_median_s(rounds):.1f} ({share}) "
                f"| {statistics.median(steps for _, steps in back):.0f} |"
            )


def _median_s(rounds: Sequence[Recovered | None]) -> float:
    """Of those that came back; the limit, when none did."""
    return statistics.median([back[0] for back in rounds if back is not None] or [LIMIT_S])


def write_document(document: Path, results: Results) -> None:
    plot = document.with_name("recovery-times.svg")
    replace_part(document, "recovery", [*summary(results), *image(plot)])
    panels = {
        f"{fault}: s to the first new step": {
            contender: _median_s(rounds) for contender, rounds in of_fault.items()
        }
        for fault, of_fault in results.items()
    }
    plot_bars(plot, panels)


def known(file: Path | None) -> Results:
    """What an earlier run has left in its file."""
    if file is None or not file.exists():
        return {}
    return {
        fault: {
            contender: [None if one is None else (one[0], one[1]) for one in rounds]
            for contender, rounds in of_fault.items()
        }
        for fault, of_fault in json.loads(file.read_text()).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steady", type=float, default=STEADY_S, help="seconds before the fault")
    parser.add_argument("--faults", nargs="+", choices=list(FAULTS), default=list(FAULTS))
    parser.add_argument(
        "--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS)
    )
    parser.add_argument("--json", type=Path, help="a file for the results, which may hold some")
    parser.add_argument("--document", type=Path, help="with the lines <!-- recovery --> twice")
    options = parser.parse_args()
    site = Site(("--grace", "20", "--kill-wait", "10", "--cred-expire", "120"))
    results = known(options.json)
    with site.running():
        for number, fault, contender in product(
            range(options.rounds), options.faults, options.contenders
        ):
            if fault not in ONLY.get(contender, FAULTS):
                continue
            rounds = results.setdefault(fault, {}).setdefault(contender, [])
            if number < len(rounds):
                continue
            rounds.append(measure(site, contender, fault, number, options.steady))
            print(f"round {number + 1}: {fault}: {contender}: {rounds[-1]}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1))
    print("\n".join(summary(results)))
    if options.document:
        write_document(options.document, results)


if __name__ == "__main__":
    main()
