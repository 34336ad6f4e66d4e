"""The values of a spec's keys: text with units becomes numbers, and what has no meaning is refused.

The unit of a number is in the name of its type or of the field.
"""

from __future__ import annotations

import os
import re
import shlex
from itertools import product
from os.path import normpath
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema

from relight.counted import counted
from relight.resilience.messages import PASSED_ON

from .units import check_interval, parse_bytes, parse_duration, parse_every

MOST_POINTS: Final = 10_000
MOST_COUNTED: Final = 1_000_000  # nodes, tasks, checkpoints: above all there are
LONGEST_BUDGET_S: Final = 3600
LONGEST_LEAD_S: Final = 65_535  # of sbatch --signal
NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$"

VARIABLE: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
_SHELLS: Final = frozenset({"bash", "dash", "ksh", "sh", "zsh"})
_AS_IT_IS: Final = re.compile(r"'[^']*'|\\.")  # to a shell
# ${run.id} and ${sweep.lr} are ours.
_FOR_A_SHELL: Final = re.compile(r"\$(?:\w+|\{\w+\}|\()\S*|(?<!\S)~/\S*")
_SHELL_WORDS: Final = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1"})


def _shown(value: object) -> str:
    """As it is in the file: what YAML calls null is no None to its reader."""
    return "null" if value is None else repr(value)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{_shown(value)} is not text: put it in quotes")


def _with_unit(value: object, such_as: str) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{_shown(value)} is not text with a unit; write for example {such_as}")


def _bytes(value: object) -> int:
    return parse_bytes(_with_unit(value, "8GB or 512MB"))


def _seconds(value: object) -> float:
    return parse_duration(_with_unit(value, "90s, 10min, 4h, 7d or 4:00:00"))


def _lead(value: object) -> float:
    lead_s = _seconds(value)
    if lead_s > LONGEST_LEAD_S:
        raise ValueError(f"{value!r} is too long: Slurm warns at most {LONGEST_LEAD_S} s before")
    return lead_s


def _hang_limit(value: object) -> str:
    text = _with_unit(value, "10min, auto or off")
    if text not in ("auto", "off"):
        parse_duration(text)
    return text


def _every(value: object) -> str:
    text = _with_unit(value, "1000 steps or 6h")
    parse_every(text)
    return text


def _seconds_or_off(value: object) -> float:
    return 0.0 if value in (0, "0", "off") else _seconds(value)  # False, which is 0, is YAML's off


def _interval(value: object) -> str:
    return check_interval(_with_unit(value, "auto, 20 steps or 10min"))


def _word(value: object) -> str:
    """Text, or a number written without quotes; other YAML values lose their spelling."""
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError(f"{value!r} holds a NUL byte, which no program can be given")
        try:
            os.fsencode(value)
        except UnicodeEncodeError as error:
            raise ValueError(f"{value!r} holds half a character (a lone surrogate)") from error
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # of a number in YAML, its spelling
    raise ValueError(f"{_shown(value)} is not text: put it in quotes")


def _command(value: object) -> list[str]:
    if isinstance(value, list):
        words = [_word(word) for word in value]
    else:
        words = shlex.split(_word(_text(value)))
        if meant := [word for word in words if word in _SHELL_WORDS] or _for_a_shell(value, words):
            raise ValueError(
                f"the command is not run by a shell, so {meant[0]!r} has no meaning in it; "
                "write command: [bash, -c, '...'], or a list if the word is meant as it is"
            )
    if not words:
        raise ValueError("the command is empty")
    return words


def _for_a_shell(text: object, words: list[str]) -> list[str]:
    """What a shell would put something else for, where the command itself runs none."""
    if any(word.rpartition("/")[2] in _SHELLS for word in words):
        return []
    return _FOR_A_SHELL.findall(_AS_IT_IS.sub("", _text(text)))


def _sweep(value: object) -> list[dict[str, str]]:
    """A grid, or a list of points, as the list of its points."""
    if isinstance(value, dict):
        names = [_sweep_name(name) for name in value]
        axes = [_axis(name, value[name]) for name in names]
        points = [dict(zip(names, values, strict=True)) for values in product(*axes)]
    elif isinstance(value, list):
        points = [_point(point) for point in value]
    else:
        raise ValueError("write {lr: [0.1, 0.2], seed: [1, 2]}, or a list of {lr: 0.1, seed: 1}")
    if not 1 <= len(points) <= MOST_POINTS:
        raise ValueError(f"{counted(len(points), 'point')}; there must be 1 to {MOST_POINTS}")
    if any(point.keys() != points[0].keys() for point in points):
        raise ValueError("all points must give the same names")
    return points


