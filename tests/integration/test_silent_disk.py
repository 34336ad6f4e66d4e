"""A checkpoint directory that does not answer, and whoever might wait for it for ever."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from stage.faulty_disk import Disk, faulty_disk

from relight.launcher import former_runs as asking
from relight.launcher import shared_directory, site
from relight.launcher.cli.main import relight
from relight.launcher.former_runs import FormerRuns, former_runs
from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import RunPreflight, StartRanks
from relight.resilience.decide.events import Event, PreflightFinished, StartFailed
from relight.resilience.supervise import storage_probe
from relight.resilience.supervise.cluster import Allocation, Cluster, Command
from relight.resilience.supervise.orders import Orders
from relight.resilience.supervise.pace import Pace
from relight.resilience.supervise.saves import Saves

FAKE_BIN = Path(__file__).parents[1] / "data" / "slurm" / "fake" / "bin"
STALL_S = 300.0
AT_ONCE_S = 60.0
ALLOCATION = Allocation(
    job_id="7", restart_count=0, nodes=("n1",), batch_node="n1", supervisor_host="n1"
)


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Disk]:
    """A disk that takes so long to find a folder."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    with faulty_disk(tmp_path, late=False) as disk:
        if disk is None:
            pytest.skip("/dev/fuse does not work here")
        disk.stall("LOOKUP", STALL_S)
        yield disk


def told(config: RunConfig, silent: Disk, order: RunPreflight | StartRanks) -> tuple[Event, float]:
    """The first event that comes of an order, and after which time."""
    config = replace(
        config, checkpoint=replace(config.checkpoint, directory=silent.root / "checkpoints")
    )

    async def story() -> tuple[Event, float]:
        event: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        emit: Callable[[Event], None] = event.set_result
        cluster = SimpleNamespace(
            step_command=lambda _: Command(("true",), os.environ), node_address=str
        )
        nobody = cast(Any, SimpleNamespace(expect=lambda _: None))
        orders = Orders(
            config,
            cast(Cluster, cluster),
            ALLOCATION,
            nobody,
            Saves(config, emit, lambda _: None),
            Pace(config.restart),
            emit,
            asyncio.create_task,
            lambda: None,
            lambda: asyncio.sleep(0),
        )
        begun = time.monotonic()
        orders.carry_out(order)
        try:
            return await event, time.monotonic() - begun
        finally:
            silent.mend()  # or what hangs in it would keep this loop from its end

    try:
        return asyncio.run(story())
    finally:
        gc.collect()  # a process that was left in the kernel is told of here, and not elsewhere


def test_the_preflight_begins(run_config: RunConfig, silent: Disk) -> None:
    event, seconds = told(run_config, silent, RunPreflight(nodes=("n1",), reason="it begins"))
    assert isinstance(event, PreflightFinished)
    assert seconds < AT_ONCE_S


# The process that asks is left in the kernel.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_start_without_a_preflight_is_given_up_and_the_file_system_blamed(
    run_config: RunConfig, silent: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_probe, "PATIENCE_S", 0.1)
    monkeypatch.setattr(storage_probe, "LIMIT_S", 0.5)
    monkeypatch.setattr(storage_probe, "_REAP_S", 0.1)
    order = StartRanks(generation=0, nodes=("n1",), delay_s=0.0, committed_step=-1, reason="x")
    event, seconds = told(run_config, silent, order)
    assert isinstance(event, StartFailed)
    assert event.errno == errno.ETIMEDOUT
    assert "no answer" in event.detail
    assert seconds < AT_ONCE_S
    gc.collect()  # the pipe of a process that nobody could wait for goes with its transport


def test_work_goes_on_for_as_long_as_its_directory_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_probe, "PATIENCE_S", 0.01)
    asked: list[None] = []

    async def answers(self: storage_probe.Question) -> None:
        asked.append(None)

    monkeypatch.setattr(storage_probe.Question, "ask", answers)

    async def work() -> str:
        while len(asked) < 3:
            await asyncio.sleep(0.01)
        return "done"

    assert asyncio.run(storage_probe.while_it_answers(work(), tmp_path)) == "done"


# The process that asks is left in the kernel.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_submission_does_not_wait_to_learn_how_long_saves_took(
    silent: Disk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(asking, "_LIMIT_S", 0.5)
    begun = time.monotonic()
    assert former_runs("a", "a-1", silent.root / "checkpoints") == FormerRuns()
    assert time.monotonic() - begun < AT_ONCE_S


def test_nobody_waits_for_a_warning_of_a_place_that_does_not_answer(
    run_config: RunConfig, silent: Disk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(shared_directory, "_ANSWER_S", 0.1)
    place = replace(run_config.checkpoint, directory=silent.root / "checkpoints")
    begun = time.monotonic()
    assert shared_directory.directory_warnings(replace(run_config, checkpoint=place)) == []
    assert time.monotonic() - begun < AT_ONCE_S


def test_a_submission_has_told_its_job_before_it_looks_for_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FAKE_SLURM", str(tmp_path))
    monkeypatch.setenv("PATH", f"{FAKE_BIN}:{os.environ['PATH']}")
    (tmp_path / "sbatch.out").write_text("Submitted batch job 4242\n")
    (tmp_path / "job.yaml").write_text("name: hi\ncommand: [echo]\n")

    def interrupted(*_: object) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(site, "warnings", interrupted)
    result = CliRunner().invoke(relight, ["submit", str(tmp_path / "job.yaml")])
    assert "is job 4242" in result.output
