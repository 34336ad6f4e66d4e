"""Ten faults of all kinds in one job: how much of the time was work.

As root on the mini cluster: ``.venv/bin/python benchmarks/storm.py``. Each contender runs the same
DDP job through the same faults at the same times. Work is steps that did not have to be done again,
times their length; it is divided by the time from the first step to the end of the storm. With
``--document`` it also replaces that document's table and the plot beside it. The quickest form that
tries anything: ``--faults 1 --gap 5 --contenders relight``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from contenders import CONTENDERS, STEP_TIME_S, Trial
from faults import FAULTS, Repair
from report import image, plot_bars, replace_part
from stage.site import Site, eventually

START_S = 180.0
GAP_S = 30.0
STORM = (
    *("SIGKILL of a rank", "preemption", "SIGKILL of a rank", "loss of a host"),
    *("SIGKILL of a rank", "hang of a rank", "preemption", "SIGKILL of a rank"),
    *("loss of a host", "SIGKILL of a rank"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one contender made of the storm; ``met`` faults found it running."""

    steps: int
    wall_s: float
    met: int

    @property
    def useful(self) -> float:
        return self.steps * STEP_TIME_S / self.wall_s


def ride(site: Site, contender: str, storm: Sequence[str], gap_s: float) -> Outcome:
    """One job from its first step through all faults, and one gap more."""
    folder = site.shared / contender.replace(" ", "-")
    folder.mkdir()
    folder.chmod(0o777)
    trial = Trial(site, folder)
    CONTENDERS[contender](trial)
    repairs: list[Repair] = []
    met = 0
    try:
        eventually(lambda: bool(trial.steps()), START_S, lambda: f"{contender} did not start")
        begun = trial.steps()[0]["time"]
        for number, fault in enumerate(storm, start=1):
            _wait_until(begun + number * gap_s)
            while repairs:  # a host that was lost is back one gap later
                repairs.pop()()
            try:
                repairs.append(FAULTS[fault](trial))
                met += 1
            except AssertionError as error:  # nothing runs that could be hurt
                print(f"{contender}: {fault} met nothing: {error}", flush=True)
        _wait_until(begun + (len(storm) + 1) * gap_s)
        wall_s = time.time() - begun
        return Outcome(int(max(step["step"] for step in trial.steps())) + 1, wall_s, met)
    finally:
        while repairs:
            repairs.pop()()
        site.user("scancel", "-u", "mini", check=False)
        eventually(lambda: not site.jobs() and site.idle(), 120, lambda: site.user("squeue"))


def _wait_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))


def summary(outcomes: Mapping[str, Outcome], faults: int) -> Iterator[str]:
    yield "| contender | steps | of the time was work | faults that found it running |"
    yield "|---|---|---|---|"
    for contender, outcome in outcomes.items():
        yield (
            f"| {contender} | {outcome.steps} | {outcome.useful:.2f} | {outcome.met} of {faults} |"
        )


def write_document(document: Path, outcomes: Mapping[str, Outcome], faults: int) -> None:
    plot = document.with_name("storm-work.svg")
    replace_part(document, "storm", [*summary(outcomes, faults), *image(plot)])
    shares = {contender: outcome.useful for contender, outcome in outcomes.items()}
    plot_bars(plot, {f"{faults} faults: share of the time that was work": shares})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS)
    )
    parser.add_argument("--faults", type=int, default=len(STORM), help="only the first so many")
    parser.add_argument("--gap", type=float, default=GAP_S, help="seconds between two faults")
    parser.add_argument("--json", type=Path, help="a file for the outcomes")
    parser.add_argument("--document", type=Path, help="with the lines <!-- storm --> twice")
    options = parser.parse_args()
    site = Site(("--grace", "20", "--kill-wait", "10", "--cred-expire", "120"))
    storm = STORM[: options.faults]
    outcomes: dict[str, Outcome] = {}
    with site.running():
        for contender in options.contenders:
            outcomes[contender] = ride(site, contender, storm, options.gap)
            print(f"{contender}: {outcomes[contender]}", flush=True)
    print("\n".join(summary(outcomes, len(storm))))
    if options.json:
        found = {name: {**asdict(one), "useful": one.useful} for name, one in outcomes.items()}
        options.json.write_text(json.dumps(found, indent=1))
    if options.document:
        write_document(options.document, outcomes, len(storm))


if __name__ == "__main__":
    main()
