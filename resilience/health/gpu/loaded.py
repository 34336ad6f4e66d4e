"""A driver for the GPUs that Slurm has given the job: without one no other check looks at them."""

from __future__ import annotations

import dataclasses
import os
from typing import Final

from ..check import Candidate, Check, Finding, not_judged
from ..result import Outcome
from .present import GIVEN, asked_gpus, given_gpus
from .reading import DRIVERS

_VENDORS: Final = {"0x10de": "NVIDIA", "0x1002": "AMD"}
_CLASSES: Final = ("0x03", "0x12")  # of PCI: display controllers, processing accelerators


def check_loaded(candidate: Candidate) -> Finding:
    """Look for a driver, and where there is none for boards that wait for it."""
    asked = asked_gpus(candidate)
    return dataclasses.replace(_look(candidate), facts={GIVEN: str(asked)} if asked else {})


def _look(candidate: Candidate) -> Finding:
    given = given_gpus(os.environ)
    if any((candidate.root / path).exists() for path in DRIVERS):
        return Finding(Outcome.PASS, "a driver is loaded")
    if not given:
        return not_judged("Slurm has given no GPU here")
    if boards := _boards(candidate):
        text = f"Slurm gives {given} GPUs, and no driver is loaded for {', '.join(boards)}"
        return Finding(Outcome.FAIL_NODE, text)
    return Finding(Outcome.WARN, f"Slurm gives {given} GPUs, and none is seen of NVIDIA or AMD")


def _boards(candidate: Candidate) -> list[str]:
    found = []
    for device in sorted((candidate.root / "sys/bus/pci/devices").glob("*")):
        vendor = _VENDORS.get((device / "vendor").read_text().strip())
        if vendor and (device / "class").read_text().startswith(_CLASSES):
            found.append(f"{vendor}'s {device.name}")
    return found


CHECK = Check(
    name="gpu_driver",
    reads="SLURM_GPUS_ON_NODE, /proc/driver/nvidia, /sys/class/kfd, /sys/bus/pci/devices",
    threshold="a driver is loaded where GPUs are given and on the bus",
    worst=Outcome.FAIL_NODE,
    typical_s=0.05,
    timeout_s=10.0,
    run=check_loaded,
)
