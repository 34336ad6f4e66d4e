"""The arguments of every verb that reads a spec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click


def with_sets(function: Callable[..., None]) -> Callable[..., None]:
    """``--set key=value``, as often as wanted."""
    option = click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="KEY=VALUE",
        help="A key of the spec, such as resources.nodes=4.",
    )
    return option(function)


def with_spec(function: Callable[..., None]) -> Callable[..., None]:
    """The spec file, and ``--set``."""
    return click.argument("path", metavar="SPEC", type=click.Path(path_type=Path))(
        with_sets(function)
    )
