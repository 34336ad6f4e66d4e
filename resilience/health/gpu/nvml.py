"""GPUs through NVML (``nvidia-ml-py``, the extra ``gpu``), imported where there is a driver only.

By the "NVML API Reference", nvmlReturn_t. What is not supported is None. What says that the board
is gone, or must be reset, raises. Any other error of a board is the check's, not the board's: 10 is
a timeout, 999 an error inside the driver. A board that the operating system or a cgroup keeps from
this job (4, 17) is not ours. A driver that does not start for another reason, as 18, whose library
is of another version, is a condition: it may have been updated, and is loaded again by a reboot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from types import ModuleType
from typing import Final, TypeVar

from .own_processes import of_this_job
from .reading import Driver, DriverFault, Gpu, GpuLost, LibraryMissing, NoDriver, Reading

# Not by this GPU, this user, or this driver (which is older than the function).
_NOT_SUPPORTED: Final = frozenset({2, 3, 4, 6, 13, 25, 26})
_LOST: Final = frozenset({8, 11, 14, 15, 16})  # power, interrupts, infoROM, bus, reset required
_ABSENT: Final = frozenset({9, 12})  # driver not loaded, library not found
_NOT_OURS: Final = frozenset({4, 17})  # no permission, blocked by the operating system or a cgroup

T = TypeVar("T")
Read = Callable[[ModuleType, object], int]


def open_driver() -> Driver:
    """The driver of this node's GPUs, for as long as this process lives.

    Raises:
        NoDriver: no NVIDIA driver is loaded.
        LibraryMissing: nvidia-ml-py is not installed.
        GpuLost: it does not start for a board's sake.
        DriverFault: it is loaded, and does not start.
    """
    try:
        import pynvml
    except ImportError as error:
        raise LibraryMissing("nvidia-ml-py is not installed: pip install 'relight[gpu]'") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value in _ABSENT:
            raise NoDriver(f"no NVIDIA driver: {error}") from error
        if error.value in _NOT_OURS:
            raise
        fault = GpuLost if error.value in _LOST else DriverFault
        raise fault(f"the NVIDIA driver does not start: {error}") from error
    return NvmlDriver(pynvml)


class NvmlDriver:
    """An initialised NVML."""

    def __init__(self, nvml: ModuleType) -> None:
        self._nvml = nvml

    def version(self) -> str:
        return str(self._nvml.nvmlSystemGetDriverVersion())

    def cuda_version(self) -> str:
        number = int(self._nvml.nvmlSystemGetCudaDriverVersion())
        return f"{number // 1000}.{number % 1000 // 10}"

    def gpus(self) -> Sequence[Gpu]:
        opened = (self._open(index) for index in range(self._nvml.nvmlDeviceGetCount()))
        ours = [handle for handle in opened if handle is not None]
        return [NvmlGpu(self._nvml, number, handle) for number, handle in enumerate(ours)]

    def _open(self, index: int) -> object | None:
        try:
            handle: object = self._nvml.nvmlDeviceGetHandleByIndex(index)
            return handle
        except self._nvml.NVMLError as error:
            if error.value in _NOT_OURS:
                return None
            if error.value in _LOST:
                raise GpuLost(f"GPU {index} cannot be opened: {error}") from error
            raise


class NvmlGpu:
    """One GPU behind NVML."""

    def __init__(self, nvml: ModuleType, index: int, handle: object) -> None:
        self._nvml = nvml
        self._handle = handle
        self.name = f"GPU {index}"

    def identity(self) -> str:
        serial = self._asked(lambda nvml, handle: str(nvml.nvmlDeviceGetSerial(handle)))
        return serial or self._asked(lambda nvml, handle: str(nvml.nvmlDeviceGetUUID(handle))) or ""

    def firmware(self) -> str:
        return self._asked(lambda nvml, handle: str(nvml.nvmlDeviceGetVbiosVersion(handle))) or ""

    def read(self, reading: Reading) -> int | None:
        if reading in (Reading.NVLINKS, Reading.NVLINKS_DOWN):
            down = self._links.count(False)
            return down if reading is Reading.NVLINKS_DOWN else len(self._links)
        return self._asked(_READERS[reading])

    @cached_property
    def _links(self) -> list[bool]:
        states = []
        for link in range(self._nvml.NVML_NVLINK_MAX_LINKS):
            state = self._asked(_link_state(link))
            if state is None:
                break
            states.append(bool(state))
        return states

    def _asked(self, question: Callable[[ModuleType, object], T]) -> T | None:
        try:
            return question(self._nvml, self._handle)
        except self._nvml.NVMLError as error:
            if error.value in _NOT_SUPPORTED:
                return None
            if error.value in _LOST:
                raise GpuLost(f"{self.name}: {error}") from error
            raise


def _link_state(link: int) -> Read:
    return lambda nvml, handle: int(nvml.nvmlDeviceGetNvLinkState(handle, link))


def _field(name: str) -> Read:
    def read(nvml: ModuleType, handle: object) -> int:
        (value,) = nvml.nvmlDeviceGetFieldValues(handle, [getattr(nvml, name)])
        if value.nvmlReturn:
            raise nvml.NVMLError(value.nvmlReturn)
        return int(value.value.uiVal)

    return read


def _sum_of_fields(*names: str) -> Read:
    readers = [_field(name) for name in names]
    return lambda nvml, handle: sum(read(nvml, handle) for read in readers)


def _ecc(kind: str, since: str) -> Read:
    return lambda nvml, handle: int(
        nvml.nvmlDeviceGetTotalEccErrors(
            handle,
            getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{kind}"),
            getattr(nvml, f"NVML_{since}_ECC"),
        )
    )


def _sram(since: str) -> Read:
    return lambda nvml, handle: int(
        nvml.nvmlDeviceGetMemoryErrorCounter(
            handle,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            getattr(nvml, f"NVML_{since}_ECC"),
            nvml.NVML_MEMORY_LOCATION_SRAM,
        )
    )


def _remapped(position: int) -> Read:
    return lambda nvml, handle: int(nvml.nvmlDeviceGetRemappedRows(handle)[position])


def _retired(cause: str) -> Read:
    name = f"NVML_PAGE_RETIREMENT_CAUSE_{cause}"
    return lambda nvml, handle: len(nvml.nvmlDeviceGetRetiredPages(handle, getattr(nvml, name)))


def _plain(function: str, *arguments: str, per: int = 1) -> Read:
    return lambda nvml, handle: (
        int(getattr(nvml, function)(handle, *(getattr(nvml, name) for name in arguments))) // per
    )


def _first(function: str) -> Read:
    return lambda nvml, handle: int(getattr(nvml, function)(handle)[0])


def _fabric(part: str) -> Read:
    def read(nvml: ModuleType, handle: object) -> int:
        info = nvml.c_nvmlGpuFabricInfo_t()
        nvml.nvmlDeviceGetGpuFabricInfo(handle, nvml.byref(info))
        return int(getattr(info, part))

    return read


_READERS: Final[dict[Reading, Read]] = {
    Reading.RECOVERY_ACTION: _field("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"),
    Reading.ECC_MODE: _first("nvmlDeviceGetEccMode"),
    Reading.ECC_UNCORRECTED: _ecc("UNCORRECTED", "VOLATILE"),
    Reading.ECC_UNCORRECTED_SRAM: _sram("VOLATILE"),
    Reading.ECC_UNCORRECTED_SRAM_EVER: _sram("AGGREGATE"),
    Reading.ECC_CORRECTED: _ecc("CORRECTED", "VOLATILE"),
    Reading.REMAP_UNCORRECTED: _remapped(1),
    Reading.REMAP_PENDING: _remapped(2),
    Reading.REMAP_FAILED: _remapped(3),
    Reading.RETIRED_DOUBLE_BIT: _retired("DOUBLE_BIT_ECC_ERROR"),
    Reading.RETIRED_SINGLE_BIT: _retired("MULTIPLE_SINGLE_BIT_ECC_ERRORS"),
    Reading.RETIRED_PENDING: _plain("nvmlDeviceGetRetiredPagesPendingStatus"),
    Reading.THROTTLE_REASONS: _plain("nvmlDeviceGetCurrentClocksThrottleReasons"),
    Reading.CLOCK_MAX: _plain("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM"),
    Reading.CLOCK_SET: _plain("nvmlDeviceGetApplicationsClock", "NVML_CLOCK_SM"),
    Reading.CLOCK_DEFAULT: _plain("nvmlDeviceGetDefaultApplicationsClock", "NVML_CLOCK_SM"),
    Reading.POWER_LIMIT: _plain("nvmlDeviceGetPowerManagementLimit", per=1000),
    Reading.POWER_DEFAULT: _plain("nvmlDeviceGetPowerManagementDefaultLimit", per=1000),
    Reading.MEMORY_USED: lambda nvml, handle: int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
    Reading.PROCESSES: lambda nvml, handle: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
    Reading.OWN_PROCESSES: lambda nvml, handle: of_this_job(
        process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    ),
    Reading.PCIE_GENERATION: _plain("nvmlDeviceGetCurrPcieLinkGeneration"),
    Reading.PCIE_GENERATION_MAX: _plain("nvmlDeviceGetMaxPcieLinkGeneration"),
    Reading.PCIE_WIDTH: _plain("nvmlDeviceGetCurrPcieLinkWidth"),
    Reading.PCIE_WIDTH_MAX: _plain("nvmlDeviceGetMaxPcieLinkWidth"),
    Reading.FABRIC_STATE: _fabric("state"),
    Reading.FABRIC_STATUS: _fabric("status"),
    Reading.MIG_MODE: _first("nvmlDeviceGetMigMode"),
    Reading.COMPUTE_MODE: _plain("nvmlDeviceGetComputeMode"),
    Reading.PERSISTENCE_MODE: _plain("nvmlDeviceGetPersistenceMode"),
    Reading.NVLINK_ERRORS: _sum_of_fields(
        *(
            f"NVML_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL"
            for kind in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")
        )
    ),
}
