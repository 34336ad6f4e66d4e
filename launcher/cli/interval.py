"""``relight interval``."""

from __future__ import annotations

import json
from collections import Counter
from typing import Final

import click

from relight.errors import UsageError
from relight.resilience.decide.cadence import CAP_S, FLOOR_S, Cadence, cadence, useful_share
from relight.resilience.decide.past import Past, SaveCost
from relight.resilience.decide.replay import failures as failures_of
from relight.resilience.decide.replay import replayed
from relight.resilience.supervise.begin import policy_of
from relight.resilience.supervise.journal import read_journals
from relight.resilience.supervise.rules_file import stored_rules
from relight.resilience.worker.interval import AUTO

from ..runs import find_one_run
from .run_argument import complete_run

_CHOICES_S: Final = (60.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0)


@click.command("interval")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--nodes", type=click.IntRange(1), help="Without RUN: how many nodes.")
@click.option("--save-s", type=click.FloatRange(0, min_open=True), help="Seconds a save takes.")
@click.option(
    "--stall-s", type=click.FloatRange(0), help="For how many of them steps wait; all if not given."
)
@click.option("--ran-h", type=click.FloatRange(0), default=0.0, help="Hours it ran so far.")
@click.option("--failures", type=click.IntRange(0), default=0, help="Failures it had so far.")
@click.option(
    "--restart-s",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="Seconds from a failure to the first new step.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    run: str | None,
    nodes: int | None,
    save_s: float | None,
    stall_s: float | None,
    ran_h: float,
    failures: int,
    restart_s: float,
    as_json: bool,
) -> None:
    """Show how `interval: auto` is found, for RUN or for numbers, and what other choices cost."""
    own, causes = AUTO, Counter[str]()
    if run is not None:
        nodes, past, own, causes = _past_of(run)
    elif nodes is not None and save_s is not None:
        save = SaveCost(seconds=save_s, stall_s=save_s if stall_s is None else stall_s)
        past = Past(ran_s=ran_h * 3600, failures=failures, saves=(save,))
    else:
        raise UsageError("name a run, or give --nodes and --save-s")
    found = cadence(past, nodes)
    shares = _shares(found, past, restart_s)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "nodes": nodes,
                    "checkpoint_interval": own,
                    "save_s": past.save_s,
                    "cost_s": past.cost_s,
                    "ran_s": past.ran_s,
                    "failures": past.failures,
                    "causes": causes,
                    "mttf_s": found.mttf_s,
                    "daly_s": found.daly_s,
                    "interval_s": found.interval_s,
                    "useful_share": {str(every): share for every, share in shares.items()},
                }
            )
        )
        return
    if own != AUTO:
        click.echo(f"this run has checkpoint.interval: {own}; with auto it would be\n")
    source = "as given" if run is None else "medians of the last 5"
    click.echo(_text(nodes, past, causes, found, shares, restart_s, source))


def _past_of(run: str) -> tuple[int, Past, str, Counter[str]]:
    """Its nodes, its past, the interval that its spec asks for, and its failures by cause."""
    stored = find_one_run(run)
    config = stored.plan.config
    records = read_journals(stored.folder.journals)
    events = ((one.time, one.name, one.data) for one in records if one.kind == "event")
    past, causes = Past(), Counter[str]()
    for before, after in replayed(events, policy_of(config, stored_rules(stored.folder))):
        causes.update(failures_of(before, after))
        past = after.past
    return config.nodes, past, config.checkpoint.interval, causes


def _shares(found: Cadence, past: Past, restart_s: float) -> dict[float, float]:
    """The useful share of the time by interval; none before a save was measured."""
    if past.cost_s is None:
        return {}
    return {
        every_s: useful_share(every_s, past.cost_s, restart_s, found.mttf_s)
        for every_s in sorted({*_CHOICES_S, found.interval_s})
    }


def _text(
    nodes: int,
    past: Past,
    causes: Counter[str],
    found: Cadence,
    shares: dict[float, float],
    restart_s: float,
    source: str,
) -> str:
    known = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
    lines = [
        f"nodes     {nodes}",
        f"failures  {past.failures}{f' ({known})' if known else ''} in {_time(past.ran_s)} of "
        "running; preemptions, time limits and mistakes in the program are none",
        f"a failure is expected every {_time(found.mttf_s)} (own history, and a prior of Meta's "
        "6.5 in 1000 node-days, at most a day)",
    ]
    if past.save_s is None or past.cost_s is None or found.daly_s is None:
        lines.append(f"interval  {_time(found.interval_s)}: no save has been measured yet")
        return "\n".join(lines)
    lines += [
        f"a save    {_time(past.save_s)}, and costs the steps {_time(past.cost_s)}: what they "
        f"wait, and a 20th of the rest ({source})",
        f"Daly      {_time(found.daly_s)}, of which √(2 · cost · time to failure) is "
        f"{_time((2 * past.cost_s * found.mttf_s) ** 0.5)}",
        f"interval  {_time(found.interval_s)} (at least {_time(FLOOR_S)} and the time of a save, "
        f"at most {_time(CAP_S)})",
        f"\nuseful time, when a restart takes {_time(restart_s)}",
    ]
    for every_s, share in shares.items():
        mark = "  <" if every_s == found.interval_s else ""
        lines.append(f"  every {_time(every_s):>9}  {share:7.2%}{mark}")
    return "\n".join(lines)


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
