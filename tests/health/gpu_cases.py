"""The five cases of each check of GPUs, and of each active test."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
import torch

from health.gpus import FakeGpu
from health.roots import kernel_log
from health.stage import Arrange, Cases, Stage, nothing
from relight.resilience.health.active import (
    boards,
    disk_rate,
    gpu_copy,
    gpu_memory,
    gpu_peers,
    gpu_product,
    gpu_sum,
    memory_rate,
    product,
)
from relight.resilience.health.gpu import each, occupied
from relight.resilience.health.gpu.reading import LibraryMissing

NO_LIBRARY = LibraryMissing("pip install 'relight[gpu]'")
SLOW = "it measures a rate, which is bad beside other nodes or the floor (test_health_active)"


class Odd(FakeGpu):
    """A board whose driver raises what nobody has heard of."""

    def read(self, reading: object) -> int | None:
        raise RuntimeError("NVML error 999")

    def identity(self) -> str:
        raise RuntimeError("NVML error 999")


def with_boards(**changes: int) -> Arrange:
    def arrange(stage: Stage) -> None:
        stage.patch.setattr(occupied, "PATIENCE_S", 0.0)
        stage.boards(None, **changes)

    return arrange


def readings(**bad: int) -> Cases:
    """Those of a check that asks each board."""

    return Cases(
        good=lambda stage: stage.boards(),
        bad=with_boards(**bad),
        silent=lambda stage: stage.fails(each, "open_driver", NO_LIBRARY),
        nonsense=lambda stage: stage.boards([Odd()]),
    )


def grows(stage: Stage) -> None:
    counts = iter((1, 10**6, 10**6))

    class Growing(FakeGpu):
        def read(self, reading: object) -> int | None:
            return next(counts)

    stage.boards([Growing()])


def slurm_gives(arrange: Arrange) -> Arrange:
    def both(stage: Stage) -> None:
        stage.patch.setenv("SLURM_GPUS_ON_NODE", "2")
        arrange(stage)

    return both


def on_the_bus(vendor: str) -> Arrange:
    device = "sys/bus/pci/devices/0000:3b:00.0"
    return slurm_gives(
        lambda stage: stage.files({f"{device}/vendor": vendor, f"{device}/class": "0x030200\n"})
    )


def logged(text: str) -> Arrange:
    return lambda stage: stage.files(kernel_log((1, text)))


def says(name: str, script: str) -> Arrange:
    return lambda stage: stage.command(name, script)


def diag(status: str) -> Arrange:
    tests = f'[{{"name": "software", "results": [{{"entity_id": 0, "status": "{status}"}}]}}]'
    found = f'{{"DCGM Diagnostic": {{"test_categories": [{{"tests": {tests}}}]}}}}'
    return says("dcgmi", f"echo '{found}'")


def little(arrange: Arrange = nothing) -> Arrange:
    """Active tests of a processor and its disks that take no time."""

    def both(stage: Stage) -> None:
        do_little(stage.patch)
        arrange(stage)

    return both


def do_little(patch: pytest.MonkeyPatch) -> None:
    """Let active tests of a processor and its disks take no time."""
    for subject, name, value in (
        *((product, "SIZE", 64), (product, "SECONDS", 0.001)),
        *((memory_rate, "ARRAY_BYTES", 2**20), (disk_rate, "FILE_BYTES", 2**20)),
    ):
        patch.setattr(subject, name, value)


def elsewhere(arrange: Arrange = nothing) -> Arrange:
    """The temporary directory is on a disk of its own."""

    def both(stage: Stage) -> None:
        stage.patch.setenv("TMPDIR", "/dev/shm")
        little(arrange)(stage)

    return both


def fails(name: str, number: int) -> Arrange:
    return lambda stage: stage.fails(os, name, OSError(number, os.strerror(number)))


def other_bytes(stage: Stage) -> None:
    stage.patch.setattr(disk_rate, "_gives_back", lambda *_: False)


def wrong(target: object, name: str) -> Arrange:
    return lambda stage: stage.patch.setattr(target, name, lambda *_: False)


def on_processor(arrange: Arrange = nothing) -> Arrange:
    """The processor stands for two boards; NCCL's part is done by hand."""

    def add(parts: list[torch.Tensor], sums: list[torch.Tensor]) -> None:
        for total in sums:
            total.copy_(torch.stack(list(parts)).sum(0))

    def both(stage: Stage) -> None:
        patch = stage.patch.setattr
        patch(boards, "find_boards", lambda: [torch.device("cpu")] * 2)
        patch(torch.cuda, "get_device_name", lambda _board: "NVIDIA H200")
        patch(gpu_sum, "all_reduce", add)
        patch(gpu_product, "SIZE", 64)
        patch(gpu_sum, "NUMBERS", 1024)
        for subject in (gpu_memory, gpu_copy, gpu_peers):
            patch(subject, "ARRAY_BYTES", 2**20)
        arrange(stage)

    return both


