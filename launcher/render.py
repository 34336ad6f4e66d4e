"""Fills the batch script's template (pure apart from reading the template).

Every value is quoted for the shell as it is written, whatever the template says, so no value can
become shell syntax. Only :class:`ShellCode`, the user's own setup lines, goes in as it is.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import chain
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template

from relight.errors import UsageError


class ShellCode(str):
    """Text that is meant to be run by the shell."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SbatchOption:
    """``--name=value`` of sbatch, or ``--name`` alone when ``value`` is None."""

    name: str
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptValues:
    """All that a batch script is made of. Without ``options`` it is a plain bash script.

    ``options`` and ``passthrough`` are of the job, or of its first component.
    """

    version: str
    made_by: str
    options: tuple[SbatchOption, ...]
    passthrough: tuple[SbatchOption, ...]
    others: tuple[tuple[SbatchOption, ...], ...] = ()  # components after the first
    tasks: tuple[int, int] | None = None  # on a node, and CPUs of each: where the options hide it
    setup: tuple[str, ...]
    python: str
    run_dir: Path
    first: int | None = None  # the number of the first task, in an array of a sweep


def render_script(values: ScriptValues) -> str:
    """The batch script.

    Raises:
        UsageError: a value cannot stand in a line of a batch script.
    """
    for option in chain(values.options, values.passthrough, *values.others):
        _check_one_line(option.value or "", f"sbatch option --{option.name}")
    _check_one_line(str(values.run_dir), "run_dir")
    _check_one_line(values.python, "the path of the Python interpreter")
    return _template().render(
        version=values.version,
        made_by=ShellCode(_comment(values.made_by)),
        options={option.name: option.value for option in values.options},
        passthrough=values.passthrough,
        others=values.others if values.options else (),
        tasks=values.tasks,
        setup=[ShellCode(line.rstrip("\n")) for line in values.setup],
        python=values.python,
        run_dir=str(values.run_dir),
        first=values.first,
    )


@cache
def _template() -> Template:
    """Compiled once: a sweep has a script for each of its arrays, and one for its tasks."""
    environment = Environment(
        undefined=StrictUndefined,
        finalize=_quoted,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # HTML's rules: finalize quotes every value for the shell
    )
    source = files("relight.slurm_templates").joinpath("job.sh.j2").read_text()
    return environment.from_string(source)


def _quoted(value: object) -> str:
    return value if isinstance(value, ShellCode) else shlex.quote(str(value))


def _comment(text: str) -> str:
    """Text that stays inside one line of comment."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _check_one_line(text: str, what: str) -> None:
    if not text.isprintable():
        raise UsageError(f"{what} must be one line of printable text, not {text!r}")
