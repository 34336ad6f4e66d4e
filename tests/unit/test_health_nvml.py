"""The adapter to NVML, on a module that stands for nvidia-ml-py."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest

from relight.resilience.health.gpu.nvml import open_driver
from relight.resilience.health.gpu.reading import (
    DriverFault,
    Gpu,
    GpuLost,
    LibraryMissing,
    NoDriver,
    Reading,
)

NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, TIMEOUT, LOST, UNKNOWN = 3, 4, 9, 10, 15, 999
RESET_REQUIRED, BLOCKED, OTHER_VERSION = 16, 17, 18


class NVMLError(Exception):
    """As nvidia-ml-py's."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


def failing(value: int) -> Callable[..., object]:
    def fail(*_arguments: object) -> object:
        raise NVMLError(value)

    return fail


def field_value(value: int, code: int = 0) -> object:
    return SimpleNamespace(nvmlReturn=code, value=SimpleNamespace(uiVal=value))


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A board that answers everything, under the names of nvidia-ml-py 13."""
    module = ModuleType("pynvml")
    answers: dict[str, object] = {
        "NVMLError": NVMLError,
        "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": 230,
        "NVML_MEMORY_ERROR_TYPE_CORRECTED": 0,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "NVML_AGGREGATE_ECC": 1,
        "NVML_MEMORY_LOCATION_SRAM": 7,
        "NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR": 1,
        "NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS": 0,
        "NVML_CLOCK_SM": 1,
        "NVML_NVLINK_MAX_LINKS": 18,
        "nvmlInit": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "570.1",
        "nvmlSystemGetCudaDriverVersion": lambda: 12080,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: f"handle {index}",
        "nvmlDeviceGetSerial": lambda _h: "S0",
        "nvmlDeviceGetUUID": lambda _h: "GPU-1",
        "nvmlDeviceGetFieldValues": lambda _h, ids: [field_value(max(ids[0] - 230, 0))],
        **{
            f"NVML_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL": 230 + number
            for number, kind in enumerate(("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY"), 1)
        },
        "nvmlDeviceGetVbiosVersion": lambda _h: "96.00",
        "nvmlDeviceGetApplicationsClock": lambda _h, clock: 1700 * clock,
        "nvmlDeviceGetDefaultApplicationsClock": lambda _h, clock: 1800 * clock,
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda _h: 3,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda _h: 5,
        "nvmlDeviceGetPersistenceMode": lambda _h: 1,
        "nvmlDeviceGetTotalEccErrors": lambda _h, kind, since: 10 * kind + since,
        "nvmlDeviceGetMemoryErrorCounter": lambda _h, kind, since, where: 10 * where + since,
        "nvmlDeviceGetRemappedRows": lambda _h: (1, 2, 0, 1),
        "nvmlDeviceGetRetiredPages": lambda _h, cause: [7] * (cause + 1),
        "nvmlDeviceGetRetiredPagesPendingStatus": lambda _h: 0,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _h: 0x40,
        "nvmlDeviceGetMaxClockInfo": lambda _h, clock: 1980 * clock,
        "nvmlDeviceGetPowerManagementLimit": lambda _h: 699_500,
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda _h: 700_000,
        "nvmlDeviceGetMemoryInfo": lambda _h: SimpleNamespace(used=5),
        "nvmlDeviceGetComputeRunningProcesses": lambda _h: [
            SimpleNamespace(pid=2**30),
            SimpleNamespace(pid=os.getpid()),
        ],
        "nvmlDeviceGetNvLinkState": lambda _h, link: int(link != 3),
        "nvmlDeviceGetCurrPcieLinkWidth": lambda _h: 8,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda _h: 16,
        "c_nvmlGpuFabricInfo_t": lambda: SimpleNamespace(state=0, status=1),
        "byref": lambda info: info,
        "nvmlDeviceGetGpuFabricInfo": lambda _h, info: setattr(info, "state", 3),
        "nvmlDeviceGetEccMode": lambda _h: [1, 0],
        "nvmlDeviceGetMigMode": lambda _h: [0, 1],
        "nvmlDeviceGetComputeMode": lambda _h: 2,
    }
    for name, answer in answers.items():
        setattr(module, name, answer)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def the_gpu() -> Gpu:
    (gpu,) = open_driver().gpus()
    return gpu


def test_every_reading(nvml: ModuleType) -> None:
    gpu = the_gpu()
    assert {reading.value: gpu.read(reading) for reading in Reading} == {
        "recovery_action": 0,
        "ecc_mode": 1,
        "ecc_uncorrected": 10,
        "ecc_uncorrected_sram": 70,
        "ecc_uncorrected_sram_ever": 71,
        "ecc_corrected": 0,
        "remap_uncorrected": 2,
        "remap_pending": 0,
        "remap_failed": 1,
        "retired_double_bit": 2,
        "retired_single_bit": 1,
        "retired_pending": 0,
        "throttle_reasons": 0x40,
        "clock_max": 1980,
        "clock_set": 1700,
        "clock_default": 1800,
        "power_limit": 699,
        "power_default": 700,
        "memory_used": 5,
        "processes": 2,
        "own_processes": 0,
        "nvlinks": 18,
        "nvlinks_down": 1,
        "nvlink_errors": 1 + 2 + 3 + 4,
        "pcie_generation": 3,
        "pcie_generation_max": 5,
        "pcie_width": 8,
        "pcie_width_max": 16,
        "fabric_state": 3,
        "fabric_status": 1,
        "mig_mode": 0,
        "compute_mode": 2,
        "persistence_mode": 1,
    }
    assert gpu.firmware() == "96.00"


def test_driver_and_identity(nvml: ModuleType) -> None:
    driver = open_driver()
    assert (driver.version(), driver.cuda_version()) == ("570.1", "12.8")
    assert (the_gpu().name, the_gpu().identity()) == ("GPU 0", "S0")


def test_a_board_without_a_serial_number_has_a_uuid(nvml: ModuleType) -> None:
    setattr(nvml, "nvmlDeviceGetSerial", failing(NOT_SUPPORTED))  # noqa: B010
    assert the_gpu().identity() == "GPU-1"


def fail_all(nvml: ModuleType, value: int) -> None:
    for name in list(vars(nvml)):
        if name.startswith("nvmlDeviceGet") and name not in (
            "nvmlDeviceGetCount",
            "nvmlDeviceGetHandleByIndex",
        ):
            setattr(nvml, name, failing(value))


def test_what_is_not_supported_is_none(nvml: ModuleType) -> None:
    fail_all(nvml, NOT_SUPPORTED)
    gpu = the_gpu()
    links = {Reading.NVLINKS: 0, Reading.NVLINKS_DOWN: 0}
    assert all(gpu.read(reading) == links.get(reading) for reading in Reading)


def test_a_field_may_say_by_itself_that_it_is_not_supported(nvml: ModuleType) -> None:
    setattr(nvml, "nvmlDeviceGetFieldValues", lambda _h, _ids: [field_value(0, 3)])  # noqa: B010
    assert the_gpu().read(Reading.RECOVERY_ACTION) is None


@pytest.mark.parametrize("reading", Reading)
def test_a_lost_board(nvml: ModuleType, reading: Reading) -> None:
    fail_all(nvml, LOST)
    with pytest.raises(GpuLost, match="GPU 0: NVML error 15"):
        the_gpu().read(reading)


@pytest.mark.parametrize("kept", [NO_PERMISSION, BLOCKED])
def test_boards_of_other_jobs_are_not_ours(nvml: ModuleType, kept: int) -> None:
    def open_board(index: int) -> object:
        if index < 2:
            raise NVMLError(kept)
        return f"handle {index}"

    setattr(nvml, "nvmlDeviceGetCount", lambda: 4)  # noqa: B010
    setattr(nvml, "nvmlDeviceGetHandleByIndex", open_board)  # noqa: B010
    assert [gpu.name for gpu in open_driver().gpus()] == ["GPU 0", "GPU 1"]
    setattr(nvml, "nvmlInit", failing(kept))  # noqa: B010
    with pytest.raises(NVMLError):
        open_driver()


def test_any_other_error_is_the_checks_and_not_the_boards(nvml: ModuleType) -> None:
    fail_all(nvml, UNKNOWN)
    with pytest.raises(NVMLError, match="999"):
        the_gpu().read(Reading.ECC_MODE)


@pytest.mark.parametrize(
    ("value", "error"),
    [(LOST, GpuLost), (RESET_REQUIRED, GpuLost), (TIMEOUT, NVMLError), (UNKNOWN, NVMLError)],
)
def test_a_board_that_cannot_be_opened(
    nvml: ModuleType, value: int, error: type[Exception]
) -> None:
    setattr(nvml, "nvmlDeviceGetHandleByIndex", failing(value))  # noqa: B010
    with pytest.raises(error, match=f"NVML error {value}"):
        open_driver().gpus()


@pytest.mark.parametrize(
    ("value", "error"),
    [
        *((DRIVER_NOT_LOADED, NoDriver), (12, NoDriver)),
        *((UNKNOWN, DriverFault), (OTHER_VERSION, DriverFault), (LOST, GpuLost)),
    ],
)
def test_a_driver_that_does_not_start(nvml: ModuleType, value: int, error: type[Exception]) -> None:
    setattr(nvml, "nvmlInit", failing(value))  # noqa: B010
    with pytest.raises(error, match=f"NVML error {value}"):
        open_driver()


def test_without_nvidia_ml_py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(LibraryMissing, match=r"relight\[gpu\]"):
        open_driver()
