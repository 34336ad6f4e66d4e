"""Rates of disks, processor and memory: what is measured, and where it is not compared."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import psutil
import pytest
from health.gpu_cases import do_little

from relight.resilience.health.active import disk_rate, memory_rate, product, scratch_rate
from relight.resilience.health.active.whole_node import judge_share
from relight.resilience.health.check import Candidate, Check
from relight.resilience.health.result import Outcome
from relight.resilience.ledger.faults import Fault


@pytest.fixture(autouse=True)
def _little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    do_little(monkeypatch)


def test_a_disk_that_fails(candidate: Candidate, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    assert disk_rate.CHECK.run(candidate).outcome is Outcome.FAIL_NODE


def test_a_disk_that_gives_back_other_bytes(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    held: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: held.append(os.pwrite(fd, b"x", 7)))
    finding = disk_rate.CHECK.run(candidate)
    assert (finding.outcome, finding.fault, held) == (Outcome.FAIL_NODE, Fault.HARDWARE, [1])


def test_one_slow_storage_target_does_not_make_a_slow_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, fsync_s = [0.0], iter([9.0, 0.5, 1.0])

    def takes(seconds: float) -> bool:
        clock[0] += seconds
        return True

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(os, "fsync", lambda _fd: takes(next(fsync_s)))
    monkeypatch.setattr(disk_rate, "_gives_back", lambda *_: takes(1.0))
    assert disk_rate.write_and_read(tmp_path).value == disk_rate.FILE_BYTES / 0.5 / 1e6


@pytest.mark.parametrize(
    ("given", "allowed", "cores", "threads", "shared"),
    [
        (128, 128, 64, 128, False),
        (64, 128, 64, 128, False),  # CPUs of this site are cores
        (64, 64, 64, 128, True),
        (32, 64, 64, 128, True),  # half of the cores, with their threads
        (60, 60, 64, 64, False),  # some are kept for the system
        (8, 64, 64, 64, True),
    ],
)
def test_who_has_the_node_to_himself(
    given: int, allowed: int, cores: int, threads: int, shared: bool
) -> None:
    assert (judge_share(given, allowed, cores, threads) is not None) is shared


@pytest.mark.parametrize("subject", [product, memory_rate])
def test_rates_of_a_shared_node_are_not_compared(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch, subject: object
) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 64)
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "4")
    check: Check = subject.CHECK  # type: ignore[attr-defined]
    finding = check.run(candidate)
    assert (finding.outcome, finding.value) == (Outcome.PASS, None)
    assert "the job has 4 of 64 CPUs" in finding.evidence


def test_a_scratch_disk_is_tested_where_it_is_another_one(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert "not judged" in scratch_rate.CHECK.run(candidate).evidence
    monkeypatch.setenv("TMPDIR", "/dev/shm")
    assert "written" in scratch_rate.CHECK.run(candidate).evidence
