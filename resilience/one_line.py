"""Text from elsewhere, as one line that cannot steer a terminal (pure)."""

from __future__ import annotations


def one_line(text: str, most_chars: int) -> str:
    """The beginning of the text; what cannot be printed, like bytes that are no text, is ``?``."""
    kept = text[:most_chars]
    return kept if kept.isprintable() else "".join(map(_shown, kept))


def _shown(char: str) -> str:
    if char.isprintable():
        return char
    return " " if char.isspace() else "?"
