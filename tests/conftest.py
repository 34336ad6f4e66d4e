"""What all tests share: where they may run, and that nothing they start outlives them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

from relight.resilience.config import CheckpointConfig, RunConfig
from relight.resilience.health.check import Candidate

# The time that an example takes says more about the machine than about the code.
settings.register_profile("relight", deadline=None)
settings.load_profile("relight")

PATIENCE_S = 60.0  # what has been told to end may take this long, on a busy machine


# A shell ignores the one for what runs in its background, and nohup the other: so would all that
# tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine has not got: root on Debian for the mini cluster, a GPU."""
    missing = {}
    if os.geteuid() != 0 or not Path("/etc/debian_version").exists():
        missing["cluster"] = "the mini cluster needs root on Debian"
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        missing["gpu"] = "there is no GPU on this machine"
    for item in items:
        for marker, reason in missing.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def run_config(tmp_path: Path) -> RunConfig:
    """A run of one node in folders of its own."""
    return RunConfig(
        run_id="lm-0a1b2c",
        name="lm",
        run_dir=tmp_path / "run",
        command=("true",),
        working_dir=tmp_path,
        checkpoint=CheckpointConfig(directory=tmp_path / "checkpoints"),
    )


@pytest.fixture
def candidate(run_config: RunConfig) -> Candidate:
    """A node for that run."""
    return Candidate("n1", run_config, 0.0)


@pytest.fixture(autouse=True)
def _nothing_leaks() -> Iterator[None]:
    """Fail a test that leaves child processes, threads, pipes or sockets behind."""
    children, threads, channels = _children(), set(threading.enumerate()), _channels()
    yield
    deadline = time.monotonic() + PATIENCE_S
    _, left = psutil.wait_procs(list(_children() - children), timeout=PATIENCE_S)
    for thread in set(threading.enumerate()) - threads:
        thread.join(max(deadline - time.monotonic(), 0.0))
    leaks = []
    for child in left:
        with suppress(psutil.NoSuchProcess):  # it has ended since
            leaks.append(f"process {child.pid}: {child.cmdline()}")
    leaks += [f"thread {thread.name}" for thread in set(threading.enumerate()) - threads]
    leaks += [f"file descriptor {fd} of {target}" for fd, target in _channels() - channels]
    if leaks:
        pytest.fail("left behind: " + ", ".join(leaks))


def _children() -> set[psutil.Process]:
    # multiprocessing keeps one process for the life of the interpreter.
    tracker = getattr(resource_tracker._resource_tracker, "_pid", None)
    children = psutil.Process().children(recursive=True)
    return {child for child in children if child.pid != tracker}


def _channels() -> set[tuple[int, str]]:
    """Open pipes and sockets; open files are left to ResourceWarning, which is an error here."""
    tracker = getattr(resource_tracker._resource_tracker, "_fd", None)
    channels = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:  # that of the listing itself
            continue
        if target.startswith(("pipe:", "socket:")) and int(entry.name) != tracker:
            channels.add((int(entry.name), target))
    return channels
