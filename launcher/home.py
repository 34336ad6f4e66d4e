"""Paths that begin with ``~``, as shells read them."""

from __future__ import annotations

from pathlib import Path

from relight.errors import UsageError


def from_home(path: str) -> Path:
    """The path with a home directory in the place of ``~`` or ``~USER``.

    Raises:
        UsageError: there is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(f"{path}: no user of this name is known, or it has no home") from None
