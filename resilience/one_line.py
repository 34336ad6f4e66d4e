"""Text from elsewhere, as one line that cannot steer a terminal (pure)."""

from __future__ import annotations


def one_line(text: str, most_chars: int) -> str:
    """The beginning of the text; what cannot be printed, like bytes that are no text, is ``?``."""
    return "".join(_shown(char) for char in text[:most_chars])


def _shown(char: str) -> str:
    if char.isprintable():
        return char
    return " " if char.isspace() else "?"
