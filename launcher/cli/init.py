"""``relight init``."""

from __future__ import annotations

from pathlib import Path

import click

from relight.errors import RelightError, UsageError

from ..clusters.slurm.client import SlurmClient
from ..site import read_site
from ..starter import starter


@click.command("init")
@click.argument("path", type=click.Path(path_type=Path), default=Path("job.yaml"))
def command(path: Path) -> None:
    """Write a first spec to PATH (job.yaml), with comments about this site; "-" prints it."""
    try:
        site = read_site(SlurmClient(timeout_s=5.0, pauses_s=()))
    except RelightError:  # no Slurm, or none that answers: a spec is of use all the same
        site = None
    text = starter(site)
    if str(path) == "-":
        click.echo(text, nl=False)
        return
    try:
        with path.open("x") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(
            f"{path} is there already: `relight init OTHER.yaml` writes another one, "
            "`relight init -` prints it"
        ) from error
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    click.echo(f"{path} is written: change its command, then `relight plan {path}`")
