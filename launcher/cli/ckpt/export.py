"""``relight ckpt export``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from relight.counted import counted
from relight.storage.progress import progress

from .place import chosen_checkpoint


@click.command("export")
@click.argument("checkpoint")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--under", default="", metavar="KEY", help="Only this key, and below.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(checkpoint: str, file: Path, under: str, as_json: bool) -> None:
    """Write the arrays of CHECKPOINT to FILE: .safetensors, .npz or .pt.

    An array that `model` protects has the key objects/model/0.weight; with --under, what of that is
    below it: 0.weight.

    Plain values stay behind. A file that is there is not replaced.
    """
    from relight.storage.export import export, total_bytes

    chosen = chosen_checkpoint(checkpoint)
    total = total_bytes(chosen.directory, chosen.manifest, under)
    with progress("export", total) as advance:
        named = export(chosen.directory, chosen.manifest, file, under, advance)
    size_bytes = sum(entry.form.size_bytes for entry in named.values())
    if as_json:
        told = {"file": str(file), "step": chosen.manifest.step, "arrays": list(named)}
        click.echo(json.dumps({**told, "bytes": size_bytes}))
    else:
        arrays, step = counted(len(named), "array"), chosen.manifest.step
        click.echo(f"{file}: {arrays}, {size_bytes:,} bytes of step {step}")
