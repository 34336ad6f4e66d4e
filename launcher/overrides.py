"""``--set key=value`` as layers of a spec (pure): the value is YAML, as it would be in the file."""

from __future__ import annotations

from .layers import Layer, Place
from .spec_faults import Fault, SpecError
from .yaml_lines import Path, YamlFault, read_yaml


def override(text: str) -> Layer:
    """The layer of one ``resources.nodes=4``.

    Raises:
        SpecError: it is no key with a value.
    """
    place = Place(f"--set {text}")
    dotted, equals, written = text.partition("=")
    path: Path = tuple(dotted.strip().split("."))
    if not equals or "" in path:
        message = "write key=value, such as resources.nodes=4; key= makes the value empty"
        raise SpecError([Fault(place, message)])
    try:
        inner: object = read_yaml(written)[0] if written.strip() else ""
    except YamlFault as fault:
        raise SpecError([Fault(place, str(fault))]) from fault
    for key in reversed(path):
        inner = {str(key): inner}
    assert isinstance(inner, dict)
    return Layer(inner, {path[:length]: place for length in range(1, len(path) + 1)})
