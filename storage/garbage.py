"""Python's search for garbage, held back while many objects are made that are none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_search() -> Iterator[None]:
    """Also a decorator. Two threads may use it at once: one may search a little early then.

    CPython 3.11 searches all young objects after every 700 that stay, and now and then all that the
    program has: half of the time in which 100 000 small arrays are taken apart or put together.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
