"""What a node cannot tell never speaks against it: every check on nothing and on nonsense."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from health.gpus import GOOD, FakeDriver, FakeGpu
from health.roots import make_root

from relight.resilience.config import RunConfig
from relight.resilience.health.catalogue import CHECKS
from relight.resilience.health.check import Candidate, Check
from relight.resilience.health.gpu import each, occupied
from relight.resilience.health.gpu.reading import Gpu
from relight.resilience.health.isolate import run_checks
from relight.resilience.health.result import Outcome

PORT = "sys/class/infiniband/mlx5_0/ports/1"
NET = "sys/class/net/eth0"
FILES = (
    *(f"{NET}/{name}" for name in ("device/vendor", "type", "operstate", "speed", "mtu")),
    *("sys/devices/system/cpu/online", "sys/bus/pci/devices/0000:3b:00.0/vendor"),
    *("proc/meminfo", "proc/loadavg", "proc/uptime", "proc/self/mounts", "proc/17/stat"),
    *("dev/kmsg", "sys/fs/lustre/health_check"),
    *(f"sys/devices/system/edac/mc/mc0/{name}" for name in ("ue_count", "ce_count")),
    *(f"{PORT}/{name}" for name in ("state", "phys_state", "rate", "counters/link_downed")),
    *(f"{PORT}/counters/{name}" for name in ("symbol_error", "port_rcv_errors")),
)
NONSENSE = ("", "nan\n", "-1\n", "\x00\x1b[31m\n", "9" * 400 + "\n", "none lustre /scratch\n")
AGAINST = (Outcome.FAIL_NODE, Outcome.FAIL_JOB)
HOST = [check for check in CHECKS if not check.name.startswith("gpu")]
GPU = [check for check in CHECKS if check.name.startswith("gpu")]


@pytest.fixture
def here(run_config: RunConfig, tmp_path: Path) -> Candidate:
    root = tmp_path / "root"
    root.mkdir()
    return Candidate("n1", run_config, 0.0, (), root)


def outcomes(checks: Sequence[Check], candidate: Candidate, limit_s: float) -> dict[str, Outcome]:
    return {r.check: r.outcome for r in run_checks(checks, candidate, limit_s)}


def against(found: dict[str, Outcome]) -> list[str]:
    return [check for check, outcome in found.items() if outcome in AGAINST]


def test_where_there_is_nothing_to_read(here: Candidate) -> None:
    assert against(outcomes(CHECKS, here, 20.0)) == []


@pytest.mark.parametrize("text", NONSENSE)
def test_where_the_kernel_talks_nonsense(here: Candidate, text: str) -> None:
    make_root(here.root, dict.fromkeys(FILES, text))
    assert against(outcomes(HOST, here, 20.0)) == []


def test_only_a_check_that_had_its_time_may_hold_silence_against_a_node(here: Candidate) -> None:
    os.mkfifo(make_root(here.root, {"proc/self/x": ""}) / "proc/self/mounts")
    health = dataclasses.replace(here.config.health, mounts=("/scratch",))
    config = dataclasses.replace(here.config, health=health)
    here = dataclasses.replace(here, config=config)
    mounts = next(check for check in CHECKS if check.name == "mounts")
    patient = dataclasses.replace(mounts, timeout_s=0.5)
    assert outcomes([patient], here, 30.0) == {"mounts": Outcome.FAIL_NODE}
    assert outcomes([mounts], here, 0.5) == {"mounts": Outcome.UNKNOWN}


@pytest.mark.parametrize("board", [FakeGpu(readings={}), FakeGpu(readings=dict.fromkeys(GOOD, 0))])
def test_boards_that_talk_nonsense(
    here: Candidate, monkeypatch: pytest.MonkeyPatch, board: Gpu
) -> None:
    monkeypatch.setattr(each, "open_driver", lambda: FakeDriver([board]))
    monkeypatch.setattr(occupied, "PATIENCE_S", 0.0)
    assert against(outcomes(GPU, here, 20.0)) == []
