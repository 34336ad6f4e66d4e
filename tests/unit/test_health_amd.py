"""The adapter to AMD's amdsmi, on a module that stands for it, and whose driver is asked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from types import ModuleType

import pytest
from health.roots import make_root

from relight.resilience.config import RunConfig
from relight.resilience.health.check import Candidate
from relight.resilience.health.gpu import driver, each, ecc, nvlink, retired, throttling
from relight.resilience.health.gpu.amd import open_driver
from relight.resilience.health.gpu.reading import (
    AMD,
    NVIDIA,
    Gpu,
    LibraryMissing,
    NoDriver,
    Reading,
)
from relight.resilience.health.result import Outcome

NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, UNKNOWN_ERROR = 2, 10, 34, 0xFFFFFFFF
MIB = 1024**2


class AmdSmiLibraryException(Exception):
    """As amdsmi's."""

    def __init__(self, code: int) -> None:
        super().__init__(f"amdsmi error {code}")
        self._code = code

    def get_error_code(self) -> int:
        return self._code


class Status(IntEnum):
    """As amdsmi's AmdSmiMemoryPageStatus."""

    RESERVED = 0
    PENDING = 1


def failing(code: int) -> Callable[..., object]:
    def fail(*_arguments: object) -> object:
        raise AmdSmiLibraryException(code)

    return fail


