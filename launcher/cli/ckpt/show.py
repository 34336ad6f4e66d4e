"""``relight ckpt show``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sized
from textwrap import fill
from typing import TYPE_CHECKING, Final

import click

from relight.counted import counted

from .place import Chosen, chosen_checkpoint

if TYPE_CHECKING:
    from relight.storage.manifest import Manifest
    from relight.storage.shards import Shards

Row = dict[str, object]
_WIDTH: Final = 100
_INDENT: Final = " " * 15
_SHOWN: Final = 60  # characters of a value


@click.command("show")
@click.argument("checkpoint")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(checkpoint: str, as_json: bool) -> None:
    """Tell what is in CHECKPOINT: who saved it, what was logged, its plain values and arrays."""
    from relight.storage.shards import Shards

    chosen = chosen_checkpoint(checkpoint)
    with Shards(chosen.directory, chosen.manifest) as shards:
        values = _values(shards, chosen.manifest)
        arrays = _arrays(shards, chosen.manifest)
    told = _told(chosen)
    if as_json:
        click.echo(json.dumps({**told, "values": values, "arrays": arrays}))
        return
    width = max((len(str(row["key"])) for row in (*values, *arrays)), default=0)
    click.echo("\n".join([*_lines(told), "", *_table(values, arrays, width)]))


def _told(chosen: Chosen) -> dict[str, object]:
    manifest = chosen.manifest
    return {
        "directory": str(chosen.directory),
        "step": manifest.step,
        "world_size": manifest.world_size,
        "created": manifest.created,
        "attempt": manifest.incarnation.attempt,
        "generation": manifest.incarnation.generation,
        "payload_bytes": manifest.payload_bytes,
        "file_bytes": sum(receipt.size_bytes for receipt in manifest.receipts),
        "seconds": max(receipt.seconds for receipt in manifest.receipts),
        "metrics": dict(manifest.metrics),
        "provenance": dict(manifest.provenance),
        "details": dict(manifest.details),
    }


def _values(shards: Shards, manifest: Manifest) -> list[Row]:
    """One row for each value of a key, spelled as in the checkpoint; `ranks` are those that have
    it, none when all do."""
    from relight.storage.keys import plain_values

    ranks: dict[tuple[str, str], list[int]] = {}
    for rank in range(manifest.world_size):
        for key, value in plain_values(shards.index(rank).tree):
            ranks.setdefault(("/".join(key), json.dumps(value)), []).append(rank)
    return [
        {
            "key": key,
            "value": json.loads(value),
            "ranks": [] if len(having) == manifest.world_size else having,
        }
        for (key, value), having in ranks.items()
    ]


def _arrays(shards: Shards, manifest: Manifest) -> list[Row]:
    """One row for arrays of one key and form; `ranks` are those that have one of their own."""
    from relight.storage.entries import Entry, entries

    rows: dict[object, list[Entry]] = {}
    for entry in entries(shards, manifest.world_size):
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


def _lines(told: Mapping[str, object]) -> Iterator[str]:
    for name, fact in told.items():
        if isinstance(fact, Mapping) and name != "metrics":
            for part, value in fact.items():
                if part == "packages" and isinstance(value, Sized):
                    value = f"{len(value)}, listed with --json"
                yield _line(part, value)
        else:
            yield _line(name, fact)


def _line(name: str, fact: object) -> str:
    text = f"{name:<14} {_text(fact)}"
    return fill(text, _WIDTH, subsequent_indent=_INDENT, break_on_hyphens=False)


def _text(fact: object) -> str:
    if isinstance(fact, float):
        return f"{fact:.4g}"
    if isinstance(fact, Mapping):
        return ", ".join(f"{name} {_text(value)}" for name, value in fact.items())
    if isinstance(fact, list):
        return ", ".join(map(_text, fact))
    return str(fact)


def _table(values: list[Row], arrays: list[Row], width: int) -> Iterator[str]:
    for row in values:
        yield f"{row['key']!s:<{width}}  {spelled(row['value'])}  {_whose(row['ranks'])}"
    for row in arrays:
        whose = counted(int(str(row["parts"])), "part") if row["parts"] else _whose(row["ranks"])
        yield (
            f"{row['key']!s:<{width}}  {row['dtype']!s:<10} {row['shape']!s:<16} "
            f"{row['bytes']:>14,}  {whose}"
        )


def spelled(value: object) -> str:
    """A plain value of a checkpoint for people, cut where it is long."""
    text = json.dumps(_bare(value))
    more = f"… {counted(len(text), 'character')}" if len(text) > _SHOWN else ""
    return text[:_SHOWN] + more


def _bare(value: object) -> object:
    """For people: without the names of the types that JSON has no spelling for."""
    if isinstance(value, dict):
        ((kind, content),) = value.items()
        if kind == "dict":
            return {key: _bare(item) for key, item in content.items()}
        return _bare(content)
    return [_bare(item) for item in value] if isinstance(value, list) else value


def _whose(ranks: object) -> str:
    assert isinstance(ranks, list)
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return counted(len(ranks), "rank") if ranks else "all"
