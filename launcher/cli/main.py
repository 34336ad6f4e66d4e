"""The ``relight`` command: its verbs, and what a mistake ends in."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import sys
from typing import Final

import click

from relight import __version__
from relight.errors import RelightError
from relight.resilience.exit_codes import EXIT_FAILED

from .told_to_end import ToldToEnd
from .verbs import VerbGroup

_VERBS: Final = {
    "submit": "Submit a job to Slurm.",
    "sbatch": "Submit a batch script as sbatch does, to survive.",
    "run": "Run a job on this machine, in the foreground.",
    "plan": "Print the script that would be sent; send nothing.",
    "status": "Say where a run stands, or list all runs.",
    "history": "Tell what happened to a run, and why.",
    "interval": "Show how often to save, and why.",
    "simulate": "Say what node failures will cost, by the real decisions.",
    "replay": "Decide again what a run has decided, and compare.",
    "logs": "Print what a run's ranks have written, and follow it.",
    "checkpoint": "Let a run save now.",
    "restart": "Let a run save and start again now, here or elsewhere.",
    "hold": "Let a run save and wait in the queue.",
    "release": "Let a held run go on.",
    "exec": "Run a command on a run's nodes.",
    "attach": "Open a shell on a node of a run.",
    "cancel": "End a run; it does not start again by itself.",
    "ckpt": "Look at a run's checkpoints.",
    "verify-resume": "Prove that a restart changes nothing in a job.",
    "preflight": "Look at nodes: of a run, or this one.",
    "nodes": "Look at what is known against nodes, and change it.",
    "doctor": "Tell what this site's Slurm allows, and what follows for you.",
    "init": "Write a first job.yaml for this site.",
    "completion": "Print what makes a shell complete.",
    "schema": "Print the JSON Schema of job.yaml.",
}
_ELSEWHERE: Final = {
    "ls": "status",
    "queue": "status",
    "watch": "status --watch",
    "why": "history",
    "events": "history",
    "save": "checkpoint",
    "stop": "hold",
    "kill": "cancel",
    "scancel": "cancel",
    "requeue": "restart",
    "resume": "release",
    "verify": "ckpt verify",
    "show": "ckpt show",
    "diff": "ckpt diff",
    "export": "ckpt export",
    "prune": "ckpt prune",
    "health": "preflight",
    "srun": "run",
}
_STDERR: Final = 2  # the last of the standard files
_INTERRUPTED: Final = 128 + signal.SIGINT


class _Verbs(VerbGroup):
    verbs = _VERBS
    elsewhere = _ELSEWHERE
    package = __package__

    def invoke(self, ctx: click.Context) -> object:
        """An interrupt is no answer: click would end with 1, which says of some verbs that
        something is damaged, or differs."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            if isinstance(error, ToldToEnd):  # maybe by a terminal that is gone
                ctx.exit(128 + error.number)
            click.echo(err=True)  # after the ^C
            ctx.exit(_INTERRUPTED)


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="relight")
def relight() -> None:
    """Run a job on Slurm until it is done."""


def main() -> None:
    """The console script: a mistake, or a file system that says no, ends in a message, never in a
    traceback."""
    _open_standard_files()
    logging.basicConfig(format="relight: %(message)s", level=logging.WARNING)
    # Else Python's last collections look at all that was imported: a tenth of a submission's time.
    atexit.register(gc.freeze)
    try:
        relight()
    except RelightError as error:
        click.echo(_each_line(str(error)), err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        click.echo(f"relight: {_what_failed(error)}", err=True)
        sys.exit(EXIT_FAILED)


def _open_standard_files() -> None:
    """Who closes them (``2>&-``) wants silence: a file of ours must not come in their place, and
    words to nobody are no error."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(_STDERR, "w")


def _each_line(faults: str) -> str:
    """So that it is seen of each of several faults, where it is from."""
    return "\n".join(f"relight: {line}" for line in faults.splitlines())


def _what_failed(error: OSError) -> str:
    """What the system refused; a full output and a lost current directory come without a name."""
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return "the current directory does not exist any more: change to another one"
    return f"the output, or a file, cannot be written: {error.strerror or error}"
