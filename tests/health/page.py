"""The page of all checks, by what they declare. ``python -m health.page`` writes it anew."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from relight.resilience.health.catalogue import ACTIVE, CHECKS
from relight.resilience.health.check import Check

PAGE = Path(__file__).parents[2] / "docs" / "checks.md"
_HEAD = """\
# All checks of nodes

Written by what each check declares, as `relight preflight --list` does; a test compares the two.
What answers mean, and how limits are set, is told in [Healthy nodes](health.md). *Silence*: what it
means when a check does not answer in its time; `UNKNOWN` unless said otherwise. Checks marked
*repeated* are asked again while ranks run.
"""
_COLUMNS = "| check | reads | good | at worst | about | limits |\n|---|---|---|---|---|---|\n"


def page() -> str:
    """The whole page."""
    active = "Only with `health.preflight: active`, `relight preflight --active`, or for suspects."
    return (
        f"{_HEAD}\n## Before ranks start\n{_COLUMNS}{_rows(CHECKS)}"
        f"\n## Active tests\n{active}\n\n{_COLUMNS}{_rows(ACTIVE)}"
    )


def _rows(checks: Iterable[Check]) -> str:
    return "".join(f"| {' | '.join(_cells(check))} |\n" for check in checks)


def _cells(check: Check) -> tuple[str, ...]:
    again = "; repeated" if check.repeated else ""
    silence = f"; silence: `{check.silence}`" if check.silence != "UNKNOWN" else ""
    limits = [f"`{limit.name}` = {limit.default:.12g} {limit.unit}" for limit in check.limits]
    return (
        f"`{check.name}`",
        check.reads.replace("*", r"\*"),
        check.threshold,
        f"`{check.worst}`, {check.fault}{silence}",
        f"{check.typical_s:g} s, at most {check.timeout_s:g} s{again}",
        "<br>".join(limits) or "none",
    )


if __name__ == "__main__":
    PAGE.write_text(page())
