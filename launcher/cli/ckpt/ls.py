"""``relight ckpt ls``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

import click

from relight.storage.choose import Candidate, candidates
from relight.storage.prune import committed
from relight.storage.retention import Keep, kept_by
from relight.storage.set_aside import SetAside, records

from ...units import amount
from .place import checkpoint_directory, keep_rule


@click.command("ls")
@click.argument("place", metavar="RUN|DIR")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(place: str, as_json: bool) -> None:
    """List checkpoints, newest first; valid means complete, by manifest and sizes.

    Of a run also by which rule of checkpoint.keep each one stays. What was set aside, as damaged or
    spoilt, comes last.
    """
    directory = checkpoint_directory(place)
    found = candidates(directory)
    kept = _kept(found, keep_rule(place))
    if as_json:
        rows = [_row(one, kept.get(one.step, ())) for one in found]
        aside = [
            {"step": one.step, "reason": one.reason, "created": one.created, "path": str(one.path)}
            for one in records(directory)
        ]
        told = {"directory": str(directory), "checkpoints": rows, "set_aside": aside}
        click.echo(json.dumps(told))
        return
    for one in found:
        click.echo(_line(one, kept.get(one.step, ())))
    for away in records(directory):
        click.echo(_aside(away))
    if not found:
        click.echo(f"{directory} holds no checkpoints", err=True)
    elif any(one.condition == "valid" for one in found):
        click.echo(f"sizes are compared; `relight ckpt verify {place}` reads every byte", err=True)


def _kept(found: list[Candidate], rule: Keep | None) -> Mapping[int, tuple[str, ...]]:
    valid = committed(found)
    if rule is None or not valid:
        return {}
    return kept_by(valid, max(one.step for one in valid), rule)


def _row(one: Candidate, kept: tuple[str, ...]) -> dict[str, object]:
    saved = one.manifest
    return {
        "step": one.step,
        "condition": one.condition,
        "reason": one.reason,
        "bytes": None if saved is None else saved.payload_bytes,
        "created": None if saved is None else saved.created,
        "kept": kept,
    }


def _aside(one: SetAside) -> str:
    return f"{one.step:>12}  set aside: {one.reason} (it stays in {one.path.parent})"


def _line(one: Candidate, kept: tuple[str, ...]) -> str:
    text = f"{one.step:>12}  {one.condition}"
    if one.manifest is not None:
        created = datetime.fromtimestamp(one.manifest.created_s)
        text += f"  {amount(one.manifest.payload_bytes):>8}  {created:%Y-%m-%d %H:%M:%S}"
    text += f"  kept: {', '.join(kept)}" if kept else ""
    return f"{text}: {one.reason}" if one.reason else text
