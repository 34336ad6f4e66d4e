"""What a job asks for, and whose memory is no fault of the node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from health.roots import make_root

from relight.resilience.config import RunConfig
from relight.resilience.health import requested_memory
from relight.resilience.health.check import Candidate
from relight.resilience.health.requested_memory import CHECK, requested_bytes
from relight.resilience.health.result import Outcome
from relight.storage.tier_folder import make_private, tier_folder


@pytest.mark.parametrize(
    ("environ", "mib"),
    [
        ({}, 0),
        ({"SLURM_MEM_PER_NODE": "800", "SLURM_MEM_PER_CPU": "1"}, 800),
        ({"SLURM_MEM_PER_CPU": "100", "SLURM_CPUS_ON_NODE": "4"}, 400),
        ({"SLURM_MEM_PER_CPU": "100", "SLURM_CPUS_ON_NODE": "4(x2)"}, 0),
    ],
)
def test_what_the_job_asks_for(environ: Mapping[str, str], mib: int) -> None:
    assert requested_bytes(environ) == mib * 1024**2


def test_what_relight_holds_itself_is_no_lack_of_memory(
    run_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed run has left in the tier goes; while ranks of this one run, nothing does."""
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "8000")
    root = make_root(tmp_path / "root", {})
    (tier := tmp_path / "tier").mkdir()
    left = tier_folder(tier, "killed", "n1")
    make_private(left)
    environ = "RELIGHT_RUN_ID={}\0RELIGHT_GENERATION=1\0"
    monkeypatch.setattr(
        requested_memory, "available", lambda _: 0 if left.exists() else 8000 * 1024**2
    )

    def outcome(run_id: str, tier: Path | None) -> Outcome:
        make_root(root, {"proc/7/environ": environ.format(run_id)})
        checkpoint = replace(run_config.checkpoint, tier=None if tier is None else str(tier))
        config = replace(run_config, checkpoint=checkpoint)
        return CHECK.run(Candidate("n1", config, 0.0, (), root)).outcome

    assert outcome(run_config.run_id, tier) is Outcome.PASS
    assert left.exists(), "not judged"
    assert outcome("another", None) is Outcome.FAIL_NODE
    assert outcome("another", tier) is Outcome.PASS
    assert not left.exists()
