"""``relight doctor``."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from relight.errors import RelightError, UsageError

from ..clusters.slurm.client import SlurmClient
from ..clusters.slurm.parse import UserLimits
from ..doctor import Finding, Save, as_text, examine, save_of_state
from ..site import Site, site_of
from ..units import parse_bytes, parse_duration


@click.command("doctor")
@click.option("--save", metavar="DURATION", help="How long a save of your state takes, as in 90s.")
@click.option("--state", metavar="SIZE", help="How large your state is, as in 400GB.")
@click.option(
    "--checkpoint-dir",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where it is saved: measured by three seconds of writing.",
)
@click.option("--try", "trying", is_flag=True, help="Send a job of a minute that tries it.")
@click.argument("words", nargs=-1, metavar="[-- OPTION OF SBATCH...]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    save: str | None,
    state: str | None,
    checkpoint_dir: Path | None,
    trying: bool,
    words: tuple[str, ...],
    as_json: bool,
) -> None:
    """Tell what this site's Slurm allows, and what follows for you.

    With --try options of sbatch may follow: `relight doctor --try -- -p low -A abc`.
    """
    if words and not trying:
        raise UsageError(f"{' '.join(words)}: options of sbatch go with --try")
    known = _save(save, state, checkpoint_dir)
    client = SlurmClient(pauses_s=(0.5, 1.0))
    config = client.config()
    site = site_of(config, client.partitions())
    findings = examine(config, site, known, _limits(client, config))
    if trying:
        findings += _tried(client, site, words)
    if as_json:
        click.echo(json.dumps([finding.to_json() for finding in findings]))
    else:
        click.echo(as_text(findings))


def _limits(client: SlurmClient, config: Mapping[str, str]) -> list[UserLimits] | None:
    """None where there is no accounting, it does not answer, or nobody knows the user's name."""
    if not config.get("AccountingStorageType", "").endswith("/slurmdbd"):
        return None
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
        return client.limits_of(user, config.get("ClusterName", ""))
    except (KeyError, RelightError):
        return None


def _tried(client: SlurmClient, site: Site, words: tuple[str, ...]) -> list[Finding]:
    from ..trial import tried
    from ..trial_notes import findings_of

    partition = site.partition(None)
    nodes = 1 if partition is not None and partition.nodes == 1 else 2
    return findings_of(tried(client, nodes, words, lambda text: click.echo(text, err=True)))


def _save(save: str | None, state: str | None, directory: Path | None) -> Save | None:
    if save is not None:
        if state is not None or directory is not None:
            raise UsageError(
                "--save says how long a save takes, and so do --state and --checkpoint-dir: leave "
                "the one or the others out"
            )
        seconds = _amount("--save", parse_duration, save)
        return Save(seconds, f"a save of your state takes {seconds:.0f} s")
    size_bytes = None if state is None else _amount("--state", parse_bytes, state)
    if (size_bytes is None) != (directory is None):
        raise UsageError("--state and --checkpoint-dir need each other")
    if size_bytes is None or directory is None:
        return None
    from relight.storage.rate import write_rate

    try:
        rate = write_rate(directory)
    except OSError as error:
        raise UsageError(f"--checkpoint-dir: cannot write to {directory}: {error}") from error
    return save_of_state(int(size_bytes), rate.bytes_per_s, str(directory))


def _amount(option: str, parse: Callable[[str], float], text: str) -> float:
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
