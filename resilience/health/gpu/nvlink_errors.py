"""Errors of NVLink, as they grow. A hundred a second is where NVIDIA's DCGM begins to complain."""

from __future__ import annotations

import dataclasses

from ...ledger.faults import Fault
from ..check import Candidate, Check, Finding, Limit
from ..growth import look_twice
from ..result import Outcome
from ..trends import LINK_ERRORS
from .each import ask_driver
from .reading import DRIVERS, Driver, Reading

GROWTH = Limit("gpu_nvlink_errors", "per_second", 100, "errors per second")


def check_nvlink_errors(candidate: Candidate) -> Finding:
    return ask_driver(lambda driver: _growth(driver, candidate.limit(GROWTH)))


def _growth(driver: Driver, most_per_s: float) -> Finding:
    gpus = driver.gpus()

    def read() -> dict[str, int]:
        seen = {gpu.name: gpu.read(Reading.NVLINK_ERRORS) for gpu in gpus}
        return {name: errors for name, errors in seen.items() if errors is not None}

    finding = look_twice(read, most_per_s, "no GPU here counts errors of NVLink")
    return dataclasses.replace(finding, counts={LINK_ERRORS: sum(read().values())})


CHECK = Check(
    name="gpu_nvlink_errors",
    reads="NVML: CRC, replay and recovery errors of all NVLinks, twice within 0.3 s",
    threshold="no GPU's grow by more than 100 a second",
    worst=Outcome.WARN,
    fault=Fault.HARDWARE,
    limits=(GROWTH,),
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=20.0,
    run=check_nvlink_errors,
    repeated=True,
)
