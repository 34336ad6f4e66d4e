"""Numbers of things in words: one rank, but two ranks."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 rank``, ``2 ranks``, ``0 processes``; of several words the last is the noun."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"
