"""GPUs through AMD's ``amdsmi`` (it comes with ROCm), behind the same protocol as NVML.

After the "AMD SMI Python API reference" of ROCm 6 and 7. What is not supported, or not told to this
user, is None. No error of it is said to be final, so none says that a board is lost: any other
error is the check's, not the GPU's. Values that a board does not have come as "N/A".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Final

from .own_processes import of_this_job
from .reading import Driver, Gpu, LibraryMissing, NoDriver, Reading

# Not supported, not implemented, no symbol, no permission, no data.
_NOT_SUPPORTED: Final = frozenset({2, 3, 5, 10, 40})
_ABSENT: Final = frozenset({32, 34})  # not initialised, driver not loaded
MIB: Final = 1024**2
_PER_WATT: Final = 1_000_000
_PENDING: Final = 1  # of a bad page: it is set aside at the next reset
# As NVML's bits, which the check on throttling knows.
_SLOWDOWN: Final = 0x8
_THERMAL: Final = 0x40

Read = Callable[[ModuleType, object], int | None]


def open_driver() -> Driver:
    """The driver of this node's GPUs, for as long as this process lives.

    Raises:
        NoDriver: no AMD driver is loaded.
        LibraryMissing: amdsmi is not installed, or lacks its own library.
    """
    try:
        import amdsmi
    except (ImportError, OSError) as error:
        raise LibraryMissing(f"amdsmi is not installed, it comes with ROCm: {error}") from error
    try:
        amdsmi.amdsmi_init()
    except amdsmi.AmdSmiLibraryException as error:
        if error.get_error_code() in _ABSENT:
            raise NoDriver(f"no AMD driver: {error}") from error
        raise
    return AmdDriver(amdsmi)


class AmdDriver:
    """An initialised amdsmi."""

    def __init__(self, smi: ModuleType) -> None:
        self._smi = smi
        self._handles = list(smi.amdsmi_get_processor_handles())

    def version(self) -> str:
        for handle in self._handles:
            return str(self._smi.amdsmi_get_gpu_driver_info(handle)["driver_version"])
        return "none"

    def cuda_version(self) -> str:
        return "none"

    def gpus(self) -> Sequence[Gpu]:
        return [AmdGpu(self._smi, index, handle) for index, handle in enumerate(self._handles)]


class AmdGpu:
    """One GPU behind amdsmi."""

    def __init__(self, smi: ModuleType, index: int, handle: object) -> None:
        self._smi = smi
        self._handle = handle
        self.name = f"GPU {index}"

    def identity(self) -> str:
        serial = str(self._smi.amdsmi_get_gpu_asic_info(self._handle).get("asic_serial", ""))
        known = serial not in ("", "N/A")
        return serial if known else str(self._smi.amdsmi_get_gpu_device_uuid(self._handle))

    def firmware(self) -> str:
        try:
            return str(self._smi.amdsmi_get_gpu_vbios_info(self._handle).get("version", ""))
        except self._smi.AmdSmiLibraryException as error:
            if error.get_error_code() in _NOT_SUPPORTED:
                return ""
            raise

    def read(self, reading: Reading) -> int | None:
        ask = _READERS.get(reading)
        if ask is None:
            return None
        try:
            return ask(self._smi, self._handle)
        except self._smi.AmdSmiLibraryException as error:
            if error.get_error_code() in _NOT_SUPPORTED:
                return None
            raise


def _entry(function: str, *path: str, times: int = 1, per: int = 1) -> Read:
    """A number somewhere in the mapping that a function gives."""

    def read(smi: ModuleType, handle: object) -> int | None:
        found = getattr(smi, function)(handle)
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return int(found) * times // per if isinstance(found, int) else None

    return read


def _bad_pages(status: int | None) -> Read:
    """Bad pages, all of them or those of one status; older versions say in words that none is."""

    def read(smi: ModuleType, handle: object) -> int:
        pages = smi.amdsmi_get_gpu_bad_page_info(handle)
        found = [page["status"] for page in pages] if isinstance(pages, list) else []
        numbers = [int(getattr(one, "value", one)) for one in found]
        return len(numbers) if status is None else numbers.count(status)

    return read


def _throttle_reasons(smi: ModuleType, handle: object) -> int:
    seen = smi.amdsmi_get_violation_status(handle)
    hot = any(seen.get(f"active_{part}_thrm") is True for part in ("socket", "vr", "hbm"))
    slowed = seen.get("active_prochot_thrm") is True
    return (_SLOWDOWN if slowed else 0) | (_THERMAL if hot else 0)


def _links(*words: str) -> Read:
    """XGMI links that are up (U) or down (D); one that is switched off (X) is none."""

    def read(smi: ModuleType, handle: object) -> int:
        status = smi.amdsmi_get_gpu_xgmi_link_status(handle)["status"]
        return sum(word in words for word in status)

    return read


_READERS: Final[dict[Reading, Read]] = {
    Reading.ECC_UNCORRECTED: _entry("amdsmi_get_gpu_total_ecc_count", "uncorrectable_count"),
    Reading.ECC_CORRECTED: _entry("amdsmi_get_gpu_total_ecc_count", "correctable_count"),
    Reading.RETIRED_DOUBLE_BIT: _bad_pages(None),
    Reading.RETIRED_SINGLE_BIT: lambda _smi, _handle: 0,  # not told apart
    Reading.RETIRED_PENDING: _bad_pages(_PENDING),
    Reading.THROTTLE_REASONS: _throttle_reasons,
    Reading.POWER_LIMIT: _entry("amdsmi_get_power_cap_info", "power_cap", per=_PER_WATT),
    Reading.POWER_DEFAULT: _entry("amdsmi_get_power_cap_info", "default_power_cap", per=_PER_WATT),
    Reading.MEMORY_USED: _entry("amdsmi_get_gpu_vram_usage", "vram_used", times=MIB),
    Reading.PROCESSES: lambda smi, handle: len(smi.amdsmi_get_gpu_process_list(handle)),
    Reading.OWN_PROCESSES: lambda smi, handle: of_this_job(
        process["pid"] for process in smi.amdsmi_get_gpu_process_list(handle)
    ),
    Reading.NVLINKS: _links("U", "D"),
    Reading.NVLINKS_DOWN: _links("D"),
    Reading.PCIE_WIDTH: _entry("amdsmi_get_pcie_info", "pcie_metric", "pcie_width"),
    Reading.PCIE_WIDTH_MAX: _entry("amdsmi_get_pcie_info", "pcie_static", "max_pcie_width"),
}
