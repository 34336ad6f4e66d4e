"""The arguments of every verb that reads a spec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click


def _no_dry_run(context: click.Context, _option: click.Parameter, given: bool) -> None:
    if given:
        context.fail("`relight plan SPEC` is the dry run: it prints the script, and sends nothing")


def with_sets(function: Callable[..., None]) -> Callable[..., None]:
    """``--set key=value``, as often as wanted."""
    option = click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="KEY=VALUE",
        help="A key of the spec, such as resources.nodes=4.",
    )
    dry_run = click.option(  # the first that people try who know other launchers
        "--dry-run",
        is_flag=True,
        is_eager=True,
        hidden=True,
        expose_value=False,
        callback=_no_dry_run,
    )
    return option(dry_run(function))


def with_spec(function: Callable[..., None]) -> Callable[..., None]:
    """The spec file, and ``--set``."""
    return click.argument("path", metavar="SPEC", type=click.Path(readable=False, path_type=Path))(
        with_sets(function)
    )
