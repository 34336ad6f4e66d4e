"""The options of sbatch as data, and sbatch's way of reading a command line (pure).

The names are those of Slurm 20.11 to 25.05 (sbatch(1)). Words are never changed on their way to
sbatch; they are read here to find the script among them and the few options that matter to us.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from relight.errors import UsageError

DRY_RUN: Final = "relight-dry-run"


class Takes(Enum):
    """Whether an option has a value; an optional one must follow ``=``, or a letter at once."""

    NOTHING = "nothing"
    VALUE = "value"
    MAYBE = "maybe"


@dataclass(frozen=True, slots=True)
class Given:
    """An option that somebody gave, by its long name."""

    name: str
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SbatchCall:
    """A command line of sbatch: the words of its options, what they say, the script and its words.

    ``options`` are those of all components of a heterogeneous job.
    """

    words: tuple[str, ...]
    options: tuple[Given, ...]
    script: tuple[str, ...]
    dry_run: bool

    def gives(self, name: str) -> bool:
        return any(option.name == name for option in self.options)


_VALUE_LETTERS: Final = {
    "A": "account", "a": "array", "b": "begin", "D": "chdir", "M": "clusters", "C": "constraint",
    "S": "core-spec", "c": "cpus-per-task", "d": "dependency", "m": "distribution", "e": "error",
    "x": "exclude", "B": "extra-node-info", "G": "gpus", "i": "input", "J": "job-name",
    "L": "licenses", "F": "nodefile", "w": "nodelist", "N": "nodes", "n": "ntasks", "o": "output",
    "p": "partition", "q": "qos", "t": "time",
}  # fmt: skip
_MAYBE_LETTERS: Final = {"k": "no-kill"}
_LONE_LETTERS: Final = {
    "h": "help", "H": "hold", "O": "overcommit", "Q": "quiet", "s": "oversubscribe",
    "v": "verbose", "V": "version", "W": "wait",
}  # fmt: skip
_VALUE_NAMES: Final = [
    "acctg-freq",
    "batch",
    "bb",
    "bbf",
    "cluster",
    "cluster-constraint",
    "comment",
    "container",
    "container-id",
    "cores-per-socket",
    "cpu-freq",
    "cpus-per-gpu",
    "deadline",
    "delay-boot",
    "export",
    "export-file",
    "extra",
    "gid",
    "gpu-bind",
    "gpu-freq",
    "gpus-per-node",
    "gpus-per-socket",
    "gpus-per-task",
    "gres",
    "gres-flags",
    "hint",
    "kill-on-invalid-dep",
    "mail-type",
    "mail-user",
    "mcs-label",
    "mem",
    "mem-bind",
    "mem-per-cpu",
    "mem-per-gpu",
    "mincores",
    "mincpus",
    "minsockets",
    "minthreads",
    "network",
    "ntasks-per-core",
    "ntasks-per-gpu",
    "ntasks-per-node",
    "ntasks-per-socket",
    "ntasks-per-tres",
    "open-mode",
    "power",
    "prefer",
    "priority",
    "profile",
    "reservation",
    "segment",
    "signal",
    "sockets-per-node",
    "switches",
    "thread-spec",
    "threads-per-core",
    "time-min",
    "tmp",
    "tres-bind",
    "tres-per-task",
    "uid",
    "umask",
    "wait-all-nodes",
    "wckey",
    "workdir",
    "wrap",
]
_MAYBE_NAMES: Final = [
    "exclusive",
    "get-user-env",
    "nice",
    "oom-kill-step",
    "propagate",
    "resv-ports",
]
_LONE_NAMES: Final = [
    "consolidate-segments",
    "contiguous",
    "ignore-pbs",
    "no-requeue",
    "parsable",
    "reboot",
    "requeue",
    "share",
    "spread-job",
    "spread-segments",
    "stepmgr",
    "test-only",
    "usage",
    "use-min-nodes",
]

LONG: Final[Mapping[str, Takes]] = {
    **dict.fromkeys((*_VALUE_LETTERS.values(), *_VALUE_NAMES), Takes.VALUE),
    **dict.fromkeys((*_MAYBE_LETTERS.values(), *_MAYBE_NAMES), Takes.MAYBE),
    **dict.fromkeys((*_LONE_LETTERS.values(), *_LONE_NAMES, DRY_RUN), Takes.NOTHING),
}
SHORT: Final[Mapping[str, str]] = {**_VALUE_LETTERS, **_MAYBE_LETTERS, **_LONE_LETTERS}
# The variables of options that matter to us (sbatch(1), INPUT ENVIRONMENT VARIABLES).
_VARIABLES: Final = {
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_JOB_NAME": "job-name",
    "SBATCH_NO_REQUEUE": "no-requeue",
    "SBATCH_OPEN_MODE": "open-mode",
    "SBATCH_PARTITION": "partition",
    "SBATCH_REQUEUE": "requeue",
    "SBATCH_SIGNAL": "signal",
    "SBATCH_TIMELIMIT": "time",
}


_NOT_PASSED_ON: Final = (DRY_RUN, "wrap")  # what is wrapped is in the script that we make


def parse_words(words: Sequence[str]) -> SbatchCall:
    """Reads a command line as sbatch does: options end at the first word that is none.

    Raises:
        UsageError: an option is not known, or lacks its value.
    """
    rest = list(words)
    kept: list[str] = []
    options: list[Given] = []
    while rest and (rest[0] == ":" or (rest[0].startswith("-") and rest[0] != "-")):
        word = rest.pop(0)
        if word == "--":
            break
        used = [word]
        if word == ":":  # the next component of a heterogeneous job
            found: list[Given] = []
        elif word.startswith("--"):
            found = [_long(word, rest, used)]
        else:
            found = list(_letters(word, rest, used))
        options += found
        if not any(option.name in _NOT_PASSED_ON for option in found):
            kept += used
    return SbatchCall(
        words=tuple(kept),
        options=tuple(options),
        script=tuple(rest),
        dry_run=Given(DRY_RUN) in options,
    )


def of_environment(env: Mapping[str, str]) -> tuple[Given, ...]:
    """The options that matter to us as far as ``SBATCH_*`` variables give them."""
    return tuple(Given(name, env[key]) for key, name in _VARIABLES.items() if key in env)


def _long(word: str, rest: list[str], used: list[str]) -> Given:
    written, equals, value = word[2:].partition("=")
    name = _full_name(written, known_value=bool(equals))
    if equals:
        return Given(name, value)
    if LONG[name] is Takes.VALUE:
        return Given(name, _next(f"--{name}", rest, used))
    return Given(name)


def _letters(word: str, rest: list[str], used: list[str]) -> Iterator[Given]:
    """Short options: ``-N2``, ``-N 2``, ``-HQ``, ``-HN2``."""
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter not in SHORT:
            raise UsageError(f"sbatch has no option -{letter} (in {word!r})")
        name = SHORT[letter]
        if LONG[name] is Takes.NOTHING:
            yield Given(name)
            continue
        if not letters and LONG[name] is Takes.VALUE:
            letters = _next(f"-{letter}", rest, used)
        yield Given(name, letters or None)
        return


def _full_name(written: str, *, known_value: bool) -> str:
    """getopt_long(3) takes the beginning of a name when it is that of one only."""
    if written in LONG:
        return written
    matches = [name for name in LONG if name.startswith(written)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"--{written} may be any of --{', --'.join(sorted(matches))}")
    if known_value:
        return written  # of a newer Slurm, or of a plugin of this site
    raise UsageError(
        f"--{written} is no option of sbatch that relight knows, so whether a value follows is not "
        f"known either: write --{written}=VALUE, or put it into a #SBATCH line"
    )


def _next(option: str, rest: list[str], used: list[str]) -> str:
    if not rest:
        raise UsageError(f"{option} needs a value")
    used.append(rest.pop(0))
    return used[-1]
