"""A batch script and sbatch's options to what is sent in their place (pure).

The script that is sent holds the user's ``#SBATCH`` lines, for sbatch to read, and starts the
supervisor; the user's script lies in the run folder and is run by the supervisor, unchanged.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

from relight.resilience.config import (
    CheckpointConfig,
    HealthConfig,
    RestartConfig,
    RestartMode,
    RunConfig,
)
from relight.resilience.run_folder import RunFolder

from .launch_plan import LaunchPlan, Submitter
from .sbatch_options import Given, SbatchCall, of_environment
from .sbatch_script import directives, has_components, script_options

Section = RestartConfig | CheckpointConfig | HealthConfig
_BUDGETS: Final = ("mode", "failures", "no_progress")
_SHEBANG_BYTES: Final = 127  # what any Linux reads of a first line (execve(2))


@dataclass(frozen=True, slots=True, kw_only=True)
class SbatchPlan:
    """What will be sent: the words for sbatch before the script, the script, the user's own.

    ``options`` is what all words and lines come to; None for a heterogeneous job, whose components
    differ.
    """

    launch: LaunchPlan
    words: tuple[str, ...]
    user_script: str
    options: Mapping[str, str | None] | None

    def excluding(self, nodes: str) -> SbatchPlan:
        """The same with another list of nodes to exclude: the last word on it counts."""
        return replace(self, words=(*self.words, f"--exclude={nodes}"))


def least_nodes(options: Mapping[str, str | None]) -> int:
    """How many nodes the job needs: of ``2-4`` two; one where it is for Slurm to say."""
    match = re.match(r"\d+", options.get("nodes") or "")
    return int(match[0]) if match else 1


def options_of(call: SbatchCall, text: str, env: Mapping[str, str]) -> dict[str, str | None]:
    """All options of the job: the command line wins over ``SBATCH_*``, and that over the script.

    Raises:
        ScriptRefused: a ``#SBATCH`` line cannot be read.
    """
    given: tuple[Given, ...] = (*script_options(text), *of_environment(env), *call.options)
    options: dict[str, str | None] = {}
    for option in given:
        if option.name in ("requeue", "no-requeue"):  # the last word counts
            options.pop("requeue", None)
            options.pop("no-requeue", None)
        options[option.name] = option.value
    return options


def default_restart(options: Mapping[str, str | None]) -> RestartConfig:
    """A script that fails is not run again unless that is asked for: it may not be made for it."""
    mode: RestartMode = "never" if "no-requeue" in options else "auto"
    return RestartConfig(mode=mode, failures=0)


def default_config(options: Mapping[str, str | None], submitter: Submitter) -> RunConfig:
    """A script without ``#RELIGHT`` lines."""
    run_dir = submitter.runs_dir / submitter.run_id
    return RunConfig(
        run_id=submitter.run_id,
        name=submitter.run_id.rpartition("-")[0],
        run_dir=run_dir,
        command=(),
        working_dir=Path(),
        checkpoint=CheckpointConfig(directory=run_dir / "checkpoints"),
        restart=default_restart(options),
    )


def understood(config: RunConfig) -> Iterator[str]:
    """How the script comes back, and all else that its ``#RELIGHT`` lines and defaults ask for."""
    sections: dict[str, tuple[Section, Section]] = {
        "restart": (config.restart, RestartConfig()),
        "checkpoint": (config.checkpoint, CheckpointConfig(directory=config.checkpoint.directory)),
        "health": (config.health, HealthConfig()),
    }
    for section, (asked, usual) in sections.items():
        for one in fields(asked):
            value = getattr(asked, one.name)
            if one.name in _BUDGETS or value != getattr(usual, one.name):
                yield f"{section}.{one.name}: {value}"
    if config.resume:
        yield f"resume: {shlex.join(config.resume)}"
    if config.notify is not None:
        yield f"notify.on: {', '.join(config.notify.on)}"
    yield from (f"env.{name}: {value}" for name, value in config.env.items())
    yield from (f"secrets.{name}.file: {file}" for name, file in config.secret_files.items())


def sbatch_plan(
    call: SbatchCall,
    options: Mapping[str, str | None],
    job_name: str,
    text: str,
    config: RunConfig,
    submitter: Submitter,
) -> SbatchPlan:
    """The plan for a script; ``job_name`` is the name that sbatch would choose."""
    config = replace(
        config,
        program="script",
        command=(str(RunFolder(config.run_dir).user_script), *call.script[1:]),
        working_dir=Path(),  # where the batch script starts: Slurm has looked after that
        without_env=() if "open-mode" in options else ("SLURM_OPEN_MODE",),
    )
    script = _script(text, config.run_dir, submitter)
    return SbatchPlan(
        launch=LaunchPlan(cluster="slurm", config=config, script=script),
        words=(*_added(options, job_name, config.restart.mode), *call.words),
        user_script=text,
        options=None if ":" in call.words or has_components(text) else options,
    )


def _added(options: Mapping[str, str | None], job_name: str, mode: RestartMode) -> Sequence[str]:
    """Options that nobody gave, and that make the job the user's while it can come back."""
    words = []
    if "job-name" not in options:  # by default it would be that of the script that is sent
        words.append(f"--job-name={job_name}")
    if "open-mode" not in options:  # a requeued job would begin its output anew
        words.append("--open-mode=append")
    if mode != "never" and "requeue" not in options:
        words.append("--requeue")
    return words


def _script(text: str, run_dir: Path, submitter: Submitter) -> str:
    """Python itself is the interpreter, for a shell would add to the environment.

    Latin 1 makes text of any byte that the user's lines may hold.
    """
    made_by = "".join(c if c.isprintable() and c.isascii() else "?" for c in submitter.made_by)
    return "\n".join(
        [
            *_first_lines(submitter.python),
            *directives(text),
            f"# Made by relight {submitter.version}: {made_by}",
            *_long_path(submitter.python),
            "from relight.launcher.supervise import exit_with, main",
            "",
            f"exit_with(main([{str(run_dir)!a}]))",
            "",
        ]
    )


def _first_lines(python: str) -> tuple[str, str]:
    shebang = f"#!{python} -E" if _fits(python) else "#!/bin/sh"
    return shebang, "# -*- coding: latin-1 -*-"


def _long_path(python: str) -> tuple[str, ...]:
    """A line that is an ``exec`` to sh, and the text of the script's own to Python."""
    if _fits(python):
        return ()
    return (f"'''exec' {shlex.quote(python)} -E \"$0\"", "' '''")


def _fits(python: str) -> bool:
    return len(f"#!{python} -E".encode()) <= _SHEBANG_BYTES and not re.search(r"\s", python)
