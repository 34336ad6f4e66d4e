"""``relight ckpt`` and its verbs."""

from __future__ import annotations

from typing import Final

import click

from ..verbs import VerbGroup

_VERBS: Final = {
    "ls": "List checkpoints, newest first.",
    "show": "Tell what is in a checkpoint.",
    "verify": "Read every byte of committed checkpoints again.",
    "diff": "Compare two checkpoints, value by value.",
    "export": "Write arrays to .safetensors, .npz or .pt.",
    "prune": "Delete old checkpoints.",
}


class _Verbs(VerbGroup):
    verbs = _VERBS
    package = __name__


@click.command("ckpt", cls=_Verbs)
def command() -> None:
    """Look at checkpoints of a run, or in a directory.

    RUN|DIR is a run or a folder of checkpoints. CHECKPOINT is the same with @STEP behind it, or the
    folder of one step; without a step it is the newest valid one.
    """
