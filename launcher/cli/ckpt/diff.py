"""``relight ckpt diff``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from math import isfinite
from typing import TYPE_CHECKING

import click

from relight.counted import counted
from relight.resilience.exit_codes import EXIT_FAILED
from relight.storage.progress import progress

from .place import chosen_checkpoint
from .show import spelled

if TYPE_CHECKING:
    from relight.storage.compare import ArrayDifference


@click.command("diff")
@click.argument("one", metavar="CHECKPOINT")
@click.argument("other", metavar="CHECKPOINT")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(one: str, other: str, as_json: bool) -> None:
    """Compare two checkpoints bit for bit; exit 1 when they differ."""
    from relight.storage.compare import Source, compare
    from relight.storage.shards import Shards

    chosen = [chosen_checkpoint(word) for word in (one, other)]
    first, second = (Shards(found.directory, found.manifest) for found in chosen)
    with first, second, progress("compare", chosen[0].manifest.payload_bytes) as advance:
        sources = (Source(chosen[0].manifest, first), Source(chosen[1].manifest, second))
        found = compare(*sources, advance)
    if as_json:
        arrays = [as_json_values(difference) for difference in found.arrays]
        click.echo(json.dumps({"same": found.same, "arrays": arrays, "values": list(found.values)}))
    else:
        for line in _lines(found.arrays):
            click.echo(line)
        for key, both in found.values.items():
            click.echo(values_line(key, both))
        values = counted(len(found.values), "plain value")
        click.echo(f"{counted(len(found.arrays), 'array')} and {values} differ")
    click.get_current_context().exit(0 if found.same else EXIT_FAILED)


def as_json_values(difference: ArrayDifference) -> dict[str, object]:
    """For JSON, which has no NaN and no infinity."""
    return {
        name: value if not isinstance(value, float) or isfinite(value) else str(value)
        for name, value in asdict(difference).items()
    }


def values_line(key: str, both: tuple[object, object]) -> str:
    return f"{key}: {' against '.join('nothing' if one is None else spelled(one) for one in both)}"


def _lines(found: Iterable[ArrayDifference]) -> Iterator[str]:
    """One for all ranks that differ alike, as those of DDP do."""
    alike: dict[str, list[ArrayDifference]] = {}
    for one in found:
        alike.setdefault(as_line(replace(one, rank=None)), []).append(one)
    for line, ones in alike.items():
        yield as_line(ones[0]) if len(ones) == 1 else f"{line} ({counted(len(ones), 'rank')})"


def as_line(found: ArrayDifference) -> str:
    name = found.key if found.rank is None else f"{found.key} (rank {found.rank})"
    if found.reason:
        return f"{name}: {found.reason}"
    return (
        f"{name}: {found.elements} of {found.size} elements, at most {found.max_abs:.3g}, "
        f"relatively {found.max_rel:.3g}"
    )
