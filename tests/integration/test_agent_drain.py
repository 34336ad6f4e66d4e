"""A real agent, and the process beside it that copies from the tier."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import numpy as np
import psutil
from stage.agent import PATIENCE_S, Stage, gone, play

from relight.resilience.messages import encode
from relight.storage.checkpointer import save_shard
from relight.storage.commit import claim_epoch, commit_complete
from relight.storage.condition import examine
from relight.storage.layout import Incarnation, receipt_path, shard_path
from relight.storage.tier_folder import make_private, sweep, tier_folder

ONE = Incarnation("1.0", 1)
SAVES = """
import os, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(chr(0) + os.environ["RELIGHT_AGENT_SOCKET"][1:])
line.sendall(sys.argv[1].encode())
while line.recv(4096):
    pass
"""


def ended(process: psutil.Process) -> bool:
    """Nobody may be there to collect it."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_what_a_killed_agent_was_copying_is_no_checkpoint(tmp_path: Path) -> None:
    directory, tier = tmp_path / "checkpoints", tier_folder(tmp_path / "tier", "run", "n1")
    shard = shard_path(directory, 10, ONE, 0)
    shard.parent.mkdir(parents=True)
    tier.parents[1].mkdir()
    make_private(tier)
    epoch = claim_epoch(directory, ONE)
    receipt = save_shard(tier, 10, ONE, 0, 1, {"w": np.arange(50_000)})
    place = {"tier": str(tier), "directory": str(directory), "writer": ONE.folder, "step": 10}
    saved = encode({"type": "saved", "receipt": receipt.to_json(), "rank": 0, **place})
    os.mkfifo(shard)  # the copy gets as far as its name, and waits

    async def scene(made: Stage) -> None:
        agent = await made.agent()
        await made.hear("hello")
        made.start(SAVES, saved.decode(), env={"RELIGHT_CHECKPOINT_TIER": str(tier)})
        async with asyncio.timeout(PATIENCE_S):
            while not list(shard.parent.glob(f".{shard.name}.*")):
                await asyncio.sleep(0.02)
        children = psutil.Process(agent.pid).children()
        (copying,) = [one for one in children if "relight.storage.drain" in one.cmdline()]
        agent.kill()
        await gone(agent)
        async with asyncio.timeout(PATIENCE_S):
            while not ended(copying):
                await asyncio.sleep(0.02)

    play(scene, tmp_path)
    shard.unlink()
    assert not receipt_path(directory, 10, ONE, 0).exists()
    assert examine(directory, 10).condition == "uncommitted"
    assert commit_complete(directory, epoch) == []
    sweep(tier.parents[1])
    assert list(tier.parents[1].iterdir()) == []
