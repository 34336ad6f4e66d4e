"""What happens when the way between a supervisor and its agents breaks."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from stage.local import PATIENCE_S, UNDISTURBED, UNTIL_TOLD, wait_until
from stage.proxy import Proxy

from relight.launcher.clusters.local import JOB_ID, NODES, RESTART, LocalCluster
from relight.resilience.config import RunConfig
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise import agent_step
from relight.resilience.supervise.cluster import Command, StepRequest
from relight.resilience.supervise.journal import read_journals
from relight.resilience.supervise.supervisor import supervise


class BehindProxy(LocalCluster):
    """This machine, with the agents behind a way that can be cut."""

    proxy: Proxy

    def step_command(self, request: StepRequest) -> Command:
        command = super().step_command(request)
        if request.name != "ranks":
            return command
        host, _, port = command.env["RELIGHT_CHANNEL"].rpartition(":")
        way = {"RELIGHT_CHANNEL": f"{host}:{self.proxy.to(int(port))}"}
        return Command(command.argv, {**command.env, **way})


def test_a_cut_that_heals_costs_nothing_and_one_that_stays_a_restart(
    run_config: RunConfig, tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, stop = tmp_path / "program.py", tmp_path / "stop"
    program.write_text(UNTIL_TOLD.format(stop=str(stop)))
    config = replace(
        run_config,
        nodes=2,
        command=(sys.executable, str(program)),
        health=replace(run_config.health, preflight=False),
        restart=replace(run_config.restart, warm=False),
        checkpoint=replace(run_config.checkpoint, interval="20 steps"),
    )
    folder = RunFolder(config.run_dir)
    folder.root.mkdir(mode=0o700)

    def seen(name: str) -> list[dict[str, object]]:
        records = read_journals(folder.journals) if folder.journals.exists() else []
        return [dict(record.data) for record in records if record.name == name]

    def newest() -> int:
        return max((int(str(data["step"])) for data in seen("CheckpointCommitted")), default=0)

    def disturb() -> None:
        try:
            wait_until(lambda: newest() > 0)
            monkeypatch.setattr(agent_step, "BROKEN_LIMIT_S", PATIENCE_S)
            proxy.cut()
            cut_at = newest()
            assert proxy.turned_away.wait(PATIENCE_S), "an agent has tried in vain to come back"
            proxy.heal()
            # What ranks say of saves while the way is cut is not lost, and order nothing twice.
            wait_until(lambda: newest() >= cut_at + 60)
            assert len(seen("RanksStarted")) == 1
            monkeypatch.undo()
            proxy.cut()
            wait_until(lambda: bool(seen("RankLost")))
            proxy.heal()
            wait_until(lambda: len(seen("RanksStarted")) == 2)
        finally:
            stop.touch()

    cluster = BehindProxy(config, {**os.environ, JOB_ID: "local-1", RESTART: "0", NODES: "a,b"})
    cluster.proxy = proxy
    disturber = threading.Thread(target=disturb)
    disturber.start()
    code = supervise(config, cluster)
    disturber.join()
    assert code == 0
    assert "did not come back" in str(seen("RankLost")[0]["detail"])
    assert len(seen("RanksStarted")) == 2
    logs = [path.read_text() for path in folder.logs("local-1.0").glob("2/*.log")]
    assert [UNDISTURBED in log for log in logs] == [True, True]