@pytest.fixture
def smi(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A board that answers everything, as amdsmi of ROCm 7 does."""
    module = ModuleType("amdsmi")
    violations = {f"active_{part}_thrm": False for part in ("socket", "vr", "hbm", "prochot")}
    answers: dict[str, object] = {
        "AmdSmiLibraryException": AmdSmiLibraryException,
        "amdsmi_init": lambda: None,
        "amdsmi_get_processor_handles": lambda: ["handle"],
        "amdsmi_get_gpu_driver_info": lambda _h: {"driver_version": "6.14.14"},
        "amdsmi_get_gpu_asic_info": lambda _h: {"asic_serial": "0xABC"},
        "amdsmi_get_gpu_device_uuid": lambda _h: "uuid-1",
        "amdsmi_get_gpu_total_ecc_count": lambda _h: {
            "correctable_count": 5,
            "uncorrectable_count": 0,
        },
        "amdsmi_get_gpu_bad_page_info": lambda _h: [
            {"status": Status.RESERVED},
            {"status": Status.PENDING},
        ],
        "amdsmi_get_violation_status": lambda _h: {**violations, "active_hbm_thrm": True},
        "amdsmi_get_power_cap_info": lambda _h: {
            "power_cap": 700_000_000,
            "default_power_cap": 750_000_000,
        },
        "amdsmi_get_gpu_vram_usage": lambda _h: {"vram_total": 196_592, "vram_used": 283},
        "amdsmi_get_gpu_process_list": lambda _h: [{"pid": 2**30}],
        "amdsmi_get_gpu_vbios_info": lambda _h: {"version": "022.040"},
        "amdsmi_get_gpu_xgmi_link_status": lambda _h: {"status": ["U"] * 6 + ["D", "X"]},
        "amdsmi_get_pcie_info": lambda _h: {
            "pcie_metric": {"pcie_width": 16},
            "pcie_static": {"max_pcie_width": 16},
        },
    }
    for name, answer in answers.items():
        setattr(module, name, answer)
    monkeypatch.setitem(sys.modules, "amdsmi", module)
    return module


def the_gpu() -> Gpu:
    (gpu,) = open_driver().gpus()
    return gpu


def test_every_reading(smi: ModuleType) -> None:
    gpu = the_gpu()
    known = {reading.value: gpu.read(reading) for reading in Reading}
    assert {name: number for name, number in known.items() if number is not None} == {
        "ecc_uncorrected": 0,
        "ecc_corrected": 5,
        "retired_double_bit": 2,
        "retired_single_bit": 0,
        "retired_pending": 1,
        "throttle_reasons": 0x40,
        "power_limit": 700,
        "power_default": 750,
        "memory_used": 283 * MIB,
        "processes": 1,
        "own_processes": 0,
        "nvlinks": 7,
        "nvlinks_down": 1,
        "pcie_width": 16,
        "pcie_width_max": 16,
    }


def test_driver_and_identity(smi: ModuleType) -> None:
    assert (open_driver().version(), open_driver().cuda_version()) == ("6.14.14", "none")
    assert (the_gpu().name, the_gpu().identity()) == ("GPU 0", "0xABC")
    setattr(smi, "amdsmi_get_gpu_asic_info", lambda _h: {"asic_serial": "N/A"})  # noqa: B010
    assert the_gpu().identity() == "uuid-1"


def fail_all(smi: ModuleType, code: int) -> None:
    for name in list(vars(smi)):
        if name.startswith("amdsmi_get_") and name != "amdsmi_get_processor_handles":
            setattr(smi, name, failing(code))


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION])
def test_what_is_not_supported_is_none(smi: ModuleType, code: int) -> None:
    fail_all(smi, code)
    gpu = the_gpu()
    left = {Reading.RETIRED_SINGLE_BIT: 0}
    assert all(gpu.read(reading) == left.get(reading) for reading in Reading)


def test_what_a_board_does_not_have_is_none(smi: ModuleType) -> None:
    nothing = {"power_cap": "N/A", "default_power_cap": "N/A"}
    setattr(smi, "amdsmi_get_power_cap_info", lambda _h: nothing)  # noqa: B010
    setattr(smi, "amdsmi_get_pcie_info", lambda _h: {"pcie_metric": "N/A"})  # noqa: B010
    setattr(smi, "amdsmi_get_gpu_bad_page_info", lambda _h: "No bad pages found.")  # noqa: B010
    gpu = the_gpu()
    assert gpu.read(Reading.POWER_LIMIT) is None
    assert gpu.read(Reading.PCIE_WIDTH) is None
    assert gpu.read(Reading.RETIRED_DOUBLE_BIT) == 0


def test_any_other_error_is_the_checks_and_not_the_boards(smi: ModuleType) -> None:
    fail_all(smi, UNKNOWN_ERROR)
    with pytest.raises(AmdSmiLibraryException):
        the_gpu().read(Reading.ECC_CORRECTED)


def test_without_a_driver_or_a_library(smi: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    setattr(smi, "amdsmi_init", failing(DRIVER_NOT_LOADED))  # noqa: B010
    with pytest.raises(NoDriver, match="no AMD driver"):
        open_driver()
    setattr(smi, "amdsmi_init", failing(UNKNOWN_ERROR))  # noqa: B010
    with pytest.raises(AmdSmiLibraryException):
        open_driver()
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(LibraryMissing, match="ROCm"):
        open_driver()


def test_the_checks_read_it(
    smi: ModuleType, monkeypatch: pytest.MonkeyPatch, run_config: RunConfig
) -> None:
    monkeypatch.setattr(each, "open_driver", open_driver)
    candidate = Candidate("n1", run_config, 0.0)
    assert ecc.CHECK.run(candidate).counts == {"corrected ECC errors of GPUs": 5}
    assert throttling.CHECK.run(candidate).evidence == "GPU 0: hardware thermal slowdown"
    assert retired.CHECK.run(candidate).outcome is Outcome.WARN
    down = nvlink.CHECK.run(candidate)
    assert (down.outcome, down.evidence) == (
        Outcome.FAIL_NODE,
        "GPU 0: 1 of 7 links to other GPUs are inactive",
    )


@pytest.mark.parametrize(
    ("paths", "asked"),
    [((), "nvml"), ((NVIDIA,), "nvml"), ((AMD,), "amd"), ((NVIDIA, AMD), "nvml")],
)
def test_whose_driver_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: tuple[str, ...], asked: str
) -> None:
    for name in ("nvml", "amd"):
        monkeypatch.setattr(getattr(driver, name), "open_driver", lambda name=name: name)
    make_root(tmp_path, dict.fromkeys((f"{path}/x" for path in paths), ""))
    assert str(driver.open_driver(tmp_path)) == asked
