"""Checks of GPUs, on boards that read as the test wants: good, bad, not supported, lost."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from health.gpus import GOOD, FakeDriver, FakeGpu
from health.roots import make_root

from relight.resilience.config import RunConfig
from relight.resilience.health.check import Candidate, Check
from relight.resilience.health.gpu import (
    clocks,
    each,
    ecc,
    fabric,
    loaded,
    modes,
    nvlink,
    nvlink_errors,
    occupied,
    pcie,
    power,
    present,
    recovery,
    remapping,
    retired,
    smi,
    throttling,
)
from relight.resilience.health.gpu.own_processes import of_this_job
from relight.resilience.health.gpu.reading import (
    Driver,
    DriverFault,
    Gpu,
    GpuLost,
    LibraryMissing,
    NoDriver,
    Reading,
)
from relight.resilience.health.result import Outcome
from relight.resilience.ledger.faults import Fault

PASS, WARN, FAIL_NODE, _, UNKNOWN = Outcome
BUS = "sys/bus/pci/devices/0000:3b:00.0"
EACH = (
    *(recovery, ecc, remapping, retired, throttling, power, clocks, nvlink_errors),
    *(occupied, nvlink, pcie, fabric, modes),
)

LOST = "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error\n"
LISTED = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n"

Install = Callable[[Sequence[Gpu]], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def boards(gpus: Sequence[Gpu]) -> None:
        monkeypatch.setattr(each, "open_driver", lambda: FakeDriver(gpus))

    monkeypatch.setattr(occupied, "PATIENCE_S", 0.0)
    return boards


@pytest.fixture
def candidate(run_config: RunConfig, tmp_path: Path) -> Candidate:
    return Candidate("n1", dataclasses.replace(run_config, gpus_per_node=2), 0.0, (), tmp_path)


def boards(**changes: int) -> list[FakeGpu]:
    """A good board, and one with other readings."""
    readings = {**GOOD, **{Reading(name): value for name, value in changes.items()}}
    return [FakeGpu(), FakeGpu("GPU 1", "S1", readings)]


@pytest.mark.parametrize("subject", EACH)
def test_good_boards(install: Install, candidate: Candidate, subject: object) -> None:
    install(boards())
    check: Check = subject.CHECK  # type: ignore[attr-defined]
    assert check.run(candidate).outcome is PASS


@pytest.mark.parametrize("subject", EACH)
def test_what_a_board_does_not_have_is_not_judged(
    install: Install, candidate: Candidate, subject: object
) -> None:
    install([FakeGpu(readings={})])
    check: Check = subject.CHECK  # type: ignore[attr-defined]
    finding = check.run(candidate)
    assert (finding.outcome, "not judged" in finding.evidence) == (PASS, True)


@pytest.mark.parametrize("subject", EACH)
def test_a_lost_board_is_bad_whatever_the_question(
    install: Install, candidate: Candidate, subject: object
) -> None:
    install([FakeGpu(), FakeGpu("GPU 1", lost=True)])
    check: Check = subject.CHECK  # type: ignore[attr-defined]
    finding = check.run(candidate)
    assert (finding.outcome, finding.fault) == (FAIL_NODE, Fault.HARDWARE)
    assert finding.evidence == "GPU 1: GPU is lost"


@pytest.mark.parametrize(
    ("check", "changes", "outcome", "part"),
    [
        (recovery.CHECK, {"recovery_action": 1}, FAIL_NODE, "reset the GPU"),
        (recovery.CHECK, {"recovery_action": 2}, FAIL_NODE, "reboot the node"),
        (recovery.CHECK, {"recovery_action": 99}, FAIL_NODE, "action 99"),
        (ecc.CHECK, {"ecc_uncorrected": 1}, FAIL_NODE, "1 uncorrected"),
        (ecc.CHECK, {"ecc_uncorrected": 1, "remap_pending": 1}, WARN, "1 uncorrected errors"),
        *(
            (ecc.CHECK, {"ecc_uncorrected": 1, "remap_pending": 1, more: 1}, FAIL_NODE, "1 uncorr")
            for more in ("remap_failed", "ecc_uncorrected_sram")
        ),
        (ecc.CHECK, {"ecc_uncorrected_sram_ever": 4}, PASS, "usual"),
        (ecc.CHECK, {"ecc_uncorrected_sram_ever": 5}, FAIL_NODE, "5 uncorrected SRAM"),
        (ecc.CHECK, {"ecc_corrected": 20_000_001}, WARN, "corrected"),
        (remapping.CHECK, {"remap_failed": 1}, FAIL_NODE, "replacement"),
        (remapping.CHECK, {"remap_pending": 1}, WARN, "waits for a reset"),
        (remapping.CHECK, {"remap_uncorrected": 512}, PASS, "0 rows"),
        (remapping.CHECK, {"remap_uncorrected": 513}, FAIL_NODE, "513 rows"),
        (retired.CHECK, {"retired_double_bit": 30, "retired_single_bit": 30}, FAIL_NODE, "60"),
        (retired.CHECK, {"retired_single_bit": 59}, PASS, "retired"),
        (retired.CHECK, {"retired_pending": 1}, WARN, "reboot"),
        (throttling.CHECK, {"throttle_reasons": 0x4}, PASS, "not throttled"),
        (throttling.CHECK, {"throttle_reasons": 0x48}, WARN, "hardware slowdown, hardware thermal"),
        (clocks.CHECK, {"clock_set": 1950}, PASS, "1950 of 1980"),
        (clocks.CHECK, {"clock_set": 1949}, WARN, "set to 1949 of 1980 MHz"),
        (power.CHECK, {"power_limit": 690}, PASS, "700 W"),
        (power.CHECK, {"power_limit": 500}, WARN, "power limit 500 W of 700 W"),
        (occupied.CHECK, {"processes": 1}, FAIL_NODE, "1 process"),
        (occupied.CHECK, {"memory_used": 40 * 1024**3}, FAIL_NODE, "40960 MiB"),
        (nvlink.CHECK, {"nvlinks_down": 1}, FAIL_NODE, "1 of 18"),
        (nvlink.CHECK, {"nvlinks_down": 18}, WARN, "none of 18"),
        (nvlink.CHECK, {"nvlinks": 0}, PASS, "18 links"),
        (pcie.CHECK, {"pcie_width": 8}, FAIL_NODE, "8 of 16"),
        (pcie.CHECK, {"throttle_reasons": 0}, WARN, "PCIe generation 1 of 5 under load"),
        (pcie.CHECK, {"throttle_reasons": 0, "pcie_generation": 5}, PASS, "16 of 16"),
        (occupied.CHECK, {"memory_used": 40 * 1024**3, "own_processes": 1}, PASS, "of this job"),
        (fabric.CHECK, {"fabric_state": 2}, FAIL_NODE, "in progress"),
        (fabric.CHECK, {"fabric_status": 999}, FAIL_NODE, "status 999"),
        (fabric.CHECK, {"fabric_state": 0}, PASS, "completed"),
        (modes.CHECK, {"compute_mode": 2}, FAIL_NODE, "prohibited"),
        (modes.CHECK, {"mig_mode": 1, "ecc_mode": 0}, WARN, "split (MIG), ECC is off"),
        (modes.CHECK, {"persistence_mode": 0}, WARN, "persistence is off"),
    ],
)
def test_bad_boards(
    install: Install,
    candidate: Candidate,
    check: Check,
    changes: dict[str, int],
    outcome: Outcome,
    part: str,
) -> None:
    install(boards(**changes))
    finding = check.run(candidate)
    assert (finding.outcome, part in finding.evidence) == (outcome, True), finding
    if outcome is not PASS:
        assert finding.evidence.startswith("GPU 1: ")


def test_all_boards_are_there(install: Install, candidate: Candidate) -> None:
    install(boards())
    finding = present.CHECK.run(candidate)
    assert (finding.outcome, finding.value) == (PASS, 2.0)
    assert finding.facts == {
        "gpu serials": "S0 S1",
        "gpu count": "2",
        "gpu driver": "570.124.06",
        "cuda": "12.8",
        "gpu vbios": "96.00.61.00.01",
        "gpu clock": "1980",
        "gpu power limit": "700",
    }


def test_a_board_is_missing(install: Install, candidate: Candidate) -> None:
    install([FakeGpu()])
    finding = present.CHECK.run(candidate)
    assert (finding.outcome, "1 GPUs, 2 asked" in finding.evidence) == (FAIL_NODE, True)


def test_what_slurm_has_given_counts(
    install: Install, candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "3")
    install(boards())
    assert "2 GPUs, 3 asked" in present.CHECK.run(candidate).evidence
    assert present.CHECK.run(candidate).outcome is FAIL_NODE
    install(boards(mig_mode=1))  # Slurm counts their parts
    assert present.CHECK.run(candidate).outcome is PASS


@pytest.mark.parametrize(
    ("given", "files", "outcome", "part"),
    [
        ("", {}, PASS, "not judged"),
        ("2", {"proc/driver/nvidia/version": "570"}, PASS, "a driver is loaded"),
        ("2", {f"{BUS}/vendor": "0x10de\n", f"{BUS}/class": "0x030200\n"}, FAIL_NODE, "3b:00.0"),
        ("", {f"{BUS}/vendor": "0x10de\n", f"{BUS}/class": "0x030200\n"}, PASS, "not judged"),
        ("2", {f"{BUS}/vendor": "0x10de\n", f"{BUS}/class": "0x020000\n"}, WARN, "none is seen"),
        ("2", {f"{BUS}/vendor": "nonsense", f"{BUS}/class": "\x00"}, WARN, "none is seen"),
    ],
)
def test_boards_without_a_driver(
    candidate: Candidate,
    monkeypatch: pytest.MonkeyPatch,
    given: str,
    files: dict[str, str],
    outcome: Outcome,
    part: str,
) -> None:
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", given)
    make_root(candidate.root, files)
    finding = loaded.CHECK.run(candidate)
    assert (finding.outcome, part in finding.evidence) == (outcome, True), finding


def test_a_gpu_that_another_job_has_may_be_occupied(
    install: Install, candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(boards(processes=1))
    for given, outcome in (("0", PASS), ("0,1", FAIL_NODE), ("GPU-4c1f", FAIL_NODE)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        assert occupied.CHECK.run(candidate).outcome is outcome


def test_a_node_full_of_occupied_boards_is_told_in_time(
    install: Install, candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda s: clock.append(clock.pop() + s))
    monkeypatch.setattr(occupied, "PATIENCE_S", 5.0)
    busy = {**GOOD, Reading.PROCESSES: 1}
    install([FakeGpu(f"GPU {number}", readings=busy) for number in range(8)])
    finding = occupied.CHECK.run(candidate)
    assert (finding.outcome, "GPU 0, GPU 1" in finding.evidence) == (FAIL_NODE, True)
    assert clock[0] <= occupied.CHECK.timeout_s / 2, "it would be ended, and say nothing"


def test_whose_process_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid, job in ((7, "12"), (8, "123"), (9, "12")):
        make_root(tmp_path, {f"{pid}/environ": f"HOME=/root\0SLURM_JOB_ID={job}\0"})
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert of_this_job([7, 8, 9, 10], tmp_path) == 0
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert of_this_job([7, 8, 9, 10], tmp_path) == 2


def test_errors_of_links_that_grow(
    install: Install, candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = boards()
    install([first, second])
    later = {**GOOD, Reading.NVLINK_ERRORS: 9999}
    monkeypatch.setattr(time, "sleep", lambda _s: setattr(second, "readings", later))
    finding = nvlink_errors.CHECK.run(candidate)
    assert (finding.outcome, "GPU 1 grows by" in finding.evidence) == (WARN, True)
    assert finding.counts == {"errors of NVLink": 10006}


@pytest.mark.parametrize(
    ("error", "of_present", "of_others", "fault"),
    [
        (NoDriver("none"), PASS, PASS, None),
        (LibraryMissing("pip install"), UNKNOWN, PASS, None),
        (DriverFault("other version"), FAIL_NODE, FAIL_NODE, Fault.CONDITION),
        (GpuLost("reset required"), FAIL_NODE, FAIL_NODE, Fault.HARDWARE),
    ],
)
def test_a_driver_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
    candidate: Candidate,
    error: Exception,
    of_present: Outcome,
    of_others: Outcome,
    fault: Fault | None,
) -> None:
    def fail() -> Driver:
        raise error

    monkeypatch.setattr(each, "open_driver", fail)
    assert present.CHECK.run(candidate).outcome is of_present
    found = ecc.CHECK.run(candidate)
    assert (found.outcome, found.fault) == (of_others, fault)


def test_counters_whose_growth_is_a_sign(install: Install, candidate: Candidate) -> None:
    install(boards(ecc_corrected=30, remap_uncorrected=2))
    assert ecc.CHECK.run(candidate).counts == {"corrected ECC errors of GPUs": 42}
    assert remapping.CHECK.run(candidate).counts == {"remapped rows of GPUs": 2}


@pytest.mark.parametrize(
    ("code", "said", "asked", "outcome"),
    [
        (0, LISTED * 2, 2, PASS),
        (0, LISTED * 7, 8, FAIL_NODE),
        (0, LISTED + "  MIG 1g.10gb     Device  0: (UUID: MIG-1)\n" * 7, 7, PASS),
        (0, LISTED + LOST, 1, FAIL_NODE),
        (0, LISTED + LOST.replace("Unknown Error", "Insufficient Permissions"), 1, PASS),
        (14, LISTED, 1, FAIL_NODE),
        (4, "Insufficient Permissions\n", 8, UNKNOWN),
        (0, "No devices were found\n", 0, UNKNOWN),
        (6, "No devices were found\n", 8, FAIL_NODE),
        (0, "", 8, UNKNOWN),
    ],
)
def test_what_nvidia_smi_says(code: int, said: str, asked: int, outcome: Outcome) -> None:
    assert smi.judge_smi(code, said, asked).outcome is outcome
