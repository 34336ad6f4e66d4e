"""How a shell completes the argument RUN."""

from __future__ import annotations

import click

from ..runs import run_ids


def complete_run(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """The ids of runs that begin so."""
    return [run_id for run_id in run_ids() if run_id.startswith(begun)]
