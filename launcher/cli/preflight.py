"""``relight preflight``: looks at nodes by hand, and lists what is looked at."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import click

from relight.errors import UsageError
from relight.resilience.config import HealthConfig
from relight.resilience.exit_codes import EXIT_FAILED
from relight.resilience.health.check import Check
from relight.resilience.health.result import NodeReport, Outcome

from ..runs import find_one_run
from .run_argument import complete_run


class _Unseen(click.Path):
    """A path that is not looked at: where it is on a dead filesystem, a check is to say so."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        return Path(value)


_FAILURES = (Outcome.FAIL_NODE, Outcome.FAIL_JOB)


@click.command("preflight")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--list", "as_list", is_flag=True, help="List the checks instead.")
@click.option(
    "--directory",
    type=_Unseen(),
    help="Where checkpoints would go, which must be there; the current directory by default.",
)
@click.option("--active", is_flag=True, help="Make the nodes work too: it takes a minute or so.")
@click.option("--pairs", is_flag=True, help="Test the network between RUN's nodes instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    run: str | None, as_list: bool, directory: Path | None, active: bool, pairs: bool, as_json: bool
) -> None:
    """Look at the nodes that RUN holds now, or at this machine; exit 1 when something is bad, or a
    node was not looked at."""
    asked = {"RUN": run is not None, "--directory": directory is not None}
    asked |= {"--active": active, "--pairs": pairs}
    if pairs and run is None:
        raise UsageError("--pairs needs a RUN, whose nodes are tested")
    if as_list:
        _refuse("--list", asked)
        _list(as_json)
    elif pairs and run is not None:
        _refuse("--pairs", asked, "RUN")
        _pairs_of(run, as_json)
    elif run is None:
        _here(directory or Path(), active, as_json)
    else:
        _refuse("RUN", asked, "--active")
        _nodes_of(run, active, as_json)


def _refuse(what: str, asked: Mapping[str, bool], *but: str) -> None:
    """Raises UsageError where anything else is asked than goes with ``what``."""
    if more := [name for name, given in asked.items() if given and name not in (what, *but)]:
        raise UsageError(f"{what} does not go with {' and '.join(more)}")


def _list(as_json: bool) -> None:
    from relight.resilience.health.catalogue import ACTIVE, all_checks

    from ..preflight import config_here

    checks = (*all_checks(), *ACTIVE)
    health = config_here(Path()).health
    if as_json:
        click.echo(json.dumps([_described(check, health) for check in checks]))
        return
    for check in checks:
        more = ", repeated while ranks run" if check.repeated else ""
        more += ", off" if check.name in health.skip else ""
        click.echo(f"{check.name}  (at worst {check.worst}, about {check.typical_s:g} s{more})")
        click.echo(f"    reads: {check.reads}\n    good:  {check.threshold}")
        for limit in check.limits:
            counts = limit.of(health)
            own = "" if counts == limit.default else f" ({limit.default:.12g} by default)"
            click.echo(f"    limit: {limit.name} = {counts:.12g} {limit.unit}{own}")


def _described(check: Check, health: HealthConfig) -> dict[str, object]:
    return {
        "name": check.name,
        "reads": check.reads,
        "threshold": check.threshold,
        "worst": check.worst,
        "fault": check.fault,
        "typical_s": check.typical_s,
        "timeout_s": check.timeout_s,
        "repeated": check.repeated,
        "limits": {limit.name: limit.of(health) for limit in check.limits},
        "off": check.name in health.skip,
    }


def _here(directory: Path, active: bool, as_json: bool) -> None:
    from ..preflight import examine_here

    report, on_unknown = examine_here(directory, active=active)
    failures = (*_FAILURES, *((Outcome.UNKNOWN,) if on_unknown == "fail" else ()))
    if as_json:
        click.echo(json.dumps(report.to_json()))
    else:
        for result in report.results:
            click.echo(f"{result.check:18} {result.outcome:9} {result.evidence}")
    bad = any(result.outcome in failures for result in report.results)
    click.get_current_context().exit(EXIT_FAILED if bad else 0)


def _nodes_of(run: str, active: bool, as_json: bool) -> None:
    from rich.console import Console
    from rich.progress import Progress

    from relight.resilience.health.compare import compare
    from relight.resilience.health.verdict import judge

    from ..preflight import examination

    reports: dict[str, NodeReport | None] = {}
    console = Console(stderr=True)
    looking_at = examination(find_one_run(run), active=active)
    bars = Progress(console=console, transient=True, disable=not console.is_terminal)
    with looking_at as looking, bars as progress:
        bar = progress.add_task("nodes", total=len(looking.nodes))
        reports = dict.fromkeys(looking.nodes)
        for report in looking.reports():
            reports[report.node] = report
            progress.advance(bar)
            if not as_json:
                click.echo(_line(report))
    judgement = judge(compare(reports), looking.config.health.on_unknown)
    fault = judgement.job_fault or judgement.outage
    if as_json:
        answer = {"bad": judgement.bad, "job_fault": fault}
        nodes = {node: report and report.to_json() for node, report in reports.items()}
        click.echo(json.dumps({**answer, "warnings": judgement.warnings, "nodes": nodes}))
    else:
        click.echo("\n".join([*([f"FAIL_JOB {fault}"] if fault else []), *judgement.warnings]))
        for node, evidence in judgement.bad.items():
            click.echo(f"FAIL_NODE {node}: {evidence}")
    failed = bool(judgement.bad or fault) or None in reports.values()
    click.get_current_context().exit(EXIT_FAILED if failed else 0)


def _pairs_of(run: str, as_json: bool) -> None:
    from ..preflight import examine_pairs

    found = examine_pairs(find_one_run(run))
    if as_json:
        rates = {"+".join(pair): rate for pair, rate in found.rates.items()}
        click.echo(json.dumps({"bad": found.bad, "unclear": found.unclear, "rates": rates}))
    else:
        for (one, other), rate in found.rates.items():
            said = "did not end" if rate is None else f"{rate:.2f} GB/s"
            click.echo(f"{one} and {other}: {said}")
        for node, evidence in found.bad.items():
            click.echo(f"FAIL_NODE {node}: {evidence}")
        if found.unclear:
            click.echo(f"unclear, no good partner is left to ask: {', '.join(found.unclear)}")
    click.get_current_context().exit(EXIT_FAILED if found.bad else 0)


def _line(report: NodeReport) -> str:
    worst = [result for result in report.results if result.outcome in _FAILURES]
    said = "; ".join(f"{result.check}: {result.evidence}" for result in worst)
    return f"{report.node}: {said or 'no fault'} ({report.seconds:.1f} s)"