def without_torch(stage: Stage) -> None:
    stage.patch.setattr(boards, "find_boards", lambda: "torch is not installed")


def of_boards(bad: Arrange | str, broken: tuple[ModuleType, str]) -> Cases:
    error = RuntimeError("CUDA error: unknown error")
    return Cases(
        good=on_processor(),
        bad=bad if isinstance(bad, str) else on_processor(bad),
        silent=without_torch,
        nonsense=on_processor(lambda stage: stage.fails(*broken, error)),
    )


def odd_products(stage: Stage) -> None:
    answers = iter([(7, 1.0), (8, 1.0)])
    stage.patch.setattr(gpu_product, "product_on", lambda *_: next(answers))


def odd_sums(stage: Stage) -> None:
    stage.patch.setattr(gpu_sum, "all_reduce", lambda _parts, sums: sums[1].fill_(2.5))


def of_disk(stage_on: Callable[[Arrange], Arrange]) -> Cases:
    return Cases(
        good=stage_on(nothing),
        bad=stage_on(other_bytes),
        silent=stage_on(fails("fsync", errno.ENOMEM)),
        nonsense="bytes that come back are the same, or they are not",
    )


XID = "NVRM: Xid (PCI:0000:3b:00): {}, pid=7"
LISTED = "echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)'"

GPU_CASES: dict[str, Cases] = {
    "gpu_driver": Cases(
        good=slurm_gives(lambda stage: stage.files({"proc/driver/nvidia/version": "570"})),
        bad=on_the_bus("0x10de\n"),
        silent=nothing,
        nonsense=on_the_bus("\x00nonsense"),
    ),
    "gpu_smi": Cases(
        good=says("nvidia-smi", LISTED),
        bad=slurm_gives(says("nvidia-smi", LISTED)),
        silent=lambda stage: stage.patch.setenv("PATH", "/none"),
        nonsense=says("nvidia-smi", "echo nonsense; exit 1"),
    ),
    "gpu_present": Cases(
        good=lambda stage: stage.boards(),
        bad=slurm_gives(lambda stage: stage.boards([FakeGpu()])),
        silent=lambda stage: stage.fails(each, "open_driver", NO_LIBRARY),
        nonsense=lambda stage: stage.boards([Odd()]),
    ),
    "gpu_recovery": readings(recovery_action=1),
    "gpu_xid": Cases(
        good=logged("NVRM: loading NVIDIA UNIX x86_64 Kernel Module"),
        bad=logged(XID.format(79)),
        silent=nothing,
        nonsense=logged(XID.format("~~~")),
    ),
    "gpu_ecc": readings(ecc_uncorrected=1),
    "gpu_remapping": readings(remap_failed=1),
    "gpu_retired": readings(retired_double_bit=60),
    "gpu_occupied": readings(processes=1),
    "gpu_nvlink": readings(nvlinks_down=1),
    "gpu_nvlink_errors": Cases(
        good=lambda stage: stage.boards(),
        bad=grows,
        silent=lambda stage: stage.fails(each, "open_driver", NO_LIBRARY),
        nonsense=lambda stage: stage.boards([Odd()]),
    ),
    "gpu_fabric": readings(fabric_state=2),
    "gpu_pcie": readings(pcie_width=8),
    "gpu_modes": readings(compute_mode=2),
    "gpu_power": readings(power_limit=500),
    "gpu_clocks": readings(clock_set=500),
    "gpu_throttling": readings(throttle_reasons=0x40),
}

ACTIVE_CASES: dict[str, Cases] = {
    "product": Cases(
        good=little(),
        bad=little(wrong(np, "array_equal")),
        silent=little(lambda stage: stage.fails(np.random, "default_rng", MemoryError())),
        nonsense="a product is right to the last bit, or it is wrong",
    ),
    "memory_rate": Cases(
        good=little(),
        bad=little(wrong(np, "array_equal")),
        silent=little(lambda stage: stage.fails(np, "arange", MemoryError())),
        nonsense="a copy is the same, or it is not",
    ),
    "disk_rate": of_disk(little),
    "scratch_rate": of_disk(elsewhere),
    "gpu_product": of_boards(odd_products, (torch, "randint")),
    "gpu_memory": of_boards(wrong(torch, "equal"), (torch, "arange")),
    "gpu_copy": of_boards(SLOW, (torch, "empty")),
    "gpu_peers": of_boards(wrong(torch, "equal"), (torch, "arange")),
    "gpu_sum": of_boards(odd_sums, (torch, "full")),
    "gpu_diag": Cases(
        good=diag("Pass"),
        bad=diag("Fail"),
        silent=says("dcgmi", "echo no host engine >&2; exit 1"),
        nonsense=says("dcgmi", "echo '{nonsense'"),
    ),
}
