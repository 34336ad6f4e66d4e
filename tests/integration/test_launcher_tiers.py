"""``relight run`` with a tier on the node: restarts read from it, and nothing stays there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest
from stage.local import UNDISTURBED, UNTIL_TOLD, Run, wait_until

from relight.resilience.supervise.journal import Record, read_journals
from relight.storage.choose import candidates
from relight.storage.tier_folder import hold, tier_folder

STOP = "stop"
LARGE = "(field=field, frozen=np.zeros(100_000)"


def start(tmp_path: Path, tier: Path, size: str = "100 MB") -> Run:
    program, spec = tmp_path / "train.py", tmp_path / "job.yaml"
    program.write_text(UNTIL_TOLD.format(stop=str(tmp_path / STOP)).replace("(field=field", LARGE))
    spec.write_text(
        f"command: [{sys.executable}, {program}]\nresources: {{tasks_per_node: 2}}\n"
        f"checkpoint: {{interval: 1s, tiers: {{node: {tier}, size: {size}}}, "
        "compress: true, reuse: 9}\n"
        "health: {preflight: off}\n"
    )
    return Run(tmp_path / "home", str(spec))


def records(run: Run, name: str) -> list[Record]:
    return [one for one in read_journals(run.folder / "journal") if one.name == name]


def test_a_restart_in_place_reads_from_the_tier(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    tier.mkdir()
    killed = tier_folder(tier, "killed", "n1")
    os.close(hold(killed))
    (killed / "000000000001").mkdir()
    run = start(tmp_path, tier)
    run.wait_for_checkpoint()
    wait_until(lambda: [path.name for path in tier.iterdir()] == [f"relight-{run.folder.name}"])
    rank = next(
        one
        for one in psutil.process_iter(["cmdline"])
        if one.info["cmdline"] == [sys.executable, str(tmp_path / "train.py")]
    )
    rank.kill()
    run.wait_for_checkpoint_of_generation(2)
    (tmp_path / STOP).touch()
    assert run.end()[0] == 0
    (restored,) = records(run, "CheckpointRestored")
    assert restored.data["slowest_rank"] in (0, 1)
    (read,) = records(run, "TierRead")
    started = records(run, "RanksStarted")[1].data
    assert (read.data["ranks"], read.data["step"]) == ([0, 1], started["restored_step"])
    saved = [one.manifest for one in candidates(run.folder / "checkpoints") if one.manifest]
    drained = [one.receipts[0] for one in saved if one.receipts[0].copied_from is not None]
    assert drained[0].bases, "frozen arrays were shared on the way from the tier"
    assert sum(drained[0].bases.values()) < 100_000 < drained[0].payload_bytes, "and compressed"
    assert run.relight("logs", run.folder.name).count(UNDISTURBED) == 2
    assert "from the tiers of their nodes" in run.relight("history", run.folder.name)
    assert 'sound": true' in run.relight("ckpt", "verify", run.folder.name, "--json")
    assert records(run, "SaveFailed") == records(run, "TierFailed") == []
    assert list(tier.iterdir()) == []


@pytest.mark.parametrize("tier", ["missing", "full"])
def test_without_a_tier_that_works_saves_go_to_the_directory(tmp_path: Path, tier: str) -> None:
    place = tmp_path / "mount" / tier
    if tier == "full":
        place.parent.mkdir()
    run = start(tmp_path, place, "4kB")
    run.wait_for_checkpoint(20)
    (tmp_path / STOP).touch()
    assert run.end()[0] == 0
    failed = records(run, "TierFailed")
    assert sorted(int(str(one.data["rank"])) for one in failed) == [0, 1], "each tells it once"
    told = {
        "missing": "(No such file or directory): make it on each node",
        "full": "bytes, and 2048 are left",
    }[tier]
    assert told in str(failed[0].data["reason"])
    assert "does without its node's tier" in run.relight("history", run.folder.name)
