"""``relight ckpt show``."""

from __future__ import annotations

import json

import click

from .place import Chosen, chosen_checkpoint


@click.command("show")
@click.argument("checkpoint")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(checkpoint: str, as_json: bool) -> None:
    """Tell what is in CHECKPOINT: who saved it, its arrays, what was logged."""
    chosen = chosen_checkpoint(checkpoint)
    arrays = _arrays(chosen)
    manifest = chosen.manifest
    told: dict[str, object] = {
        "directory": str(chosen.directory),
        "step": manifest.step,
        "world_size": manifest.world_size,
        "created": manifest.created,
        "attempt": manifest.incarnation.attempt,
        "generation": manifest.incarnation.generation,
        "payload_bytes": manifest.payload_bytes,
        "seconds": max(receipt.seconds for receipt in manifest.receipts),
        "metrics": dict(manifest.metrics),
        "provenance": dict(manifest.provenance),
        "details": dict(manifest.details),
        "arrays": arrays,
    }
    click.echo(json.dumps(told) if as_json else "\n".join(_lines(told, arrays)))


def _arrays(chosen: Chosen) -> list[dict[str, object]]:
    """One row for arrays of one key and form; `ranks` are those that have one of their own."""
    from relight.storage.entries import Entry, entries
    from relight.storage.shards import Shards

    rows: dict[object, list[Entry]] = {}
    with Shards(chosen.directory, chosen.manifest) as shards:
        for entry in entries(shards, chosen.manifest.world_size):
            rows.setdefault((entry.key, entry.form), []).append(entry)
    return [
        {
            "key": same[0].name,
            "dtype": same[0].form.dtype,
            "shape": list(same[0].form.shape),
            "bytes": same[0].form.size_bytes,
            "parts": len(same[0].saved) if same[0].in_parts else None,
            "ranks": [entry.rank for entry in same if entry.rank is not None],
        }
        for same in rows.values()
    ]


def _lines(told: dict[str, object], arrays: list[dict[str, object]]) -> list[str]:
    apart = ("arrays", "provenance", "details")
    lines = [f"{name:<14} {told[name]}" for name in told if name not in apart]
    for name in apart[1:]:
        facts = told[name]
        assert isinstance(facts, dict)
        lines += [f"{key:<14} {value}" for key, value in facts.items()]
    lines.append("")
    width = max((len(str(row["key"])) for row in arrays), default=0)
    for row in arrays:
        ranks = row["ranks"]
        assert isinstance(ranks, list)
        whose = (
            f"{row['parts']} parts" if row["parts"] else f"{len(ranks)} ranks" if ranks else "all"
        )
        lines.append(
            f"{row['key']!s:<{width}}  {row['dtype']!s:<10} {row['shape']!s:<16} "
            f"{row['bytes']:>14,}  {whose}"
        )
    return lines
