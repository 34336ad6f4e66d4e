"""The site's table of XIDs is read with the spec: on the nodes nobody would see what is wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .home import from_home
from .layers import Layer
from .spec_faults import Fault, nearest

LIMIT_S: Final = 10.0  # for a file system that may be away


def unread_xid_table(layer: Layer) -> Iterator[Fault]:
    """What is wrong with ``health.xid_table``, where one is named."""
    health = layer.value.get("health")
    named = health.get("xid_table") if isinstance(health, dict) else None
    if not isinstance(named, str):
        return
    if (why := _fault_of(str(Path.cwd() / from_home(named)))) is not None:
        yield Fault(nearest(("health", "xid_table"), layer.places), f"health.xid_table: {why}")


def _fault_of(path: str) -> str | None:
    """Asked of a thread, which ends with the process where it waits for a dead file system."""
    from relight.resilience.health.gpu.xid_table import XidTableDamaged, read_xid_table

    found: list[str | None] = []

    def read() -> None:
        try:
            read_xid_table(path)
        except XidTableDamaged as error:
            found.append(str(error))
        else:
            found.append(None)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(LIMIT_S)
    return found[0] if found else f"{path} gives no answer in {LIMIT_S:g} s"
