"""What the quickstart says, and how it gives up."""

from __future__ import annotations

import time
from collections.abc import Callable

Say = Callable[[str], None]


class NotProven(Exception):
    """Something did not go as promised; the message says what, and shows the evidence."""


def narrator() -> Say:
    """Prints lines, each after the seconds since the start."""
    began_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:6.1f} s  {text}", flush=True)

    return say


def compare(say: Say, undisturbed: str, disturbed: str) -> None:
    """The proof: the digest covers weights, optimizer, schedule, data position and random states.

    Raises:
        NotProven: the digests differ.
    """
    say(f"digest of the undisturbed run {undisturbed}")
    say(f"digest of the disturbed run   {disturbed}")
    if undisturbed != disturbed:
        raise NotProven("the two runs did not end with the same state")
    say("equal, bit for bit")
