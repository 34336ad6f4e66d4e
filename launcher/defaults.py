"""What a spec does not say, the user's file for all runs says, and then the site's.

``/etc/relight.yaml`` and ``relight.yaml`` in ``$RELIGHT_HOME`` may hold any key of ``health``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .runs import runs_dir
from .spec import CheckSetting, JobSpec, SiteFile

SITE_FILE: Final = Path("/etc/relight.yaml")


def default_files() -> list[Path]:
    """Those of the two files that are there, the site's first."""
    return [place for place in (SITE_FILE, runs_dir().parent / "relight.yaml") if place.is_file()]


def with_defaults(spec: JobSpec, defaults: Sequence[SiteFile]) -> JobSpec:
    """The spec with what only the defaults say (pure); later ones count more, the spec most.

    Limits are merged one by one: a spec that changes one of a check keeps the site's others.
    """
    values: dict[str, object] = {}
    checks: dict[str, CheckSetting] = {}
    for health in (*(one.health for one in defaults), spec.health):
        values |= {name: getattr(health, name) for name in health.model_fields_set}
        for name, setting in health.checks.items():
            before = checks.get(name)
            if isinstance(before, dict) and isinstance(setting, dict):
                setting = {**before, **setting}
            checks[name] = setting
    if not values:
        return spec
    health = spec.health.model_copy(update={**values, "checks": checks})
    return spec.model_copy(update={"health": health})