def _axis(name: str, values: object) -> list[str]:
    if not isinstance(values, list):
        raise ValueError(f"{name}: write the values as a list, such as [1, 2]")
    return [_scalar(value) for value in values]


def _point(point: object) -> dict[str, str]:
    if not isinstance(point, dict):
        raise ValueError(f"{point!r} is no point; write {{lr: 0.1, seed: 1}}")
    return {_sweep_name(name): _scalar(value) for name, value in point.items()}


def _sweep_name(name: object) -> str:
    if not isinstance(name, str) or re.fullmatch(VARIABLE, name) is None:
        raise ValueError(f"{name!r} is no name; letters, digits and _ make one")
    return name


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return _word(value)


def _words(value: object) -> list[str]:
    return [_word(word) for word in (value if isinstance(value, list) else [value])]


def _signal(value: object) -> str:
    name = "SIG" + _text(value).upper().removeprefix("SIG")
    if name not in PASSED_ON:
        raise ValueError(f"{value!r} is no signal that can be sent; write for example USR1")
    return name


def _lines(value: object) -> list[str]:
    return [_one_line(line) for line in (value if isinstance(value, list) else [value])]


def _one_line(value: object) -> str:
    text = _word(value)
    if not text or not text.isprintable():
        raise ValueError(f"{text!r} must be one line of printable text")
    return text


def _mount(value: str) -> str:
    if "," in value or not re.fullmatch(r"[/~][^:]*(:/[^:]*(:[a-z+]+)?)?", value):
        raise ValueError(f"{value!r} is no mount; write /source, /source:/target or ...:ro")
    return value


def _mount_point(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError(f"{value!r} is no absolute path; write for example /scratch")
    return normpath(value)


def _budget(budget_s: float) -> float:
    if budget_s > LONGEST_BUDGET_S:
        raise ValueError(
            f"{budget_s:g} s is too long: nodes wait for it; {LONGEST_BUDGET_S} s are the most"
        )
    return budget_s


def _web_address(value: str) -> str:
    if not re.match(r"https?://[^/:@?#]", value):
        raise ValueError(f"{value!r} is no address; write https://…, or {{file: …}} for a secret")
    return value


def _store_address(value: str) -> str:
    if not re.match(r"[a-z][a-z0-9+.-]*://.", value):
        raise ValueError(f"{value!r} is no address; write for example s3://bucket/runs/lm")
    return value


_WITH_UNIT: Final[dict[str, object]] = {"type": "string"}
Bytes = Annotated[int, BeforeValidator(_bytes), WithJsonSchema(_WITH_UNIT)]
Seconds = Annotated[float, BeforeValidator(_seconds), WithJsonSchema(_WITH_UNIT)]
Budget = Annotated[Seconds, AfterValidator(_budget)]
Lead = Annotated[float, BeforeValidator(_lead), WithJsonSchema(_WITH_UNIT)]
SecondsOrOff = Annotated[float, BeforeValidator(_seconds_or_off), WithJsonSchema(_WITH_UNIT)]
Interval = Annotated[str, BeforeValidator(_interval)]
Every = Annotated[str, BeforeValidator(_every)]
HangLimit = Annotated[str, BeforeValidator(_hang_limit)]
Word = Annotated[str, BeforeValidator(_word), WithJsonSchema({"type": ["string", "number"]})]
Line = Annotated[str, BeforeValidator(_one_line)]
StoreAddress = Annotated[Line, AfterValidator(_store_address)]
WebAddress = Annotated[Line, AfterValidator(_web_address)]
MountPoint = Annotated[Line, AfterValidator(_mount_point)]
Mount = Annotated[Line, AfterValidator(_mount)]
Sweep = Annotated[
    list[dict[str, str]], BeforeValidator(_sweep), WithJsonSchema({"type": ["object", "array"]})
]
Words = Annotated[
    list[str],
    BeforeValidator(_words),
    WithJsonSchema({"type": ["string", "number", "array"]}),
]
SignalName = Annotated[str, BeforeValidator(_signal)]
Lines = Annotated[
    list[str],
    BeforeValidator(_lines),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}}),
]
Command = Annotated[
    list[str],
    BeforeValidator(_command),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": ["string", "number"]}}),
]
Variable = Annotated[str, StringConstraints(pattern=VARIABLE)]
Name = Annotated[str, StringConstraints(pattern=NAME)]
Count = Annotated[int, Field(ge=1, le=MOST_COUNTED)]
CountOrNone = Annotated[int, Field(ge=0)]
CheckSetting = Literal[False, "off"] | dict[str, float]  # an unquoted off is false in YAML
