"""YAML text to plain values, with the line of each value (pure).

Scalars follow YAML 1.2: ``4:00:00`` is text and not the number 14400, ``no`` and ``off`` are text
and not False. Duplicate keys, deep nesting and alias bombs are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import yaml

Path = tuple[str | int, ...]
Lines = Mapping[Path, int]

MAX_DEPTH: Final = 20
_GROUPS: Final = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
MAX_VALUES: Final = 10_000
_CURES: Final = {
    "mapping values are not allowed here": "; a value with ': ' in it stands in quotes",
    "found character '\\t' that cannot start any token": "; indent with spaces",
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT: Final = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_NUMBER: Final = re.compile(rf"(?=.{{1,100}}$){_FLOAT}")


class YamlFault(ValueError):
    """Raised when the text is not the YAML that we read; ``line`` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class Spelled(float):
    """A number whose ``str`` is how it was written: as text, 3.10 is not 3.1."""

    def __new__(cls, text: str) -> Spelled:
        number = super().__new__(cls, text)
        number._text = text
        return number

    def __str__(self) -> str:
        return self._text

    _text: str


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2's core schema."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML reads it from the class


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", _FLOAT, "-+.0123456789"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}",
        re.compile(rf"^(?:{_pattern})$"),
        ["" if character == "\0" else character for character in _first],
    )


def read_yaml(text: str) -> tuple[object, Lines]:
    """The value in ``text`` and the line on which each of its parts begins.

    Raises:
        YamlFault: it cannot be read.
    """
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = min(mark.line + 1, len(text.splitlines())) if mark else 1  # it may be past the end
        cure = _CURES.get(error.problem or "", "")
        raise YamlFault(line, f"not YAML: {error.problem}{cure}") from error
    except yaml.YAMLError as error:
        raise YamlFault(1, f"not YAML: {error}") from error
    except RecursionError as error:
        raise YamlFault(1, f"nested more than {MAX_DEPTH} levels deep") from error
    if root is None:
        raise YamlFault(1, "the file is empty")
    builder = _Builder()
    return builder.build(root, ()), builder.lines


class _Builder:
    """Turns nodes into values; counts them, since aliases let a small text mean a huge value."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}

    def build(self, node: yaml.Node, path: Path) -> object:
        line = node.start_mark.line + 1
        if len(path) > MAX_DEPTH:
            raise YamlFault(line, f"nested more than {MAX_DEPTH} levels deep")
        if len(self.lines) >= MAX_VALUES:
            raise YamlFault(line, f"more than {MAX_VALUES} values")
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _GROUPS:
            raise YamlFault(line, f"{node.tag} is not allowed here")
        self.lines.setdefault(path, line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise YamlFault(line, "a key must be text")
            key = str(key_node.value)
            if key in values:
                first = self.lines[(*path, key)]
                raise YamlFault(line, f"{key!r} is given twice (first on line {first})")
            self.lines[(*path, key)] = line  # where the key stands, not its value
            values[key] = self.build(value_node, (*path, key))
        return values


def _scalar(node: yaml.Node) -> object:
    kind, text = node.tag.rpartition(":")[2], node.value
    match kind:
        case "str":
            return str(text)
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int" if _INTEGER.fullmatch(text):
            return int(text)
        case "float" if _NUMBER.fullmatch(text):
            return Spelled(text)
        case "int" | "float":  # by a tag of the writer's, or of a length that nobody means
            raise YamlFault(node.start_mark.line + 1, f"{text[:40]!r} is no number read here")
        case _:
            raise YamlFault(node.start_mark.line + 1, f"{node.tag} is not allowed here")
