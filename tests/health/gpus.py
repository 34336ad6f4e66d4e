"""GPUs that read as the test wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from relight.resilience.health.gpu.reading import Gpu, GpuLost, Reading

GOOD: Mapping[Reading, int] = {
    Reading.RECOVERY_ACTION: 0,
    Reading.ECC_MODE: 1,
    Reading.ECC_UNCORRECTED: 0,
    Reading.ECC_UNCORRECTED_SRAM: 0,
    Reading.ECC_UNCORRECTED_SRAM_EVER: 0,
    Reading.ECC_CORRECTED: 12,
    Reading.REMAP_UNCORRECTED: 0,
    Reading.REMAP_PENDING: 0,
    Reading.REMAP_FAILED: 0,
    Reading.RETIRED_DOUBLE_BIT: 0,
    Reading.RETIRED_SINGLE_BIT: 0,
    Reading.RETIRED_PENDING: 0,
    Reading.THROTTLE_REASONS: 0x1,  # idle
    Reading.CLOCK_MAX: 1980,
    Reading.CLOCK_SET: 1980,
    Reading.CLOCK_DEFAULT: 1980,
    Reading.POWER_LIMIT: 700,
    Reading.POWER_DEFAULT: 700,
    Reading.MEMORY_USED: 4 * 1024**2,
    Reading.PROCESSES: 0,
    Reading.OWN_PROCESSES: 0,
    Reading.NVLINKS: 18,
    Reading.NVLINKS_DOWN: 0,
    Reading.NVLINK_ERRORS: 7,
    Reading.PCIE_GENERATION: 1,  # as an idle board has
    Reading.PCIE_GENERATION_MAX: 5,
    Reading.PCIE_WIDTH: 16,
    Reading.PCIE_WIDTH_MAX: 16,
    Reading.FABRIC_STATE: 3,
    Reading.FABRIC_STATUS: 0,
    Reading.MIG_MODE: 0,
    Reading.COMPUTE_MODE: 0,
    Reading.PERSISTENCE_MODE: 1,
}


@dataclass
class FakeGpu:
    """A board; a reading that it does not have is not supported."""

    name: str = "GPU 0"
    serial: str = "S0"
    readings: Mapping[Reading, int] = field(default_factory=lambda: GOOD)
    lost: bool = False

    def identity(self) -> str:
        return self.serial

    def firmware(self) -> str:
        return "96.00.61.00.01"

    def read(self, reading: Reading) -> int | None:
        if self.lost:
            raise GpuLost(f"{self.name}: GPU is lost")
        return self.readings.get(reading)


@dataclass
class FakeDriver:
    """A driver with boards."""

    boards: Sequence[Gpu]

    def version(self) -> str:
        return "570.124.06"

    def cuda_version(self) -> str:
        return "12.8"

    def gpus(self) -> Sequence[Gpu]:
        return self.boards
