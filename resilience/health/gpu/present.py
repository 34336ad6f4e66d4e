"""GPUs present: as many as the run was given; which boards they are, and their driver."""

from __future__ import annotations

from ...ledger.faults import Fault
from ..check import Candidate, Check, Finding
from ..result import Outcome
from .each import ask_driver
from .reading import DRIVERS, Driver

SERIALS = "gpu serials"  # the fact that holds the boards, separated by spaces


def check_present(candidate: Candidate) -> Finding:
    """Open every GPU; a board that has fallen off the bus is missing here.

    Of all checks this one says that nvidia-ml-py is missing: once is enough.
    """
    return ask_driver(lambda driver: _count(candidate, driver), no_library=Outcome.UNKNOWN)


def _count(candidate: Candidate, driver: Driver) -> Finding:
    boards = [gpu.identity() for gpu in driver.gpus()]
    asked = candidate.config.gpus_per_node
    return Finding(
        Outcome.FAIL_NODE if len(boards) < asked else Outcome.PASS,
        f"{len(boards)} GPUs, {asked} asked; driver {driver.version()}",
        float(len(boards)),
        "GPUs",
        facts={
            SERIALS: " ".join(boards),
            "gpu count": str(len(boards)),
            "gpu driver": driver.version(),
            "cuda": driver.cuda_version(),
        },
    )


CHECK = Check(
    name="gpu_present",
    reads="NVML: device count, serial numbers, driver and CUDA version",
    threshold="at least resources.gpus_per_node, and all can be opened",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=20.0,
    run=check_present,
    repeated=True,
)
