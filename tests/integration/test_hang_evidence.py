"""What is kept of a hang: stacks, by the program or by py-spy, and torch's flight record."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from stage.agent import PATIENCE_S, Stage, gone, play

from relight.resilience.worker.flight_recorder import recorder_variables, write_record
from relight.resilience.worker.stacks import Stacks

WORLD = {
    "RELIGHT_ATTEMPT": "1.0",
    "RELIGHT_GENERATION": "1",
    "RELIGHT_CHECKPOINT_DIR": "c",
    "RELIGHT_RESTORE": "",
    "RANK": "0",
    "WORLD_SIZE": "2",
}
JOINED = """
import faulthandler, signal, time
import relight
relight.join()
{more}
print("up", flush=True)
time.sleep(600)
"""
DEAF = "faulthandler.unregister(signal.SIGUSR2)  # as Python does at its exit"


@pytest.fixture
def spied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A py-spy on PATH that only says how it was called."""
    spy = tmp_path / "bin" / "py-spy"
    spy.parent.mkdir()
    spy.write_text("#!/bin/sh\necho spied: $*\n")
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{spy.parent}:{os.environ['PATH']}")


@pytest.mark.usefixtures("spied")
@pytest.mark.parametrize(
    ("code", "stopped", "words"),
    [
        (JOINED.format(more=""), True, "spied: dump --nonblocking --pid {pid}"),
        (JOINED.format(more=DEAF), False, "spied: dump --nonblocking --pid {pid}"),
        (
            "print('up', flush=True); import time; time.sleep(600)",
            False,
            "spied: dump --nonblocking --subprocesses --pid {pid}",
        ),
    ],
    ids=["stopped", "at its exit", "not joined"],
)
def test_who_does_not_answer_is_looked_at(
    tmp_path: Path, code: str, stopped: bool, words: str
) -> None:
    async def scene(made: Stage) -> None:
        agent = await made.agent()
        await made.hear("hello")
        made.start(code, env=WORLD)
        await made.printed("up")
        pid = (await made.hear("started"))["pid"]
        assert isinstance(pid, int)
        if stopped:
            (hung := psutil.Process(pid)).suspend()
            while hung.status() != psutil.STATUS_STOPPED:
                await asyncio.sleep(0.02)
        made.channel.broadcast({"type": "stacks", "generation": 1})
        await made.printed(words.format(pid=pid))
        made.channel.broadcast({"type": "stop", "generation": 1, "signal": "SIGTERM"})
        made.channel.broadcast({"type": "stop", "generation": 1, "signal": "SIGKILL"})
        end = await made.hear("exited")
        assert end["signal"] in {"SIGKILL", "SIGTERM"}, "it did not die of the question"
        made.channel.broadcast({"type": "quit"})
        await gone(agent)

    play(scene, tmp_path)


RECORDED = """
import sys, time, types
import relight
distributed = types.ModuleType("torch.distributed")
distributed.is_available = distributed.is_initialized = lambda: True
distributed.get_backend_config = lambda: "cpu:gloo,cuda:nccl"
inner = types.ModuleType("torch._C._distributed_c10d")
inner._dump_nccl_trace = lambda: b"the last collectives"
sys.modules["torch.distributed"], sys.modules["torch._C._distributed_c10d"] = distributed, inner
relight.join()
print("up", flush=True)
time.sleep(600)
"""


@pytest.mark.usefixtures("spied")
def test_a_rank_that_hangs_says_where_and_writes_its_flight_record(tmp_path: Path) -> None:
    async def scene(made: Stage) -> None:
        agent = await made.agent()
        await made.hear("hello")
        made.start(RECORDED, env={**WORLD, "TORCH_FR_BUFFER_SIZE": "100"})
        await made.printed("up")
        pid = (await made.hear("started"))["pid"]
        assert isinstance(pid, int)
        log = tmp_path / "logs" / "0.log"
        asked = Stacks(pid, [pid], log)
        made.channel.broadcast({"type": "stacks", "generation": 1})
        await made.printed("<module>")
        record = tmp_path / "logs" / "flight-0"
        async with asyncio.timeout(PATIENCE_S):
            while not record.exists() or record.read_bytes() != b"the last collectives":
                await asyncio.sleep(0.02)
            while not asked.look():
                await asyncio.sleep(0.02)
        assert "spied" not in made.log(), "it has answered"
        made.channel.broadcast({"type": "stop", "generation": 1, "signal": "SIGKILL"})
        await made.hear("exited")
        made.channel.broadcast({"type": "quit"})
        await gone(agent)

    play(scene, tmp_path)


def test_the_users_own_place_for_records_stays(tmp_path: Path) -> None:
    on = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "100"}
    assert recorder_variables({}, tmp_path) == {}
    assert recorder_variables({"TORCH_FR_BUFFER_SIZE": "0"}, tmp_path) == {}
    assert recorder_variables({**on, "TORCH_FR_DUMP_TEMP_FILE": "/x"}, tmp_path) == {}
    assert set(recorder_variables(on, tmp_path).values()) == {str(tmp_path / "flight-")}


def test_a_record_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gloo = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_backend_config=lambda: "cpu:gloo",
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", gloo)
    inner = SimpleNamespace(_dump_fr_trace=lambda: b"x")
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", inner)
    write_record(3, {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "gone" / "flight-")})
    assert "no flight record of rank 3: " in capsys.readouterr().err
    write_record(3, {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "flight-")})
    assert (tmp_path / "flight-3").read_bytes() == b"x"


def test_what_torch_lacks_or_raises_does_not_end_the_thread_that_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    env = {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "flight-")}
    without = SimpleNamespace(is_available=lambda: False)  # torch that was built without it
    monkeypatch.setitem(sys.modules, "torch.distributed", without)
    write_record(3, env)
    assert capsys.readouterr().err == ""
    gloo = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "torch.distributed", gloo)  # of another version
    write_record(3, env)
    assert "no flight record of rank 3: " in capsys.readouterr().err
