"""The JSON Schema of ``job.yaml``, with a description of each key (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from .spec import JobSpec
from .spec_meanings import MEANINGS

Node = dict[str, object]


def described_schema() -> Node:
    """What editors read: they show a description beside a key."""
    schema = JobSpec.model_json_schema()
    for path, node in keys(schema, schema):
        node["description"] = MEANINGS[path]
    return schema


def keys(node: Node, whole: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """Every key below a part of the schema, with its dotted path."""
    for name, key in cast(dict[str, Node], node.get("properties", {})).items():
        yield f"{path}{name}", key
        for group in _groups(key, whole):
            yield from keys(group, whole, f"{path}{name}.")


def _groups(node: Node, whole: Node) -> Iterator[Node]:
    """The groups of keys that a value may be, or hold under any name."""
    if "$ref" in node:
        yield cast(dict[str, Node], whole["$defs"])[str(node["$ref"]).rpartition("/")[2]]
    if "$ref" in cast(Node, node.get("items", {})):
        yield from _groups(cast(Node, node["items"]), whole)
    choices = [node.get("anyOf", []), node.get("oneOf", [])]
    named = cast(Node, node.get("patternProperties", {}))
    for choice in [*(one for some in choices for one in cast(list[Node], some)), *named.values()]:
        yield from _groups(cast(Node, choice), whole)
