"""What a batch script finds in its environment when an agent starts it in Slurm's place."""

from __future__ import annotations

from typing import Final

from ..environ import initial_environment
from .beats import VARIABLE as BEAT_VARIABLE

# What an agent is told by its environment; a batch script does not find it in its own.
_OWN_VARIABLES: Final = frozenset(
    {
        "RELIGHT_CHANNEL", "RELIGHT_TOKEN_FILE", "RELIGHT_STEP",
        "RELIGHT_TASK", "RELIGHT_LOCAL_TASK", "RELIGHT_NODE", BEAT_VARIABLE,
    }
)  # fmt: skip


def script_environment(without: object) -> dict[str, str]:
    """The environment that Slurm gave to the batch script in whose place we are."""
    if not isinstance(without, list):
        raise ValueError(f"start: without_env is {without!r}, not a list")
    unknown = _OWN_VARIABLES.union(without)
    return {name: value for name, value in initial_environment().items() if name not in unknown}
