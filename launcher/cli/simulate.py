"""``relight simulate``."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Final

import click

from relight.counted import counted
from relight.resilience.decide.cadence import bounded, daly_s, meta_share

from ..simulation import Model, Tally, simulate

_DAY_S: Final = 86400.0
_SPARES: Final = (0, 1, 2, 4, 8, 16, 32)
_FAILURES: Final = 500  # that a run which is compared with the formula has, or so


@click.command("simulate")
@click.option("--nodes", type=click.IntRange(1), required=True, help="Nodes that carry ranks.")
@click.option("--gpus-per-node", type=click.IntRange(1), default=8, show_default=True)
@click.option("--days", type=click.FloatRange(0, min_open=True), default=30.0, show_default=True)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    default=6.5,
    show_default=True,
    help="Failures in 1000 node-days; Meta publishes 6.50 and 2.34 for its two clusters.",
)
@click.option(
    "--save-s",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds a save takes; `relight interval RUN` has yours.",
)
@click.option(
    "--restart-s",
    type=click.FloatRange(0),
    default=600.0,
    show_default=True,
    help="Seconds from a failure to the first new step: here those of a large job, with a state "
    "that takes its time to be read; `relight history` has yours.",
)
@click.option(
    "--queue-s",
    type=click.FloatRange(0),
    default=1800.0,
    show_default=True,
    help="Seconds that a new allocation takes, when no spare is left.",
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    nodes: int,
    gpus_per_node: int,
    days: float,
    rate: float,
    save_s: float,
    restart_s: float,
    queue_s: float,
    seed: int,
    as_json: bool,
) -> None:
    """Let the decisions of relight run on nodes that fail at random, and say what that costs."""
    node_rate = rate / (1000 * _DAY_S)
    mttf_s = 1 / (nodes * node_rate)
    model = Model(
        nodes=nodes,
        spares=0,
        node_rate=node_rate,
        save_s=save_s,
        interval_s=bounded(daly_s(save_s, mttf_s), save_s),
        restart_s=restart_s,
        queue_s=queue_s,
        wall_s=days * _DAY_S,
    )
    tallies = {spares: simulate(replace(model, spares=spares), seed) for spares in _SPARES}
    formula = meta_share(model.interval_s, save_s, restart_s, mttf_s)
    alike = simulate(_like_the_formula(model), seed)
    best = max(tallies, key=lambda spares: _per_node(tallies[spares], nodes, spares))
    if as_json:
        rows = [
            {
                "spares": spares,
                "useful_share": tally.useful_share,
                "lost_gpu_hours": _lost_gpu_h(tally, nodes, spares, gpus_per_node),
                **asdict(tally),
            }
            for spares, tally in tallies.items()
        ]
        told = {
            "mttf_s": mttf_s,
            "interval_s": model.interval_s,
            "meta_share": formula,
            "share_without_queue": alike.useful_share,
        }
        click.echo(json.dumps({**told, "spares_worth_having": best, "runs": rows}))
        return
    click.echo(
        f"{counted(nodes, 'node')} for {days:g} days; a failure every {mttf_s / 3600:.1f} h, "
        f"a save every {model.interval_s / 60:.1f} min\n"
    )
    click.echo("spares  useful  failures  allocations  lost GPU-hours")
    for spares, tally in tallies.items():
        click.echo(
            f"{spares:6}  {tally.useful_share:6.1%}  {tally.failures:8}  {tally.allocations:11}"
            f"  {_lost_gpu_h(tally, nodes, spares, gpus_per_node):14,.0f}"
            + (f"  stopped: {tally.stopped}" if tally.stopped else "")
        )
    click.echo(f"\nspares worth having: {best} (most useful time per node that is held)")
    click.echo(
        f"without the queue, over {alike.failures} failures: useful {alike.useful_share:.1%}; by "
        f"Meta's formula (arXiv 2410.21680) {formula:.1%}, which takes at most one failure between "
        "two saves"
    )


def _like_the_formula(model: Model) -> Model:
    """Without a queue, and so long that chance hardly counts."""
    wall_s = max(model.wall_s, _FAILURES / (model.nodes * model.node_rate))
    return replace(model, queue_s=0.0, wall_s=wall_s)


def _per_node(tally: Tally, nodes: int, spares: int) -> float:
    return tally.useful_share * nodes / (nodes + spares)


def _lost_gpu_h(tally: Tally, nodes: int, spares: int, gpus_per_node: int) -> float:
    """GPU-hours that were held and brought no work that lasts; nothing is held in the queue."""
    held_s = tally.wall_s - tally.queued_s
    return ((nodes + spares) * held_s - nodes * tally.useful_s) * gpus_per_node / 3600
