"""Which XID means what: data, with a version, which a site may replace."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Literal, get_args

from relight.errors import RelightError

XidKind = Literal["hardware", "contained", "recovery", "program", "information", "unknown"]
_WORDS: Final = frozenset({"version", "source", "why"})  # for people
_MOST_BYTES: Final = 1024**2
_KINDS: Final[tuple[XidKind, ...]] = get_args(XidKind)


class XidTableDamaged(RelightError):
    """The table of XIDs cannot be used."""


@dataclass(frozen=True, slots=True)
class XidTable:
    """``hardware`` ends a board's work until it is reset or replaced; ``contained`` ended one
    program and ends the board's work when it comes again; ``recovery`` says in words what to do;
    ``program`` is a program's fault more often than the board's. A number in no list is
    ``unknown``, and warns."""

    version: str
    kinds: dict[int, XidKind]

    def kind(self, xid: int) -> XidKind:
        return self.kinds.get(xid, "unknown")


def read_xid_table(path: str | None) -> XidTable:
    """The table in a file, or the one that comes with relight.

    Raises:
        XidTableDamaged: it cannot be read, or is not like ``xid_table.json``.
    """
    try:
        content = json.loads(_text(path))
        pairs = [pair for name in content.keys() - _WORDS for pair in _of(name, content[name])]
        times = Counter(xid for xid, _ in pairs)
        if twice := sorted(xid for xid in times if times[xid] > 1):
            raise ValueError(f"in more than one place: {twice}")
        if not pairs:
            raise ValueError("it names no XID")
        return XidTable(str(content["version"]), dict(pairs))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise XidTableDamaged(
            f"the XID table {path or 'of relight'} is not usable: {error!r}; it is JSON with a "
            f"version and lists of numbers under {', '.join(_KINDS[:-1])}"
        ) from error


def _text(path: str | None) -> bytes:
    if path is None:
        return files(__package__).joinpath("xid_table.json").read_bytes()
    # A pipe in its place would be waited for, and a device never ends.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no regular file")
        return file.read(_MOST_BYTES)


def _of(name: str, xids: object) -> list[tuple[int, XidKind]]:
    kind = next((kind for kind in _KINDS[:-1] if kind == name), None)
    if kind is None:
        raise ValueError(f"there is no list called {name!r}")
    if not isinstance(xids, list) or any(type(xid) is not int for xid in xids):
        raise ValueError(f"{name} is no list of numbers")
    return [(xid, kind) for xid in xids]
