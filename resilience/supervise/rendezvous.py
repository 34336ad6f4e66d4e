"""The world of one generation, as the environment that its ranks get. Pure.

Ranks follow the nodes of the step in their order, tasks of a node side by side, which is how Slurm
numbers tasks under block distribution, so that RANK is also the rank in MPI's COMM_WORLD.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relight.storage.tier_folder import tier_folder

from ..config import RunConfig


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
        node_rank, local_rank = divmod(task, config.tasks_per_node)
        return {
            **config.env,
            **self._for_torch(config, task, node_rank, local_rank),
            **self._for_tier(config, self.nodes[node_rank]),
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

    def _for_tier(self, config: RunConfig, node: str) -> Mapping[str, str]:
        tier = config.checkpoint.tier
        if tier is None:
            return {}
        return {
            "RELIGHT_CHECKPOINT_TIER": str(tier_folder(Path(tier), config.run_id, node)),
            "RELIGHT_CHECKPOINT_TIER_SHARE": str(config.tier_share_bytes(len(self.nodes))),
            "RELIGHT_CHECKPOINT_COMPRESS": str(int(config.checkpoint.compress)),
        }

    def _for_torch(
        self, config: RunConfig, task: int, node_rank: int, local_rank: int
    ) -> Mapping[str, str]:
        """The variables of torch.distributed's env:// and of torchrun (torch docs, elastic/run)."""
        return {
            "RANK": str(task),
            "WORLD_SIZE": str(config.ranks_on(len(self.nodes))),
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(config.tasks_per_node),
            "NODE_RANK": str(node_rank),
            "GROUP_RANK": str(node_rank),
            "MASTER_ADDR": self.master_address,
            "MASTER_PORT": str(self.master_port),
        }
