"""What can be read from a GPU, whoever reads it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum, auto
from typing import Final, Protocol

from relight.errors import RelightError

# There where a driver for computing is loaded.
NVIDIA: Final = "proc/driver/nvidia"
AMD: Final = "sys/class/kfd/kfd"
DRIVERS: Final = (NVIDIA, AMD)


class Reading(StrEnum):
    """One number of one GPU, as NVML gives it; clocks in MHz, power in W, memory in bytes."""

    RECOVERY_ACTION = auto()
    ECC_MODE = auto()
    ECC_UNCORRECTED = auto()  # since the driver was loaded
    ECC_UNCORRECTED_SRAM = auto()  # those of them that are not of rows of memory
    ECC_UNCORRECTED_SRAM_EVER = auto()
    ECC_CORRECTED = auto()
    REMAP_UNCORRECTED = auto()
    REMAP_PENDING = auto()
    REMAP_FAILED = auto()
    RETIRED_DOUBLE_BIT = auto()
    RETIRED_SINGLE_BIT = auto()
    RETIRED_PENDING = auto()
    THROTTLE_REASONS = auto()
    CLOCK_MAX = auto()
    CLOCK_SET = auto()  # for programs; None where the driver alone decides
    CLOCK_DEFAULT = auto()
    POWER_LIMIT = auto()
    POWER_DEFAULT = auto()
    MEMORY_USED = auto()
    PROCESSES = auto()
    OWN_PROCESSES = auto()  # those of them that belong to this job
    NVLINKS = auto()
    NVLINKS_DOWN = auto()
    NVLINK_ERRORS = auto()  # since the driver was loaded
    PCIE_GENERATION = auto()
    PCIE_GENERATION_MAX = auto()
    PCIE_WIDTH = auto()
    PCIE_WIDTH_MAX = auto()
    FABRIC_STATE = auto()
    FABRIC_STATUS = auto()
    MIG_MODE = auto()
    COMPUTE_MODE = auto()
    PERSISTENCE_MODE = auto()


class GpuLost(RelightError):
    """The driver has lost the GPU, or says that it must be reset: it carries no work."""


class NoDriver(RelightError):
    """There is no driver on this node, or nothing to talk to it with."""


class LibraryMissing(NoDriver):
    """nvidia-ml-py, or AMD's amdsmi, is not installed."""


class DriverFault(RelightError):
    """The driver is there and does not work: a reload may cure it, it need not be the boards."""


class Gpu(Protocol):
    """One GPU."""

    @property
    def name(self) -> str:
        """Its number, for people."""

    def identity(self) -> str:
        """Its serial number, or its UUID where it has none.

        Raises:
            GpuLost: as its name says.
        """

    def firmware(self) -> str:
        """The version of its VBIOS, or nothing where it has none.

        Raises:
            GpuLost: as its name says.
        """

    def read(self, reading: Reading) -> int | None:
        """One number; None when this GPU or driver does not have it.

        Raises:
            GpuLost: as its name says.
        """


class Driver(Protocol):
    """The driver of a node's GPUs."""

    def version(self) -> str: ...

    def cuda_version(self) -> str: ...

    def gpus(self) -> Sequence[Gpu]:
        """All GPUs that this process may see.

        Raises:
            GpuLost: one cannot even be opened.
        """
