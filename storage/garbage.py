"""Python's search for garbage, held back while many objects are made that are none."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_holders = 0  # the search is off for them, and was on before


@contextmanager
def no_search() -> Iterator[None]:
    """Also a decorator. For work in memory: what waits for a disk would hold it back for long.

    CPython 3.11 searches all young objects after every 700 that stay, and now and then all that the
    program has: half of the time in which 100 000 small arrays are taken apart or put together.
    """
    global _holders
    with _lock:
        held = _holders > 0 or gc.isenabled()
        _holders += held
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _holders -= held
            if held and not _holders:
                gc.enable()


def _forked() -> None:
    """Whoever held it back is in the parent."""
    global _holders, _lock
    _lock = threading.Lock()
    if _holders:
        _holders = 0
        gc.enable()


os.register_at_fork(after_in_child=_forked)
