"""GPUs present: as many as the job was given; which boards they are, and their driver."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from ...ledger.faults import Fault
from ..check import Candidate, Check, Finding
from ..result import Outcome
from .each import ask_driver
from .reading import DRIVERS, Driver, Reading

SERIALS = "gpu serials"  # the fact that holds the boards, separated by spaces
GIVEN = "gpus given"  # the fact that only a node has on which the run uses GPUs


def check_present(candidate: Candidate) -> Finding:
    """Open every GPU; a board that has fallen off the bus is missing here.

    Of all checks this one says that nvidia-ml-py is missing: once is enough.
    """
    return ask_driver(lambda driver: _count(candidate, driver), no_library=Outcome.UNKNOWN)


def _count(candidate: Candidate, driver: Driver) -> Finding:
    gpus = driver.gpus()
    boards = [gpu.identity() for gpu in gpus]
    asked = asked_gpus(candidate)
    split = any(gpu.read(Reading.MIG_MODE) for gpu in gpus)  # then parts of boards are given
    return Finding(
        Outcome.FAIL_NODE if len(boards) < asked and not split else Outcome.PASS,
        f"{len(boards)} GPUs{', split (MIG)' if split else ''}, {asked} asked; "
        f"driver {driver.version()}",
        float(len(boards)),
        "GPUs",
        facts={
            SERIALS: " ".join(boards),
            "gpu count": str(len(boards)),
            "gpu driver": driver.version(),
            "cuda": driver.cuda_version(),
            "gpu vbios": _distinct(gpu.firmware() for gpu in gpus),
            "gpu clock": _distinct(str(gpu.read(Reading.CLOCK_MAX)) for gpu in gpus),
            "gpu power limit": _distinct(str(gpu.read(Reading.POWER_LIMIT)) for gpu in gpus),
        },
    )


def asked_gpus(candidate: Candidate) -> int:
    """How many GPUs the run is to find on this node; 0 where it does not use any."""
    return max(candidate.config.gpus_per_node, given_gpus(os.environ))


def given_gpus(environ: Mapping[str, str]) -> int:
    """How many GPUs Slurm has given the job on this node; 0 where it does not say."""
    said = environ.get("SLURM_GPUS_ON_NODE", "")
    return int(said) if said.isdecimal() else 0


def _distinct(texts: Iterable[str]) -> str:
    return ", ".join(sorted(set(texts)))


CHECK = Check(
    name="gpu_present",
    reads="NVML: device count, serial numbers, versions of driver, CUDA and VBIOS, "
    "highest clock, power limit",
    threshold="as many as SLURM_GPUS_ON_NODE and resources.gpus_per_node, and all can be opened",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=20.0,
    run=check_present,
    repeated=True,
)
