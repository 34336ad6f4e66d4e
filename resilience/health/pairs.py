"""Which nodes spoil a network: all-reduce in pairs, and suspects once more with proven partners.

A pair that fails says that one of two is bad. In the second pass each suspect meets a node whose
pair was good; who fails there too is bad, and who passes has only met a bad one. All of it is pure:
``measure`` is called at most twice, with pairs in which no node comes twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

Pair = tuple[str, str]
Rates = Mapping[Pair, float | None]  # GB/s; None: the pair did not come to an end

OF_MEDIAN: Final = 0.5  # a pair below this share of the pass's median rate has failed
MIN_PAIRS: Final = 3  # with fewer there is no median to judge by


@dataclass(frozen=True, slots=True)
class Localisation:
    """``bad`` nodes with evidence; ``unclear`` ones failed, and no good partner was left to ask."""

    bad: Mapping[str, str]
    unclear: tuple[str, ...]
    rates: Rates


def localise(nodes: Sequence[str], measure: Callable[[Sequence[Pair]], Rates]) -> Localisation:
    """Find the bad nodes in two passes."""
    first = measure(first_pass(nodes))
    failed = failed_pairs(first)
    good = [node for pair in first if pair not in failed for node in pair]
    paired = {node for pair in first for node in pair}
    suspects = [node for pair in failed for node in pair]
    suspects += [node for node in nodes if node not in paired]  # an odd one, not asked yet
    second_pairs = second_pass(suspects, good)
    second = measure(second_pairs) if second_pairs else {}
    usual = [rate for rate in first.values() if rate is not None]
    failed_again = failed_pairs(second, usual)
    asked = {suspect for suspect, _ in second_pairs}
    return Localisation(
        bad={
            suspect: f"all-reduce with {partner}, a good node, {_outcome(second[suspect, partner])}"
            for suspect, partner in failed_again
        },
        unclear=tuple(node for node in suspects if node not in asked and node in paired),
        rates={**first, **second},
    )


def first_pass(nodes: Sequence[str]) -> tuple[Pair, ...]:
    """Neighbours in the given order; of an odd number the last is left for the second pass."""
    return tuple(zip(nodes[::2], nodes[1::2], strict=False))


def second_pass(suspects: Sequence[str], good: Sequence[str]) -> tuple[Pair, ...]:
    """Each suspect with a good node of its own, as far as those go."""
    return tuple(zip(suspects, good, strict=False))


def failed_pairs(rates: Rates, usual: Sequence[float] = ()) -> tuple[Pair, ...]:
    """The pairs that did not end, or are far slower than most, counting ``usual`` rates too."""
    known = [*usual, *(rate for rate in rates.values() if rate is not None)]
    least = OF_MEDIAN * median(known) if len(known) >= MIN_PAIRS else 0.0
    return tuple(pair for pair, rate in rates.items() if rate is None or rate < least)


def _outcome(rate: float | None) -> str:
    return "did not end" if rate is None else f"reached only {rate:.2g} GB/s"
