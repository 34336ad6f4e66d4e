"""What the command of a node finds, so that torchrun makes the right world."""

from __future__ import annotations

from pathlib import Path

from relight.resilience.config import CheckpointConfig, RunConfig
from relight.resilience.place import place_of
from relight.resilience.supervise.node_command import of_node
from relight.resilience.supervise.rendezvous import Rendezvous


def test_the_second_node_of_two() -> None:
    config = RunConfig(
        run_id="lm-1",
        name="lm",
        run_dir=Path("/runs/lm-1"),
        command=("torchrun", "a.py"),
        command_per="node",
        working_dir=Path("/work"),
        nodes=2,
        tasks_per_node=2,
        env={"PET_MONITOR_INTERVAL": "0.5", "PET_NNODES": "7", "PET_REDIRECTS": "3"},
        checkpoint=CheckpointConfig(directory=Path("/ck")),
    )
    meeting = Rendezvous(
        attempt="7.0",
        generation=1,
        nodes=("n1", "n2"),
        master_address="n1",
        master_port=4711,
        restore=None,
    )
    addresses = {0: "@a", 1: "@b", 2: "@c", 3: "@d"}
    orders = [
        of_node(
            config,
            meeting.start_order(config, rank, config.command, Path("/log")),
            place_of(config, rank),
            addresses,
        )
        for rank in (2, 3)
    ]
    assert [order["command_of_node"] for order in orders] == [
        {"local_rank": 0, "others": ["@d"]},
        {"local_rank": 1, "others": ["@d"]},
    ]
    env = orders[0]["env"]
    assert isinstance(env, dict)
    assert orders[1]["env"] == env
    assert env["RELIGHT_AGENT_SOCKETS"] == "2=@c,3=@d"
    assert {name: value for name, value in env.items() if name.startswith("PET_")} == {
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_NPROC_PER_NODE": "2",
        "PET_MASTER_ADDR": "n1",
        "PET_MASTER_PORT": "4711",
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ENDPOINT": "",
        "PET_RDZV_CONF": "",
        "PET_STANDALONE": "0",
        "PET_MAX_RESTARTS": "0",
        "PET_SIGNALS_TO_HANDLE": "SIGQUIT",
        "PET_REDIRECTS": "0",
        "PET_MONITOR_INTERVAL": "0.5",
    }
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE"} & env.keys(), "torchrun says them"
