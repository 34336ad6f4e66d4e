"""The site's table of XIDs is read with the spec: on the nodes nobody would see what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .home import from_home
from .layers import Layer
from .spec_faults import Fault, nearest


def unread_xid_table(layer: Layer) -> Iterator[Fault]:
    """What is wrong with ``health.xid_table``, where one is named."""
    health = layer.value.get("health")
    named = health.get("xid_table") if isinstance(health, dict) else None
    if not isinstance(named, str):
        return
    from relight.resilience.health.gpu.xid_table import XidTableDamaged, read_xid_table

    try:
        read_xid_table(str(Path.cwd() / from_home(named)))
    except XidTableDamaged as error:
        place = nearest(("health", "xid_table"), layer.places)
        yield Fault(place, f"health.xid_table: {error}")
