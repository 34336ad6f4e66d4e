"""Which checkpoints may go. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from math import floor
from typing import Literal

Mode = Literal["min", "max"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The ``n`` checkpoints with the lowest or highest value of a metric."""

    metric: str
    mode: Mode = "min"
    n: int = 1

    def __post_init__(self) -> None:
        if self.mode not in ("min", "max"):
            raise ValueError(f"keep.best.mode is {self.mode!r}, expected min or max")
        if self.n < 1:
            raise ValueError(f"keep.best.n is {self.n}, expected 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """A checkpoint stays when any of these names it.

    Attributes:
        last: how many of the newest valid ones, at least 1.
        every_steps: the first one of each so many steps: of 1000 those of steps 0, 1000, …, where
            there is one of just that step.
        every_s: the first one of each so many seconds, counted from 1970.
        best: those with the best values of a metric.
    """

    last: int = 3
    every_steps: int | None = None
    every_s: float | None = None
    best: Best | None = None

    def __post_init__(self) -> None:
        if self.last < 1:
            raise ValueError(f"keep.last is {self.last}, at least one checkpoint must stay")
        if not all(every is None or every > 0 for every in (self.every_steps, self.every_s)):
            raise ValueError("keep.every must be more than nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What retention looks at: the step, when it was committed, what the program logged."""

    step: int
    created_s: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


def to_delete(committed: Iterable[Committed], newest: int | None, keep: Keep) -> tuple[int, ...]:
    """The steps that may be deleted, oldest first.

    `newest` is the newest valid step and bounds everything: it stays, what lies above it is not
    touched, and without it nothing may be deleted. Deciding again deletes nothing more.
    """
    if newest is None:
        return ()
    found = list(committed)
    kept = kept_by(found, newest, keep)
    return tuple(sorted(one.step for one in found if one.step <= newest and one.step not in kept))


def kept_by(
    committed: Iterable[Committed], newest: int, keep: Keep
) -> Mapping[int, tuple[str, ...]]:
    """The steps up to the newest valid one that stay, each with the rules that name it."""
    found = sorted((one for one in committed if one.step <= newest), key=lambda one: one.step)
    rules = {"newest": {newest}, f"last {keep.last}": {one.step for one in found[-keep.last :]}}
    if keep.every_steps is not None:
        steps = keep.every_steps
        rules[f"every {steps} steps"] = _first_of_each(found, lambda one: one.step // steps)
    if keep.every_s is not None:
        every_s = keep.every_s
        rules[f"every {every_s:g} s"] = _first_of_each(
            found, lambda one: floor(one.created_s / every_s)
        )
    if keep.best is not None:
        rules[f"best {keep.best.metric}"] = _best(found, keep.best)
    kept = sorted(set().union(*rules.values()))
    return {step: tuple(name for name, of in rules.items() if step in of) for step in kept}


def _first_of_each(found: list[Committed], period: Callable[[Committed], Hashable]) -> set[int]:
    firsts: dict[Hashable, int] = {}
    for one in found:
        firsts.setdefault(period(one), one.step)
    return set(firsts.values())


def _best(found: list[Committed], best: Best) -> set[int]:
    """Of equal ones the oldest, for it is nearest to when the value was found."""
    sign = 1 if best.mode == "min" else -1
    known = [
        (sign * one.metrics[best.metric], one.step) for one in found if best.metric in one.metrics
    ]
    return {step for _, step in sorted(known)[: best.n]}
