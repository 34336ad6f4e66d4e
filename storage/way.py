"""How a file system likes to be written and read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Way:
    """Past the page cache or through it, and by how many threads at once."""

    direct: bool
    threads: int


USUAL = Way(direct=True, threads=8)
