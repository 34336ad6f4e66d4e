"""GPU memory that ended ranks still hold when the next ones are to start."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from health.gpus import GOOD, FakeDriver, FakeGpu
from stage.pretend_agents import PretendAgents

from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import StartRanks
from relight.resilience.decide.events import Event, GpuMemoryStayed, RanksStarted, StartFailed
from relight.resilience.health.gpu.given_back import still_held
from relight.resilience.health.gpu.reading import DRIVERS, Reading
from relight.resilience.supervise import agent_step
from relight.resilience.supervise.agents import GPU_LIMIT_S
from relight.resilience.supervise.cluster import Allocation
from relight.resilience.supervise.partners import Partners
from relight.resilience.supervise.ranks import Ranks
from relight.resilience.worker import gpu_memory
from relight.resilience.worker.gpu_memory import GpuMemory, has_gpus

# A board whose memory comes back at the third look; with HANG set, a driver that does not answer.
PYNVML = """
import os, time
from types import SimpleNamespace
class NVMLError(Exception): value = 999
looks = 0
def nvmlInit(): time.sleep(60 if "HANG" in os.environ else 0)
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetMemoryInfo(handle):
    global looks
    looks += 1
    return SimpleNamespace(used=0 if looks > int(os.environ["LOOKS"]) else 60 * 2**30)
def nvmlDeviceGetMigMode(handle): return [0, 0]
def nvmlDeviceGetComputeRunningProcesses(handle): return []
"""


def board(name: str = "GPU 0", **readings: int) -> FakeGpu:
    return FakeGpu(name, readings={**GOOD, **{Reading(key): n for key, n in readings.items()}})


def test_a_board_that_is_full_or_at_work_is_told() -> None:
    full, busy = board(memory_used=61 * 2**30), board("GPU 1", processes=1)
    split = board("GPU 2", mig_mode=1, memory_used=61 * 2**30)
    told = still_held(FakeDriver([full, busy, split, board("GPU 3")]), {}, 0.0)
    assert told.startswith("GPU 0: 62464 MiB in use, 0 processes; GPU 1: 4 MiB in use, 1 process, ")
    others = {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert still_held(FakeDriver([full, busy, split]), others, 0.0) == "", "they are not ours"


def answer_of(question: GpuMemory, limit_s: float) -> str:
    assert question.ask(limit_s, 1)
    give_up_at = time.monotonic() + 60
    while (answer := question.look()) is None:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
    return answer


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml.py").write_text(PYNVML)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("nvml")
def test_memory_that_comes_back_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pids: set[int] = set()
    monkeypatch.setenv("LOOKS", "2")
    question = GpuMemory(pids)
    assert question.ask(99.0, 1), "nobody waits for this one"
    (first,) = pids
    assert answer_of(question, 20.0) == ""
    monkeypatch.setenv("LOOKS", "999")
    assert answer_of(question, 0.2).startswith("GPU 0: 61440 MiB in use")
    assert not Path(f"/proc/{first}").exists()
    assert not pids, "their numbers may be those of others now"


@pytest.mark.usefixtures("nvml")
def test_a_driver_that_hangs_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_memory, "_START_S", 0.3)
    monkeypatch.setenv("HANG", "1")
    pids: set[int] = set()
    question = GpuMemory(pids)
    assert "has not answered" in answer_of(question, 0.0)
    assert len(pids) == 1, "who ends the program's children must not wait for this one"
    question._killed[0].wait()


def test_without_a_process_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    question = GpuMemory(set())
    assert not question.ask(1.0, 1)
    assert question.look() is None


def test_where_no_driver_is_nobody_is_asked(tmp_path: Path) -> None:
    assert not has_gpus(tmp_path)
    (tmp_path / DRIVERS[0]).mkdir(parents=True)
    assert has_gpus(tmp_path)


def start(run_config: RunConfig, generation: int, held: Sequence[str | None]) -> list[Event]:
    """What a start on two nodes tells, whose agents say this of the memory of their GPUs."""
    told: list[Event] = []

    async def story() -> None:
        def tell(event: Event) -> None:
            told.append(event)
            if isinstance(event, GpuMemoryStayed):
                ranks.start_anyway()

        allocation = Allocation(
            job_id="7",
            restart_count=0,
            nodes=("n1", "n2"),
            batch_node="n1",
            supervisor_host="127.0.0.1",
        )
        stage = PretendAgents(dict(enumerate(held)))
        two = dataclasses.replace(run_config, nodes=2, tasks_per_node=2)
        partners = Partners(two, told.append, print)
        ranks = Ranks(two, stage.cluster, allocation, tell, print, print, partners, tuple)
        ranks.expect(generation)
        nodes = allocation.nodes
        order = StartRanks(
            generation=generation, nodes=nodes, delay_s=0.0, committed_step=-1, reason="x"
        )
        starting = asyncio.create_task(ranks.start(order, None, None))
        async with asyncio.timeout(20):
            while not starting.done():
                ranks.look_for_silence()
                await asyncio.wait((starting,), timeout=0.01)
            await starting
            await ranks.close()
            await stage.ended()

    asyncio.run(story())
    return told


@pytest.mark.parametrize("generation", [1, 2])
def test_the_next_start_knows_whose_gpus_are_full(run_config: RunConfig, generation: int) -> None:
    told = start(run_config, generation, ("", "", "GPU 0: full", "GPU 0: full"))
    full = [GpuMemoryStayed(generation=generation, held={"n2": "GPU 0: full"})]
    assert told[:-1] == (full if generation > 1 else []), "at first the preflight has looked"
    assert isinstance(told[-1], RanksStarted)


def test_the_agent_of_rank_0_is_lost_while_gpus_are_asked(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_step, "BROKEN_LIMIT_S", 0.0)
    begun = time.monotonic()
    (failed,) = start(run_config, 2, (None, "", "", ""))
    assert isinstance(failed, StartFailed)
    assert failed.detail == "3 of 4 agents connected"
    assert time.monotonic() - begun < GPU_LIMIT_S, "nobody waits for its word"
