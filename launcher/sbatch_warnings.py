"""What to tell who has submitted a batch script: about its partition, its time and its saves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from relight.resilience.config import RunConfig

from .former_runs import former_runs
from .sbatch_plan import least_nodes
from .shared_directory import directory_warnings, waits_for_jobs
from .site import preemption_warning, site_for, size_warning
from .units import DEFAULT_LEAD_S

Options = Mapping[str, str | None]

# The forms of --time in sbatch(1); a lone number is minutes.
_TIME: Final = re.compile(r"(?:(\d+)-(\d+)(?::(\d+))?(?::(\d+))?|(?:(\d+):)?(\d+):(\d+)|(\d+))")
_ADVICE: Final = "let the script save as often as you can afford to lose what it did since"
_TELL: Final = "; `#RELIGHT checkpoint.signal: USR1` tells it when the grace begins, not after it"


def script_warnings(options: Options, run: RunConfig) -> list[str]:
    """All warnings; silent when Slurm does not say, and for a job of another cluster."""
    shared = [] if waits_for_jobs(options) else directory_warnings(run)
    return [*shared, *lead_warnings(options, run), *_of_partition(options, run)]


def lead_warnings(options: Options, run: RunConfig) -> Iterator[str]:
    """Whether the script is told later than it asked for (pure)."""
    limit_s = time_limit_s(options.get("time-min") or options.get("time") or "")
    lead_s = run.checkpoint.lead_s
    if run.checkpoint.signal is None or limit_s is None or lead_s == DEFAULT_LEAD_S:
        return
    if lead_s > limit_s / 4:
        yield (
            f"checkpoint.lead is {lead_s:g} s, but a script is told before its time limit "
            f"({limit_s} s) when a quarter of it is left at most, {limit_s / 4:g} s: give it more "
            "time, or let it save faster"
        )


def _of_partition(options: Options, run: RunConfig) -> Iterator[str]:
    if "clusters" in options:
        return
    name = options.get("partition")
    site = site_for([name])
    if site is None:
        return
    if too_small := size_warning(site, name, least_nodes(options)):
        yield too_small
    advice = _ADVICE + (_TELL if run.checkpoint.signal is None else "")
    former = partial(former_runs, run.name, run.run_id, None)
    if preempted := preemption_warning(site, name, former, advice):
        yield preempted


def time_limit_s(text: str) -> int | None:
    """The seconds of sbatch's ``--time``; None without a limit, or when it cannot be read."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    days, day_hours, day_minutes, day_seconds, hours, minutes, seconds, alone = (
        int(part or 0) for part in match.groups()
    )
    whole_hours = days * 24 + day_hours + hours
    whole_minutes = whole_hours * 60 + day_minutes + minutes + alone
    return whole_minutes * 60 + day_seconds + seconds or None
