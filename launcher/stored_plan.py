"""Reads back ``plan.json`` of a run folder (standard library only)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from relight.errors import RelightError
from relight.resilience.config import ConfigDamaged, RunConfig
from relight.resilience.run_folder import RunFolder

PLAN_VERSION: Final = 1


class PlanMissing(RelightError):
    """Raised when a folder holds no plan of a run."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """What was written at submission."""

    cluster: Literal["slurm", "local"]
    config: RunConfig
    submitted_by: str
    created: float


def read_plan(root: Path) -> StoredPlan:
    """The plan in a run folder.

    Raises:
        PlanMissing: there is none.
        ConfigDamaged: it is not readable.
    """
    path = RunFolder(root).plan
    try:
        content = json.loads(path.read_text())
        if content["version"] != PLAN_VERSION:
            raise ConfigDamaged(
                f"{path} is of version {content['version']}; this relight reads {PLAN_VERSION}"
            )
        return StoredPlan(
            cluster=content["cluster"],
            config=RunConfig.from_json(content["run"]),
            submitted_by=str(content["submitted_by"]),
            created=float(content["created"]),
        )
    except OSError as error:
        raise PlanMissing(f"{root} is not a run folder: {path.name}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigDamaged(f"{path} is damaged: {error!r}; submit the job again") from error
