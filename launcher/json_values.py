"""Values of JSON that was read, as types; None or nothing where they are of another one (pure)."""

from __future__ import annotations


def text(value: object) -> str | None:
    return None if value is None else str(value)


def number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def real(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else ()
