"""The checks that need no process: good, bad, not carried out, nonsense."""

from __future__ import annotations

import dataclasses
import errno
import math
import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from relight.resilience.health import shm
from relight.resilience.health.check import Candidate, Finding
from relight.resilience.health.clock import check_clock
from relight.resilience.health.disk import AWAY_UNIT, check_disk
from relight.resilience.health.memory import check_memory
from relight.resilience.health.names import check_names
from relight.resilience.health.result import Outcome
from relight.resilience.health.shm import check_shm

GIB = 1024**3


def _directory(candidate: Candidate) -> Path:
    return candidate.config.checkpoint.directory


def _raising(number: int) -> Callable[..., int]:
    def fail(*_arguments: object, **_named: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("available_bytes", "outcome"),
    [
        (GIB, Outcome.PASS),
        (64 * 1024**2, Outcome.PASS),
        (64 * 1024**2 - 1, Outcome.FAIL_NODE),
        (0, Outcome.FAIL_NODE),
        (-1, Outcome.UNKNOWN),
        (3 * GIB, Outcome.UNKNOWN),
    ],
)
def test_memory_is_compared_with_what_is_asked(
    candidate: Candidate,
    monkeypatch: pytest.MonkeyPatch,
    available_bytes: int,
    outcome: Outcome,
) -> None:
    seen = SimpleNamespace(available=available_bytes, total=2 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: seen)
    assert check_memory(candidate).outcome is outcome


def test_each_node_looks_up_only_those_that_it_asks(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def look_up(name: str, _port: object) -> None:
        asked.append(name)
        if name == "n3":
            raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    peers = tuple(f"n{number}" for number in range(1000))
    finding = check_names(dataclasses.replace(candidate, peers=peers))
    assert (finding.outcome, asked) == (Outcome.WARN, ["n2", "n3", "n4"])
    assert finding.evidence == "1 of 3 names unknown: n3 (Name or service not known)"


def test_disk_makes_the_directory_and_leaves_nothing_in_it(candidate: Candidate) -> None:
    finding = check_disk(candidate)
    assert finding.outcome is Outcome.PASS
    assert finding.value is not None
    assert finding.value > 0
    assert list(_directory(candidate).iterdir()) == []


def test_disk_asks_for_room(candidate: Candidate) -> None:
    health = dataclasses.replace(candidate.config.health, min_free_disk_bytes=2**62)
    config = dataclasses.replace(candidate.config, health=health)
    finding = check_disk(dataclasses.replace(candidate, config=config))
    assert finding.outcome is Outcome.FAIL_JOB
    assert "MiB asked" in finding.evidence


@pytest.mark.parametrize(
    ("number", "outcome"),
    [
        (errno.ENOSPC, Outcome.FAIL_JOB),
        (errno.EROFS, Outcome.FAIL_NODE),
        (errno.ESTALE, Outcome.FAIL_NODE),
        (errno.EIO, Outcome.FAIL_NODE),
        (errno.ENOTCONN, Outcome.FAIL_NODE),
        (errno.EDQUOT, Outcome.FAIL_JOB),
        (errno.EACCES, Outcome.FAIL_JOB),
        (errno.ENOENT, Outcome.FAIL_JOB),
        (errno.ENOMEM, Outcome.UNKNOWN),
        (errno.EMFILE, Outcome.UNKNOWN),
    ],
)
@pytest.mark.parametrize("call", ["write", "fsync", "pread"])
def test_disk_says_whom_an_error_speaks_against(
    candidate: Candidate,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    number: int,
    outcome: Outcome,
) -> None:
    monkeypatch.setattr(os, call, _raising(number))
    finding = check_disk(candidate)
    assert finding.outcome is outcome
    assert os.strerror(number) in finding.evidence
    away = number in (errno.ESTALE, errno.EIO, errno.ENOTCONN)
    assert (finding.unit == AWAY_UNIT) is away
    assert list(_directory(candidate).iterdir()) == []


def test_disk_where_a_file_is_in_the_way(candidate: Candidate) -> None:
    _directory(candidate).write_text("not a directory")
    assert check_disk(candidate).outcome is Outcome.FAIL_JOB


@pytest.mark.parametrize(("there", "outcome"), [("", "FAIL_NODE"), ("readme", "FAIL_JOB")])
def test_disk_without_the_right_to_make_the_directory_may_be_unmounted(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch, there: str, outcome: str
) -> None:
    if there:
        _directory(candidate).with_name(there).touch()
    monkeypatch.setattr(os, "mkdir", _raising(errno.EACCES))
    assert check_disk(candidate).outcome is Outcome(outcome)


def test_disk_that_gives_back_other_bytes(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pread", lambda _fd, length, _offset: bytes(length))
    finding = check_disk(candidate)
    assert finding.outcome is Outcome.FAIL_NODE
    assert "other bytes" in finding.evidence


def test_disk_takes_over_the_probe_of_a_killed_check(candidate: Candidate) -> None:
    _directory(candidate).mkdir()
    left = _directory(candidate) / f".relight-preflight-{candidate.config.run_id}-n1"
    left.write_bytes(bytes(3 * 1024**2))
    assert check_disk(candidate).outcome is Outcome.PASS
    assert not left.exists()


def test_shm_of_this_machine(candidate: Candidate) -> None:
    finding = check_shm(candidate)
    assert finding.outcome is not Outcome.FAIL_NODE
    assert "free" in finding.evidence


def test_shm_low(candidate: Candidate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shm, "SHM", tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_bavail=1, f_frsize=4096))
    assert check_shm(candidate).outcome is Outcome.WARN


def test_shm_absent(candidate: Candidate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shm, "SHM", tmp_path / "none")
    assert check_shm(candidate).outcome is Outcome.WARN


def test_shm_that_takes_no_write(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shm, "SHM", tmp_path)
    monkeypatch.setattr(os, "open", _raising(errno.ENOSPC))
    assert check_shm(candidate).outcome is Outcome.FAIL_NODE


@pytest.mark.parametrize(
    ("offset_s", "outcome"),
    [
        (0.0, Outcome.PASS),
        (12.0, Outcome.PASS),  # a slow start
        (-1.0, Outcome.PASS),
        (-1.1, Outcome.WARN),
        (30.1, Outcome.WARN),
        (-1e9, Outcome.WARN),
        (math.nan, Outcome.UNKNOWN),
    ],
)
def test_clock_warns_and_never_excludes(
    candidate: Candidate, offset_s: float, outcome: Outcome
) -> None:
    finding = check_clock(dataclasses.replace(candidate, clock_offset_s=offset_s))
    assert finding.outcome is outcome


def test_a_finding_holds_only_values_that_a_file_can_hold() -> None:
    with pytest.raises(ValueError, match="the value is inf"):
        Finding(Outcome.PASS, "infinitely fast", math.inf)
