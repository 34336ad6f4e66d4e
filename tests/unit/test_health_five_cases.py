"""Each check: on a good node, a bad one, where it cannot be carried out, on nonsense, and hanging.

``health.host_cases`` and ``health.gpu_cases`` hold the cases; one that is left out has its reason
there. What could not be looked at, or was not understood, never speaks against a node.
"""

from __future__ import annotations

import dataclasses
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from health.gpu_cases import ACTIVE_CASES, GPU_CASES
from health.host_cases import HOST_CASES, make_silent
from health.stage import Arrange, Cases, Stage

from relight.resilience.config import RunConfig
from relight.resilience.health import software
from relight.resilience.health.active import boards
from relight.resilience.health.catalogue import ACTIVE, CHECKS
from relight.resilience.health.check import Candidate, Check
from relight.resilience.health.gpu import each
from relight.resilience.health.isolate import _ask, run_checks
from relight.resilience.health.result import Outcome

ALL = (*CHECKS, *ACTIVE)
CASES: dict[str, Cases] = {**HOST_CASES, **GPU_CASES, **ACTIVE_CASES}
AGAINST = (Outcome.FAIL_NODE, Outcome.FAIL_JOB)
HANGS_S = 0.5
LONG_S = 60.0


def test_every_check_has_its_five_cases() -> None:
    assert sorted(CASES) == sorted(check.name for check in ALL)
    reasons = [
        getattr(cases, field.name)
        for cases in CASES.values()
        for field in dataclasses.fields(cases)
    ]
    assert all(len(reason) > 20 for reason in reasons if isinstance(reason, str))


@pytest.mark.parametrize("check", ALL, ids=lambda check: check.name)
def test_four_cases(
    check: Check, run_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_MEM_PER_NODE", "SLURM_GPUS_ON_NODE", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(time, "sleep", lambda _s: None)
    for case in ("good", "bad", "silent", "nonsense"):
        arrange: Arrange | str = getattr(CASES[check.name], case)
        if isinstance(arrange, str):
            continue
        folder = tmp_path / case
        (folder / "root").mkdir(parents=True)
        saves = dataclasses.replace(run_config.checkpoint, directory=folder / "checkpoints")
        config = dataclasses.replace(run_config, checkpoint=saves)
        with monkeypatch.context() as patch:
            candidate = Candidate("n1", config, 0.0, (), folder / "root")
            stage = Stage(candidate, patch, folder / "bin")
            arrange(stage)
            finding = _ask(check, stage.candidate)
        seen = (check.name, case, finding.outcome, finding.evidence)
        judged = "not judged" not in finding.evidence
        if case == "good":
            assert (finding.outcome, judged) == (Outcome.PASS, True), seen
        elif case == "bad":
            assert finding.outcome is check.worst, seen
        elif case == "silent":
            assert finding.outcome is Outcome.UNKNOWN or not judged, seen
        else:
            assert finding.outcome not in AGAINST, seen


def hang(*_arguments: object, **_named: object) -> None:
    threading.Event().wait()


BLOCKING = (
    *((psutil, "virtual_memory"), (subprocess, "run"), (subprocess, "Popen"), (Path, "exists")),
    *((tempfile, "TemporaryFile"), (each, "open_driver"), (boards, "find_boards")),
    *((socket, "getaddrinfo"), (software, "version"), (Path, "mkdir")),
    *((np.random, "default_rng"), (np, "arange"), (shutil, "which")),
)


def test_all_hang(run_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing answers: each is ended after its own time, all at once, and counts as declared."""
    make_silent(tmp_path / "root")
    health = dataclasses.replace(run_config.health, mounts=("/x",), site_command="cat")
    config = dataclasses.replace(run_config, health=health)
    candidate = Candidate("n1", config, 0.0, ("n1", "n2"), tmp_path / "root")
    hanging = [
        dataclasses.replace(check, timeout_s=HANGS_S)
        for check in ALL
        if CASES[check.name].hangs is None
    ]
    with monkeypatch.context() as patch:
        patch.setenv("SLURM_MEM_PER_NODE", "100")
        for target, name in BLOCKING:
            patch.setattr(target, name, hang)
        results = run_checks(hanging, candidate, LONG_S)
    assert [(r.check, r.evidence) for r in results if "no answer in" not in r.evidence] == []
    assert [r.outcome for r in results] == [check.silence for check in hanging]
