"""``relight sbatch``."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import click

from relight.errors import RelightError, UsageError
from relight.resilience.config import RunConfig

from ..avoidance import avoidance_of
from ..clusters.slurm.client import SlurmMissing
from ..clusters.slurm.sbatch import ask, send
from ..defaults import default_files
from ..launch_plan import Submitter, run_name
from ..run_creation import new_run_folder, note_jobs, submitter, write_user_script
from ..runs import submitted_job
from ..sbatch_options import SbatchCall, parse_words
from ..sbatch_plan import (
    SbatchPlan,
    default_config,
    default_restart,
    least_nodes,
    options_of,
    sbatch_plan,
    understood,
)
from ..sbatch_script import check_script, own_lines, wrapped
from .told_to_end import ToldToEnd, interrupted_by_ends

_QUESTIONS = ("help", "usage", "version")
_USAGE = """Usage: relight sbatch [--relight-dry-run] [OPTIONS of sbatch] SCRIPT [ARGUMENT]...

  Submit a batch script as sbatch does: same options, same output, same exit codes.

sbatch lists its own options only where it finds a cluster; sbatch(1) has them, too.
"""
_OF_RELIGHT = """
Of relight:
  --relight-dry-run  Print what would be sent, and what options and #RELIGHT lines came to; send
                     nothing.
  #RELIGHT KEY: VALUE, beside the #SBATCH lines of the script: how it saves, goes on, and what it
                     may cost. The keys, as in docs/sbatch.md, are
"""


class _AsSbatch(click.Command):
    """Takes all words as they are: sbatch's own rules hold."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["words"] = tuple(args)
        return []


@click.command("sbatch", cls=_AsSbatch)
def command(words: tuple[str, ...]) -> None:
    """Submit a batch script as sbatch does: same options, same output, same exit codes."""
    try:
        code = _sbatch(words)
    except RelightError as error:
        for line in str(error).splitlines():
            click.echo(f"relight sbatch: error: {line}", err=True)
        code = 1  # where sbatch refuses something, whatever it is
    click.get_current_context().exit(code)


def _sbatch(words: tuple[str, ...]) -> int:
    call = parse_words(words)
    if any(call.gives(question) for question in _QUESTIONS):
        return _answer(call)
    plan = _plan(call)
    if call.dry_run:
        _show(plan)
        return 0
    try:
        return _send(plan)
    except _NothingSent as nothing:
        return nothing.exit_code


def _answer(call: SbatchCall) -> int:
    """sbatch's own words; ours where it has none, for it looks for its cluster before it helps."""
    try:
        code, output, complaints = ask(call.words)
    except SlurmMissing:
        if call.gives("version"):
            raise
        code, output, complaints = 1, "", ""
    if code != 0 and not call.gives("version"):
        code, output, complaints = 0, _USAGE, ""
    if call.gives("help"):
        output += _of_relight()
    click.echo(output, nl=False)
    click.echo(complaints, nl=False, err=True)
    return code


def _of_relight() -> str:
    """What sbatch's help does not know."""
    from ..sbatch_rules import KEYS

    keys = textwrap.wrap(", ".join(KEYS), 75, break_on_hyphens=False)
    return _OF_RELIGHT + "".join(f"{' ' * 21}{line}\n" for line in keys)


def _send(plan: SbatchPlan) -> int:
    with interrupted_by_ends(), new_run_folder(plan.launch, "") as folder:
        write_user_script(folder, plan.user_script)
        id_file, waits = submitted_job(folder), "wait" in (plan.options or {})

        def on_job(job_id: str) -> None:
            note_jobs(folder, [job_id])
            if waits:  # until the job has ended
                _warn(plan)

        try:
            ended = send(plan.words, folder.script, on_job)
        except KeyboardInterrupt as error:
            if not id_file.exists():
                raise
            # Of sbatch --wait: the job goes on.
            return 128 + (error.number if isinstance(error, ToldToEnd) else signal.SIGINT)
        if ended.job_id is None:
            raise _NothingSent(ended.exit_code)
    if not waits:  # last, for it takes its time, and nobody shall send a job twice
        _warn(plan)
    return ended.exit_code


def _warn(plan: SbatchPlan) -> None:
    if plan.options is None or "quiet" in plan.options:
        return
    from ..sbatch_warnings import script_warnings

    for warning in script_warnings(plan.options, plan.launch.config):
        click.echo(f"relight sbatch: warning: {warning}", err=True)


def _plan(call: SbatchCall) -> SbatchPlan:
    job_name, source, text = _script_of(call)
    check_script(text)
    options = options_of(call, text, os.environ)
    wanted = options.get("job-name") or job_name
    facts = submitter(run_name(wanted))
    config = _config(options, text, source, facts)
    plan = sbatch_plan(call, options, job_name, text, config, facts)
    return plan if plan.options is None else _without_known_bad(plan, plan.options)


def _without_known_bad(plan: SbatchPlan, options: Mapping[str, str | None]) -> SbatchPlan:
    """With the ledger's nodes excluded; parts of a heterogeneous job have lists of their own."""
    asked = {name: value for name, value in options.items() if value is not None}
    avoidance = avoidance_of(asked, asked.get("partition"), least_nodes(options))
    if "quiet" not in options:
        for note in avoidance.notes:
            click.echo(f"relight sbatch: {note}", err=True)
    return plan if avoidance.exclude is None else plan.excluding(avoidance.exclude)


def _config(
    options: Mapping[str, str | None], text: str, source: str, facts: Submitter
) -> RunConfig:
    lines = own_lines(text)
    if not lines and not default_files():
        return default_config(options, facts)
    from ..sbatch_rules import config_of_lines
    from ..spec_file import default_layers

    restart = default_restart(options)
    return config_of_lines(lines, source, restart, facts, os.environ, default_layers())


def _script_of(call: SbatchCall) -> tuple[str, str, str]:
    """The name that sbatch gives to the job, where the script comes from, and its text."""
    wrap = next((option.value for option in call.options if option.name == "wrap"), None)
    if wrap is not None:
        if call.script:
            raise UsageError("Script arguments not permitted with --wrap option")
        return "wrap", "--wrap", wrapped(wrap)
    if not call.script:
        return "sbatch", "standard input", _text(sys.stdin.buffer.read())
    path = _found(call.script[0])
    try:
        return path.name, str(path), _text(path.read_bytes())
    except OSError as error:
        raise UsageError(f"Unable to open file {path}: {error.strerror}") from error


def _text(content: bytes) -> str:
    return content.decode(errors="surrogateescape")


def _found(name: str) -> Path:
    """sbatch looks here first, then along PATH."""
    here = Path(name)
    if "/" in name or here.is_file():
        return here
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(":") if folder]
    return next((folder / name for folder in folders if (folder / name).is_file()), here)


def _show(plan: SbatchPlan) -> None:
    folder = plan.launch.folder
    click.echo(f"# {shlex.join(['sbatch', *plan.words, str(folder.script)])}")
    click.echo(_bytes(plan.launch.script))
    click.echo("# What relight makes of options and #RELIGHT lines:")
    for line in understood(plan.launch.config):
        click.echo(_bytes(f"#   {line}"))
    click.echo(f"\n# The script, which is run unchanged from {folder.user_script}:")
    click.echo(_bytes(plan.user_script), nl=False)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


class _NothingSent(Exception):
    """sbatch has said why; the run folder goes."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code
