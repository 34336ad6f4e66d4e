"""``relight ckpt``: one module per verb, imported when the verb is used."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

_VERBS: Final = {
    "ls": "List checkpoints, newest first.",
    "show": "Tell what is in a checkpoint.",
    "verify": "Read every byte of committed checkpoints again.",
    "diff": "Compare two checkpoints, value by value.",
    "export": "Write arrays to .safetensors, .npz or .pt.",
    "prune": "Delete old checkpoints.",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        command = import_module(f".{cmd_name}", __name__).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_VERBS.items()))


@click.command("ckpt", cls=_LazyGroup)
def command() -> None:
    """Look at checkpoints of a run, or in a directory.

    RUN|DIR is a run or a folder of checkpoints. CHECKPOINT is the same with @STEP behind it, or the
    folder of one step; without a step it is the newest valid one.
    """
