"""Each check: on a good node, a bad one, where it cannot be carried out, on nonsense, and hanging.

``health.host_cases`` and ``health.gpu_cases`` hold the cases; one that is left out has its reason
there. What could not be looked at, or was not understood, never speaks against a node.
"""

from __future__ import annotations

import dataclasses
import re
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
from health.gpu_cases import ACTIVE_CASES, GPU_CASES, XID, logged, with_boards
from health.host_cases import (
    HOST_CASES,
    df,
    errors,
    in_temporary,
    limits,
    make_silent,
    on_lustre,
    pinning_little,
    shared_memory,
    space,
)
from health.roots import infiniband
from health.stage import Arrange, Cases, stage_in, with_files

from relight.resilience.config import RunConfig
from relight.resilience.health import software
from relight.resilience.health.active import boards
from relight.resilience.health.catalogue import ACTIVE, CHECKS
from relight.resilience.health.check import Candidate, Check, Limit
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
    _nobodys_job(monkeypatch)
    for case in ("good", "bad", "silent", "nonsense"):
        arrange: Arrange | str = getattr(CASES[check.name], case)
        if isinstance(arrange, str):
            continue
        with monkeypatch.context() as patch:
            stage = stage_in(tmp_path / case, run_config, patch)
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


def _nobodys_job(patch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_MEM_PER_NODE", "SLURM_GPUS_ON_NODE", "CUDA_VISIBLE_DEVICES"):
        patch.delenv(name, raising=False)
    patch.setattr(time, "sleep", lambda _s: None)


# What goes beyond a limit where the bad case does not.
BEYOND: dict[str, Arrange] = {
    "memory_errors.uncorrected": errors("99"),
    "memory_errors.corrected": errors("0", "9999"),
    "ulimits.open_files": limits(7, 2**23),
    "ulimits.locked_bytes": pinning_little,
    "shm.free_bytes": shared_memory(space(bavail=1, frsize=4096)),
    "temporary.free_fraction": in_temporary(space(blocks=100, bavail=4)),
    "lustre_space.target_used": on_lustre({}, df(99)),
    "infiniband.link_downed": with_files(infiniband(downed=9)),
    "gpu_xid.program_hours": logged(XID.format(31)),
    "gpu_ecc.uncorrected": with_boards(ecc_uncorrected=9),
    "gpu_ecc.uncorrected_sram_ever": with_boards(ecc_uncorrected_sram_ever=9),
    "gpu_ecc.corrected": with_boards(ecc_corrected=10**8),
    "gpu_remapping.uncorrected": with_boards(remap_uncorrected=999),
    "gpu_retired.pages": with_boards(retired_double_bit=99),
    "gpu_occupied.memory_bytes": with_boards(memory_used=2**40),
}
LIMITS = [(check, limit) for check in ALL for limit in check.limits]


@pytest.mark.parametrize(("check", "limit"), LIMITS, ids=lambda one: one.name)
def test_what_speaks_against_a_node_names_the_limit_that_counts(
    check: Check,
    limit: Limit,
    run_config: RunConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _nobodys_job(monkeypatch)
    arrange = BEYOND.get(f"{limit.check}.{limit.name}", CASES[check.name].bad)
    assert not isinstance(arrange, str)
    counts = limit.default * 1.04 or 0.5
    stage = stage_in(tmp_path / "it", run_config, monkeypatch)
    stage.health(limits={limit.check: {limit.name: counts}})
    arrange(stage)
    finding = _ask(check, stage.candidate)
    forms = (f"{counts:.12g}", f"{counts:.0%}", f"{counts:.1%}", f"{counts / 2**10:.0f}")
    named = "|".join(map(re.escape, (*forms, f"{counts / 2**20:.0f}")))
    assert finding.outcome in (Outcome.WARN, *AGAINST)
    assert re.search(rf"(?<![\d.])(?:{named})(?![\d.]\d)", finding.evidence), finding.evidence


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
