"""Numbers of things in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relight.counted import counted

HOME = Path(__file__).parents[2]
# What is counted by hand: a number in braces before a plural.
BY_HAND = re.compile(r"(?<!of )\{len\([^{}]*\)\} [a-z]+s\b|\(s\)[ \"']|'s' if ")


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "rank", "1 rank"),
        (0, "rank", "0 ranks"),
        (2, "plain value", "2 plain values"),
        (3, "process", "3 processes"),
    ],
)
def test_one_is_not_several(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text


def test_nobody_counts_by_hand() -> None:
    found = [
        f"{path.relative_to(HOME)}: {words}"
        for room in ("launcher", "resilience", "storage")
        for path in (HOME / room).rglob("*.py")
        for words in BY_HAND.findall(path.read_text())
    ]
    assert found == []
