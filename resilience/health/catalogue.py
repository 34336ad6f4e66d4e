"""All checks: relight's own, and those that installed packages add."""

from __future__ import annotations

import logging
from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from ..config import HealthConfig
from . import (
    clock,
    disk,
    ethernet,
    infiniband,
    infiniband_errors,
    inodes,
    kernel_messages,
    load,
    lustre,
    lustre_quota,
    lustre_space,
    lustre_targets,
    machine,
    memory,
    memory_errors,
    mounts,
    names,
    peers,
    requested_memory,
    room,
    shm,
    site_command,
    software,
    stuck,
    swap,
    temporary,
    ulimits,
    uptime,
    zombies,
)
from .active import (
    disk_rate,
    gpu_copy,
    gpu_diag,
    gpu_memory,
    gpu_peers,
    gpu_product,
    gpu_sum,
    memory_rate,
    product,
    scratch_rate,
)
from .check import Check, Finding
from .gpu import (
    clocks,
    ecc,
    fabric,
    loaded,
    modes,
    nvlink,
    nvlink_errors,
    occupied,
    pcie,
    power,
    present,
    recovery,
    remapping,
    retired,
    smi,
    throttling,
    xid,
)
from .result import Outcome

_log: Final = logging.getLogger(__name__)
ENTRY_POINTS: Final = "relight.checks"  # each names a Check
_GPU: Final = (
    *(loaded, smi, present, recovery, xid, ecc, remapping, retired, occupied),
    *(nvlink, nvlink_errors, fabric, pcie, modes, power, clocks, throttling),
)
_HOST: Final = (
    *(memory, requested_memory, memory_errors, swap, load, stuck, zombies, uptime, ulimits),
    *(kernel_messages, disk, inodes, mounts, shm, temporary, room),
    *(lustre, lustre_targets, lustre_space, lustre_quota),
    *(clock, names, peers, infiniband, infiniband_errors, ethernet, software, machine),
)
CHECKS: Final[tuple[Check, ...]] = tuple(subject.CHECK for subject in (*_HOST, *_GPU, site_command))

# Run one after another, since they would take each other's time.
ACTIVE: Final[tuple[Check, ...]] = tuple(
    subject.CHECK
    for subject in (
        *(product, memory_rate, disk_rate, scratch_rate),
        *(gpu_product, gpu_memory, gpu_copy, gpu_peers, gpu_sum, gpu_diag),
    )
)


def all_checks() -> tuple[Check, ...]:
    """Every check that can be run on this machine."""
    checks = list(CHECKS)
    taken = {check.name for check in (*CHECKS, *ACTIVE)}
    for entry in entry_points(group=ENTRY_POINTS):
        checks.append(_load(entry, taken))
        taken.add(checks[-1].name)
    return tuple(checks)


def wanted_checks(health: HealthConfig) -> tuple[Check, ...]:
    """Those that a run wants."""
    no_command = () if health.site_command else (site_command.CHECK.name,)
    return tuple(check for check in all_checks() if check.name not in (*health.skip, *no_command))


def _load(entry: EntryPoint, taken: Collection[str]) -> Check:
    """A package's check; one that cannot be used stays in the list and says so when it is run."""
    try:
        check = entry.load()
        if not isinstance(check, Check):
            fault = f"{entry.value} is not a relight check"
        elif check.name in taken:
            fault = f"{entry.value} is called {check.name}, which is the name of another check"
        else:
            return check
    except (Exception, SystemExit) as error:  # its module may be a program
        fault = f"{entry.value} cannot be loaded: {error!r}"
    _log.warning("check %s: %s", entry.name, fault)
    return Check(
        name=entry.value if entry.name in taken else entry.name,
        reads=entry.value,
        threshold="unknown",
        worst=Outcome.UNKNOWN,
        typical_s=0.0,
        timeout_s=5.0,
        run=lambda _candidate: Finding(Outcome.UNKNOWN, fault),
    )
