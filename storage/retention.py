"""Which checkpoints may go. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """`last`: how many of the newest valid checkpoints stay, at least 1."""

    last: int

    def __post_init__(self) -> None:
        if self.last < 1:
            raise ValueError(f"keep.last is {self.last}, at least one checkpoint must stay")


def to_delete(steps_committed: Iterable[int], newest: int | None, keep: Keep) -> tuple[int, ...]:
    """The steps that may be deleted, oldest first.

    `newest` is the newest valid step and bounds everything: it stays, what lies above it is not
    touched, and without it nothing may be deleted.
    """
    if newest is None:
        return ()
    older = sorted({step for step in steps_committed if step < newest}, reverse=True)
    return tuple(reversed(older[keep.last - 1 :]))
