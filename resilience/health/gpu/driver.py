"""Whose GPUs a node has, and so who is asked about them."""

from __future__ import annotations

from pathlib import Path

from . import amd, nvml
from .reading import AMD, NVIDIA, Driver


def open_driver(root: Path = Path("/")) -> Driver:
    """NVIDIA's driver, unless there is only AMD's.

    Raises:
        NoDriver, LibraryMissing, DriverFault: as :mod:`.nvml` and :mod:`.amd` do.
    """
    only_amd = (root / AMD).exists() and not (root / NVIDIA).exists()
    return amd.open_driver() if only_amd else nvml.open_driver()
