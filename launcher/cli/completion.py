"""``relight completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print what makes SHELL complete verbs, options and runs; `eval` it at its start."""
    kind = get_completion_class(shell)
    root = click.get_current_context().find_root()
    assert kind is not None
    click.echo(kind(root.command, {}, "relight", "_RELIGHT_COMPLETE").source())
