"""What ``run.log`` is given, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import SupportsFloat

from .errors import LogRefused


def plain_values(values: Mapping[str, SupportsFloat | str]) -> dict[str, float | str]:
    """Numbers and text by name; a tensor is copied from its device.

    Raises:
        LogRefused: a value is neither.
    """
    return {
        name: value if isinstance(value, str) else _number(name, value)
        for name, value in values.items()
    }


def _number(name: str, value: SupportsFloat) -> float:
    """torch warns when a tensor that has a gradient becomes a number."""
    detach: Callable[[], SupportsFloat] | None = getattr(value, "detach", None)
    try:
        return float(value if detach is None else detach())
    except (TypeError, ValueError, RuntimeError) as error:  # torch's own is the last
        raise LogRefused(
            f"run.log({name}=...): expected a number or text, not {type(value).__name__} ({error})"
        ) from error
