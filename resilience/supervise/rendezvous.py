"""The world of one generation, as the environment that its ranks get. Pure.

RANK is also the rank in MPI's COMM_WORLD (:mod:`relight.resilience.place`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relight.storage.tier_folder import tier_folder

from ..config import RunConfig
from ..messages import Message
from ..place import RankPlace, place_of
from . import container


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """Where and how one generation meets: nothing of an older one can join it."""

    attempt: str
    generation: int
    nodes: tuple[str, ...]
    master_address: str
    master_port: int
    restore: Path | None  # the manifest that all ranks restore from

    def environment(self, config: RunConfig, task: int) -> dict[str, str]:
        """What the program of ``task`` finds in its environment."""
        place = place_of(config, task)
        return {
            **config.env,
            **self._for_torch(config, task, place),
            **self._for_tier(config, place),
            **_of_component(place),
            "RELIGHT_RUN_ID": config.run_id,
            "RELIGHT_RUN_DIR": str(config.run_dir),
            "RELIGHT_ATTEMPT": self.attempt,
            "RELIGHT_GENERATION": str(self.generation),
            "RELIGHT_WORLD_SIZE": str(config.ranks_on(len(self.nodes))),
            "RELIGHT_CHECKPOINT_DIR": str(config.checkpoint.directory),
            "RELIGHT_CHECKPOINT_INTERVAL": config.checkpoint.interval,
            "RELIGHT_CHECKPOINT_STAGING": str(config.checkpoint.staging_bytes),
            "RELIGHT_CHECKPOINT_OVERLAP": str(int(config.checkpoint.overlap)),
            "RELIGHT_CHECKPOINT_REUSE": str(config.checkpoint.reuse),
            "RELIGHT_RESTORE": str(self.restore) if self.restore is not None else "",
        }

    def start_order(
        self, config: RunConfig, task: int, argv: tuple[str, ...], log: Path
    ) -> Message:
        """The order that starts the program of ``task``; ``argv`` is that of the run."""
        restart, component = config.restart, place_of(config, task).component
        own = argv if component is None else component.command or argv
        return {
            "type": "start",
            "generation": self.generation,
            "argv": list(container.program_of(config, own)),
            "cwd": str(config.working_dir),
            "env": self.environment(config, task),
            "secret_files": dict(config.secret_files),
            "log": str(log),
            "watched": restart.silence_s is not None or restart.idle_s is not None,
            "warm": restart.warm and config.mpi is None and config.container is None,
        }

    def _for_tier(self, config: RunConfig, place: RankPlace) -> Mapping[str, str]:
        tier = config.checkpoint.tier
        if tier is None:
            return {}
        folder = tier_folder(Path(tier), config.run_id, self.nodes[place.node])
        return {
            "RELIGHT_CHECKPOINT_TIER": str(folder),
            "RELIGHT_CHECKPOINT_TIER_SHARE": str(config.tier_share_bytes(len(self.nodes))),
            "RELIGHT_CHECKPOINT_COMPRESS": str(int(config.checkpoint.compress)),
        }

    def _for_torch(self, config: RunConfig, task: int, place: RankPlace) -> Mapping[str, str]:
        """The variables of torch.distributed's env:// and of torchrun (torch docs, elastic/run)."""
        return {
            "RANK": str(task),
            "WORLD_SIZE": str(config.ranks_on(len(self.nodes))),
            "LOCAL_RANK": str(place.local_rank),
            "LOCAL_WORLD_SIZE": str(place.local_size),
            "NODE_RANK": str(place.node),
            "GROUP_RANK": str(place.node),
            "MASTER_ADDR": self.master_address,
            "MASTER_PORT": str(self.master_port),
        }


def _of_component(place: RankPlace) -> Mapping[str, str]:
    if place.component is None:
        return {}
    return {
        "RELIGHT_COMPONENT": place.component.name,
        "RELIGHT_COMPONENT_RANK": str(place.component_rank),
        "RELIGHT_COMPONENT_SIZE": str(place.component_size),
    }
