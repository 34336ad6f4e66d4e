"""Amounts as people write them in a spec: memory, durations, checkpoint intervals (pure)."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

DEFAULT_LEAD_S: Final = 60.0  # before the time limit
_BYTES: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])i?B?", re.IGNORECASE)
_BYTE_POWER: Final = {"K": 1, "M": 2, "G": 3, "T": 4}
_CLOCK: Final = re.compile(r"(?:(\d{1,9})-)?(\d{1,9}):([0-5]\d):([0-5]\d)")
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|min|h|d)")
_SECONDS: Final = {"s": 1, "sec": 1, "min": 60, "h": 3600, "d": 86400}
# Slurm counts the seconds of a limit in a C int, and adds 59 to round up to minutes
# (time_str2mins in src/common/parse_time.c).
LONGEST_DAYS: Final = 24_855
_STEPS: Final = re.compile(r"([1-9]\d*)\s+steps?")


class DurationTooLong(ValueError):
    """A duration, and more than Slurm can hold."""


def parse_bytes(text: str) -> int:
    """Bytes of ``8GB``, ``512M`` or ``1.5TiB``; every unit is a power of 1024, as Slurm's are.

    Raises:
        ValueError: it is not an amount with a unit, or it is zero.
    """
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory; write for example 8GB or 512MB")
    size_bytes = int(Decimal(match[1]) * 1024 ** _BYTE_POWER[match[2].upper()])
    if size_bytes < 1:
        raise ValueError(f"{text!r} is nothing; write for example 8GB")
    return size_bytes


def amount(size_bytes: float) -> str:
    """Bytes as a person reads them, by powers of 1000: ``1.5 GB``."""
    for unit, width in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= width:
            return f"{size_bytes / width:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def parse_duration(text: str) -> float:
    """Seconds of ``4:00:00``, ``1-12:00:00``, ``90s``, ``10min``, ``2h``, ``7d`` or ``1h 30min``.

    ``4:00`` is refused: Slurm reads it as minutes, most people as hours.

    Raises:
        ValueError: it is not a duration, it is zero, or Slurm cannot hold it.
    """
    duration_s = _clock_s(text.strip()) or _sum_of_parts_s(text.strip())
    if not duration_s:
        raise ValueError(f"{text!r} is not a duration; write for example 4:00:00, 90s, 10min or 7d")
    if duration_s > LONGEST_DAYS * 86400:
        raise DurationTooLong(f"{text!r} is too long: Slurm cannot hold more than {LONGEST_DAYS}d")
    return duration_s


def _clock_s(text: str) -> float | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)


def _sum_of_parts_s(text: str) -> float | None:
    parts = _DURATION_PART.findall(text)
    if _DURATION_PART.sub("", text).strip():
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def check_interval(text: str) -> str:
    """A checkpoint interval (``auto``, ``20 steps`` or a duration) in the one spelling that ranks
    are told: ``auto``, ``20 steps`` or ``5400s``.

    Raises:
        ValueError: it is none of these.
    """
    if text == "auto":
        return text
    if steps := _STEPS.fullmatch(text):
        return f"{steps[1]} steps"
    try:
        return f"{Decimal(str(parse_duration(text))).normalize():f}s"
    except DurationTooLong:
        raise
    except ValueError:
        raise ValueError(
            f"{text!r} is not an interval; write auto, a number of steps (20 steps) "
            "or a duration (10min)"
        ) from None


def parse_every(text: str) -> tuple[int | None, float | None]:
    """Steps or seconds, one of them None, of ``1000 steps`` or a duration.

    Raises:
        ValueError: it is neither.
    """
    if steps := _STEPS.fullmatch(text.strip()):
        return int(steps[1]), None
    try:
        return None, parse_duration(text)
    except DurationTooLong:
        raise
    except ValueError:
        raise ValueError(
            f"{text!r} is no distance; write a number of steps (1000 steps) or a duration (6h)"
        ) from None


def slurm_time(duration_s: float) -> str:
    """A duration as Slurm's ``D-HH:MM:SS``, never shorter than asked."""
    whole_s = int(-(-duration_s // 1))
    days, rest_s = divmod(whole_s, 86400)
    hours, rest_s = divmod(rest_s, 3600)
    minutes, seconds = divmod(rest_s, 60)
    clock = f"{hours:02}:{minutes:02}:{seconds:02}"
    return f"{days}-{clock}" if days else clock


def slurm_memory(size_bytes: int) -> str:
    """An amount of memory as Slurm's whole mebibytes, never less than asked."""
    return f"{-(-size_bytes // 1024**2)}M"
