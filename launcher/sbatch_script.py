"""Batch scripts as sbatch reads them (pure): the lines before the first command.

From ``src/sbatch/opt.c`` and ``sbatch.c`` of Slurm 22.05; newer versions read the same.
Text holds bytes that are not UTF-8 as surrogates, so that it can be written back unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from relight.errors import UsageError

from .sbatch_options import Given, parse_words

# What sbatch, and its readers of PBS and LSF scripts, look for at the beginning of a line.
_DIRECTIVES: Final = ("#SBATCH", "#SLURM", "#PBS", "#BSUB")
_OURS: Final = "#RELIGHT"
_NEW_COMPONENT: Final = ("hetjob", "packjob")


class ScriptRefused(UsageError):
    """Raised where sbatch refuses a script, with its words and its exit code."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a script; ``number`` counts from 1."""

    number: int
    text: str


def wrapped(command: str) -> str:
    """The script that ``sbatch --wrap`` makes of a command."""
    return f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n\n"


def check_script(text: str) -> None:
    """Refuses what sbatch refuses.

    Raises:
        ScriptRefused: it is no batch script.
    """
    if not text:
        raise ScriptRefused("Batch script is empty!")
    if not text.strip():
        raise ScriptRefused("Batch script contains only whitespace!")
    if not text.startswith("#!"):
        raise ScriptRefused(
            "This does not look like a batch script.  The first line must start with #! followed "
            "by the path to an interpreter.  For instance: #!/bin/sh"
        )
    if "\0" in text:
        raise ScriptRefused(
            "The Slurm controller does not allow scripts that contain a NULL character '\\0'."
        )
    if "\r\n" in text:
        raise ScriptRefused(
            "Batch script contains DOS line breaks (\\r\\n) instead of expected UNIX line breaks "
            "(\\n); `sed -i 's/\\r$//' SCRIPT` changes them"
        )


def head(text: str) -> Iterator[Line]:
    """The lines before the first command: comments of any kind, and empty ones."""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            return
        yield Line(number, line)


def directives(text: str) -> list[str]:
    """The lines that sbatch takes options from, as they are."""
    return [line.text for line in head(text) if line.text.startswith(_DIRECTIVES)]


def own_lines(text: str) -> list[Line]:
    """What follows ``#RELIGHT`` in lines before the first command."""
    return [
        Line(line.number, line.text.removeprefix(_OURS).strip())
        for line in head(text)
        if line.text.startswith(_OURS)
    ]


def directive(words: Sequence[str]) -> str:
    """The line of a script that gives sbatch these words: the reverse of ``directive_words``.

    Raises:
        UsageError: a word holds the end of a line.
    """
    if broken := [word for word in words if "\n" in word]:
        raise UsageError(f"{broken[0]!r}: no option of sbatch goes over the end of a line")
    escaped = (re.sub(r"""[\\"'#\s]""", r"\\\g<0>", word) or '""' for word in words)
    return " ".join(("#SBATCH", *escaped))


def script_options(text: str) -> tuple[Given, ...]:
    """The options in ``#SBATCH`` lines.

    Raises:
        ScriptRefused: a quote is not closed, or something there is no option.
    """
    words: list[str] = []
    for line in head(text):
        if line.text.startswith(("#SBATCH", "#SLURM")):
            found = list(directive_words(line))
            words += [":"] if found[:1] and found[0] in _NEW_COMPONENT else found
    try:
        call = parse_words(words)
    except UsageError as error:
        raise ScriptRefused(f"in a #SBATCH line: {error}") from error
    if call.script:
        raise ScriptRefused(f"Invalid directive found in batch script: {call.script[0]}")
    return call.options


def has_components(text: str) -> bool:
    """Whether a line begins the next component of a heterogeneous job."""
    lines = (line for line in head(text) if line.text.startswith(("#SBATCH", "#SLURM")))
    return any(next(directive_words(line), "") in _NEW_COMPONENT for line in lines)


def directive_words(line: Line) -> Iterator[str]:
    """The words of one line: quotes group, a backslash escapes, ``#`` begins a comment."""
    text = line.text.partition("SBATCH" if line.text.startswith("#SBATCH") else "SLURM")[2]
    word, quote, escaped = "", "", False
    begun = False
    for character in text:
        if escaped:
            word, escaped = word + character, False
        elif character == "\\":
            escaped = begun = True
        elif quote:
            word, quote = (word, "") if character == quote else (word + character, quote)
        elif character in "\"'":
            quote, begun = character, True
        elif character == "#":
            break
        elif character.isspace():
            if begun:
                yield word
            word, begun = "", False
        else:
            word, begun = word + character, True
    if quote:
        raise ScriptRefused(f"line {line.number}: Unmatched `{quote}` in [{text}]")
    if begun:
        yield word
