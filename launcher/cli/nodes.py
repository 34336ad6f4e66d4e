"""``relight nodes``: what is known against nodes, across runs."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import asdict

import click

from relight.counted import counted
from relight.errors import RelightError, UsageError
from relight.resilience.ledger.apart import default_ledger
from relight.resilience.ledger.faults import DAY_S, HOUR_S, RULES, Fault
from relight.resilience.ledger.prediction import predictions, track_record
from relight.resilience.ledger.record import MAX_TTL_S, Evidence, Record, check_node_name
from relight.resilience.ledger.score import Standing, release_of, seen_by, standings
from relight.resilience.ledger.ticket import ticket

from ..units import parse_duration
from ..user_name import user_name

_json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_cluster = click.option("--cluster", help="The Slurm cluster, where several share the ledger.")


@click.group("nodes")
def command() -> None:
    """Look at what is known against nodes, and change it.

    New jobs avoid these nodes. relight tells Slurm nothing about them: `export` writes the text
    with which an administrator may do that.
    """


@command.command("ls")
@_json_flag
def list_nodes(as_json: bool) -> None:
    """List nodes against which something counts, worst first."""
    asked = default_ledger()
    root, files = asked.ledger.root, asked.files()
    found = standings(filter(None, files), time.time())
    if as_json:
        nodes = [asdict(one) for one in found]
        click.echo(json.dumps({"ledger": str(root), "nodes": nodes}))
        return
    if found:
        _print_table(found)
    else:
        click.echo(f"nothing counts against any node, by the ledger {root}", err=True)
    if damaged := files.count(None):
        click.echo(
            f"relight: {counted(damaged, 'file')} in {root} cannot be read as records",
            err=True,
        )


@command.command("show")
@click.argument("node")
@_cluster
@_json_flag
def show(node: str, cluster: str | None, as_json: bool) -> None:
    """Show all that counts against NODE."""
    records = default_ledger().records()
    found = _standings_of(records, node, cluster)
    right = [one for one in predictions(records) if one.node == node]
    right = [one for one in right if cluster in (None, one.cluster)]
    if as_json:
        predicted = {(one.cluster, one.node): [asdict(p) for p in right] for one in found}
        nodes = [{**asdict(one), "predicted": predicted[one.cluster, one.node]} for one in found]
        click.echo(json.dumps(nodes))
        return
    click.echo("\n".join(_text(one) for one in found) or f"nothing counts against {node}")
    for one in right:
        lead = f"{one.lead_s / HOUR_S:.1f} h before"
        click.echo(f"  predicted: {one.counter}, {lead} its {one.fault} fault")
    for sign in track_record(records) if any(_has_trend(one) for one in found) else ():
        lead = "" if sign.lead_s is None else f", {sign.lead_s / HOUR_S:.1f} h before (median)"
        times = f"seen {counted(sign.seen, 'time')}, right {counted(sign.right, 'time')}"
        click.echo(f"  {sign.counter}: {times}{lead}")


@command.command("exclude")
@click.argument("node")
@click.option("--reason", required=True, help="What is wrong with it, for others to read.")
@click.option("--for", "duration", default="14d", show_default=True, help="How long, at most 90d.")
@_cluster
@_json_flag
def exclude(node: str, reason: str, duration: str, cluster: str | None, as_json: bool) -> None:
    """Let new jobs avoid NODE."""
    now = time.time()
    if not reason.strip():
        raise UsageError("--reason is empty: say what is wrong with the node, for others to read")
    try:
        ttl_s = parse_duration(duration)
    except ValueError as error:
        raise UsageError(f"--for: {error}") from error
    if ttl_s > MAX_TTL_S:
        raise UsageError(f"--for {duration}: at most {MAX_TTL_S / DAY_S:.0f}d; say it again later")
    if cluster is not None and not re.fullmatch(r"[\w.-]+", cluster):
        raise UsageError(f"--cluster: {cluster!r} is not the name of a cluster")
    evidence = Evidence(
        cluster=cluster or _this_cluster(),
        node=check_node_name(node),
        fault=Fault.HAND,
        lines=(reason,),
        weight=RULES[Fault.HAND].weight,
        ttl_s=ttl_s,
        first_seen=now,
        last_seen=now,
        run_id=f"by {user_name()}",
    )
    default_ledger().add(evidence)
    if doubt := _doubt(cluster, node):
        click.echo(f"relight: warning: {doubt}; is it spelt so?", err=True)
    if as_json:
        click.echo(json.dumps({"cluster": evidence.cluster, "node": node, "until": now + ttl_s}))
    else:
        click.echo(f"new jobs on {evidence.cluster} avoid {node} for {duration}")


@command.command("release")
@click.argument("node")
@click.option("--reason", default="by hand", show_default=True, help="Why it is good again.")
@_cluster
@_json_flag
def release(node: str, reason: str, cluster: str | None, as_json: bool) -> None:
    """Let what was seen against NODE until now count no more."""
    check_node_name(node)
    ledger = default_ledger()
    held = _standings_of(ledger.records(), node, cluster)
    if not held:
        raise UsageError(f"nothing counts against {node}; `relight nodes ls` lists the others")
    for one in held:
        ledger.release(release_of(one, f"{reason} ({user_name()})", time.time()))
    if as_json:
        click.echo(json.dumps({"node": node, "clusters": [one.cluster for one in held]}))
    else:
        click.echo(f"nothing that was seen against {node} until now counts any more")


@command.command("export")
@click.argument("nodes", nargs=-1)
@_json_flag
def export(nodes: tuple[str, ...], as_json: bool) -> None:
    """Write the text of a ticket to the administrators, for NODES or all avoided nodes."""
    found = [
        one
        for one in standings(default_ledger().records(), time.time())
        if (one.node in nodes if nodes else one.avoided)
    ]
    if unknown := sorted(set(nodes) - {one.node for one in found}):
        raise UsageError(f"nothing counts against {', '.join(unknown)}; see `relight nodes ls`")
    if not found:
        click.echo("no node is avoided: there is nothing to write a ticket about", err=True)
    texts = {f"{one.cluster} {one.node}": ticket(one) for one in found}
    click.echo(json.dumps(texts) if as_json else "\n".join(texts.values()), nl=bool(texts))


def _has_trend(one: Standing) -> bool:
    return any(evidence.fault is Fault.TREND for evidence in one.evidence)


def _standings_of(records: list[Record], node: str, cluster: str | None) -> list[Standing]:
    return [
        one
        for one in standings(records, time.time())
        if one.node == node and cluster in (None, one.cluster)
    ]


def _doubt(cluster: str | None, node: str) -> str | None:
    """Why Slurm, where it answers, makes one doubt that there is such a node."""
    from ..clusters.slurm.client import SlurmClient

    client = SlurmClient(timeout_s=5.0, pauses_s=())
    try:
        here = client.config().get("ClusterName") if cluster is not None else None
        if here not in (None, cluster):
            return f"the cluster here is {here}, and not {cluster}"
        return None if node in client.node_states((node,)) else f"this Slurm has no node {node}"
    except RelightError:
        return None


def _this_cluster() -> str:
    from ..clusters.slurm.client import SlurmClient

    named = os.environ.get("SLURM_CLUSTER_NAME")
    try:
        found = named or SlurmClient(timeout_s=5.0, pauses_s=()).config().get("ClusterName")
    except RelightError as error:
        raise UsageError(f"which cluster is meant? name it with --cluster; {error}") from error
    if not found:
        raise UsageError("Slurm does not say what this cluster is called: name it with --cluster")
    return found


def _text(one: Standing) -> str:
    until = f"avoided until {_day(one.until)}" if one.until is not None else "not avoided"
    lemon = ", a lemon: new evidence comes again and again" if one.lemon else ""
    lines = [f"{one.node} on {one.cluster}: {until}; score {one.score:.2f}, {seen_by(one)}{lemon}"]
    for evidence in one.evidence:
        who = evidence.run_id if evidence.fault is Fault.HAND else f"run {evidence.run_id}"
        lines.append(f"  {_day(evidence.last_seen)} {evidence.fault}, {who}:")
        lines += [f"    {line}" for line in evidence.lines]
    return "\n".join(lines)


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def _print_table(found: list[Standing]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None)
    for heading in ("NODE", "CLUSTER", "AVOIDED UNTIL", "SCORE", "RUNS", "LATEST"):
        table.add_column(heading)
    for one in found:
        until = "" if one.until is None else _day(one.until)
        runs, latest = str(len(one.runs)), one.evidence[0]
        score = f"{one.score:.2f}{' lemon' if one.lemon else ''}"
        word = f"{latest.fault}: {latest.newest}"
        # Evidence holds brackets, which are no markup.
        table.add_row(*map(Text, (one.node, one.cluster, until, score, runs, word)))
    console = Console()
    with console.capture() as printed:
        console.print(table)
    # By click: the terminal's encoding may lack what others have written.
    click.echo(printed.get(), nl=False)
