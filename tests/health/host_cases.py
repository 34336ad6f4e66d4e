"""The five cases of each check of the host."""

from __future__ import annotations

import dataclasses
import errno
import os
import platform
import resource
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil

from health.roots import ethernet, infiniband, kernel_log
from health.stage import Arrange, Cases, Stage, nothing, with_files
from relight.resilience.health import shm

GIB = 1024**3
MEMINFO = "MemTotal: {0} kB\nMemAvailable: {1} kB\nSwapTotal: 4194304 kB\nSwapFree: {2} kB\n"
PLENTY = {"proc/meminfo": MEMINFO.format(8 * 1024**2, 7 * 1024**2, 4194304)}
EDAC = "sys/devices/system/edac/mc/mc0"
IMPORT = "sys/fs/lustre/osc/fs-OST0001-osc-ffff8800/import"
LUSTRE = "proc/self/mounts"
HEALTH = "sys/fs/lustre/health_check"
COMPARED = "it only tells facts; what differs is seen beside other nodes (test_health_compare)"
UNLIMITED = (resource.RLIM_INFINITY,) * 2
LOCKED = {resource.RLIMIT_MEMLOCK: (2**16, 2**16)}
UNREADABLE = OSError(errno.EIO, "Input/output error")


def at(offset_s: float) -> Arrange:
    def arrange(stage: Stage) -> None:
        stage.candidate = dataclasses.replace(stage.candidate, clock_offset_s=offset_s)

    return arrange


def available(size: int) -> Arrange:
    seen = SimpleNamespace(available=size, total=8 * GIB)
    return lambda stage: stage.patch.setattr(psutil, "virtual_memory", lambda: seen)


def asks_for_memory(files: dict[str, str]) -> Arrange:
    def arrange(stage: Stage) -> None:
        stage.patch.setenv("SLURM_MEM_PER_NODE", "8000")
        stage.files(files)

    return arrange


def errors(uncorrected: str, corrected: str = "3") -> Arrange:
    return with_files({f"{EDAC}/ue_count": uncorrected, f"{EDAC}/ce_count": corrected})


def process(pid: int, state: str) -> dict[str, str]:
    numbers = "1 7 7 0 -1 4 0 0 0 0 5 0 0 0 20 0 1 0 5 0 0"
    return {f"proc/{pid}/stat": f"{pid} (cp) {state} {numbers}\n"}


def many(state: str) -> dict[str, str]:
    found = {"proc/uptime": "9000.0 1.0\n"}
    for pid in range(7, 30):
        found |= process(pid, state)
    return found


def limits(files: int, stack: int) -> Arrange:
    found = {resource.RLIMIT_NOFILE: (files, files), resource.RLIMIT_STACK: (stack, stack)}
    return lambda stage: stage.patch.setattr(
        resource, "getrlimit", lambda which: found.get(which, UNLIMITED)
    )


def pinning_little(stage: Stage) -> None:
    """A node with InfiniBand whose processes may lock next to no memory."""
    stage.files(infiniband())
    stage.patch.setattr(resource, "getrlimit", lambda which: LOCKED.get(which, UNLIMITED))


def fails(target: object, name: str, number: int) -> Arrange:
    error = OSError(number, os.strerror(number))
    return lambda stage: stage.fails(target, name, error)


def space(**changes: int) -> Arrange:
    return lambda stage: stage.space(**changes)


def mounted(entries: str, health_mounts: tuple[str, ...] = ("/",)) -> Arrange:
    def arrange(stage: Stage) -> None:
        stage.files({LUSTRE: entries})
        stage.health(mounts=health_mounts)

    return arrange


def on_lustre(files: dict[str, str], lfs: str | None = None) -> Arrange:
    """The checkpoint directory is on Lustre, whose command says what the words do."""

    def arrange(stage: Stage) -> None:
        folder = stage.candidate.config.checkpoint.directory.parent
        stage.files({LUSTRE: f"a@o2ib:/fs {folder} lustre rw 0 0\n", **files})
        if lfs is None:
            stage.patch.setenv("PATH", str(stage.commands))
        else:
            stage.command("lfs", lfs)

    return arrange


def import_of(state: str) -> dict[str, str]:
    return {IMPORT: f"import:\n    name: fs-OST0001-osc-ffff8800\n    state: {state}\n"}


def df(used: int) -> str:
    return f"echo 'fs-OST0000_UUID 1000 {used}0 {1000 - 10 * used} {used}% /fs[OST:0]'"


def quota(words: str) -> str:
    return f"case $1 in quota) echo '{words}' ;; *) echo '0 - /fs' ;; esac"


def in_temporary(arrange: Arrange) -> Arrange:
    def both(stage: Stage) -> None:
        folder = stage.candidate.root / "tmp"
        folder.mkdir(parents=True)
        stage.patch.setenv("TMPDIR", str(folder))
        arrange(stage)

    return both


def shared_memory(arrange: Arrange) -> Arrange:
    def both(stage: Stage) -> None:
        stage.candidate.root.mkdir(exist_ok=True)
        stage.patch.setattr(shm, "SHM", stage.candidate.root)
        arrange(stage)

    return both


def resolves(answer: Callable[..., object]) -> Arrange:
    def arrange(stage: Stage) -> None:
        stage.candidate = dataclasses.replace(stage.candidate, peers=("n1", "n2", "n3"))
        stage.patch.setattr(socket, "getaddrinfo", answer)

    return arrange


def known(*_arguments: object, **_named: object) -> list[object]:
    return [(0, 0, 0, "", ("192.0.2.2", 0))]


def unknown(*_arguments: object, **_named: object) -> list[object]:
    raise socket.gaierror(-2, "Name or service not known")


def peers_that(error: type[Exception]) -> Arrange:
    def arrange(stage: Stage) -> None:
        resolves(known)(stage)
        stage.fails(socket, "create_connection", error())

    return arrange


def growing(files: dict[str, str], counter: str) -> Arrange:
    def arrange(stage: Stage) -> None:
        stage.files(files)
        path = stage.candidate.root / counter
        stage.patch.setattr(time, "sleep", lambda _s: path.write_text("99999"))

    return arrange


def site(command: str) -> Arrange:
    return lambda stage: stage.health(site_command=command)


PORT = "sys/class/infiniband/mlx5_0/ports/1"
NET = "sys/class/net/eth0"
WRONG = {f"{PORT}/{name}": "\x00nonsense" for name in ("state", "phys_state", "rate")}

HOST_CASES: dict[str, Cases] = {
    "memory": Cases(
        good=available(GIB),
        bad=available(1),
        silent=lambda stage: stage.fails(psutil, "virtual_memory", UNREADABLE),
        nonsense=available(-1),
    ),
    "requested_memory": Cases(
        good=asks_for_memory(PLENTY),
        bad=asks_for_memory({"proc/meminfo": MEMINFO.format(8 * 1024**2, 10, 0)}),
        silent=asks_for_memory({}),
        nonsense=asks_for_memory({"proc/meminfo": MEMINFO.format(1, 10, 0)}),
    ),
    "memory_errors": Cases(
        good=errors("0"), bad=errors("1"), silent=nothing, nonsense=errors("nonsense")
    ),
    "swap": Cases(
        good=with_files(PLENTY),
        bad=with_files({"proc/meminfo": MEMINFO.format(8, 7, 0)}),
        silent=nothing,
        nonsense=with_files({"proc/meminfo": MEMINFO.format(8, 7, 9999999)}),
    ),
    "load": Cases(
        good=with_files({"proc/loadavg": "0.10 0.2 0.3 1/2 3\n"}),
        bad=with_files({"proc/loadavg": "9999.0 0.2 0.3 1/2 3\n"}),
        silent=nothing,
        nonsense=with_files({"proc/loadavg": "nan\n"}),
    ),
    "stuck": Cases(
        good=with_files(process(7, "R")),
        bad=with_files(process(7, "D")),
        silent="processes that cannot be read have ended, or are another user's",
        nonsense=with_files({"proc/7/stat": "nonsense"}),
    ),
    "zombies": Cases(
        good=with_files(many("S")),
        bad=with_files(many("Z")),
        silent=nothing,
        nonsense=with_files({"proc/uptime": "9 9", "proc/7/stat": "7 (x"}),
    ),
    "uptime": Cases(
        good=with_files({"proc/uptime": "601.0 1.0"}),
        bad=with_files({"proc/uptime": "599.0 1.0"}),
        silent=nothing,
        nonsense=with_files({"proc/uptime": "-inf"}),
    ),
    "ulimits": Cases(
        good=limits(2**20, 2**23),
        bad=limits(2**20, 2**16),
        silent=lambda stage: stage.fails(resource, "getrlimit", ValueError("invalid")),
        nonsense="the kernel gives two numbers, of which each has a meaning",
        hangs="getrlimit asks the kernel about this process, and waits for nobody",
    ),
    "kernel_messages": Cases(
        good=with_files(kernel_log((1, "usb 1-1: new device"))),
        bad=with_files(kernel_log((1, "sda1: Remounting filesystem read-only"))),
        silent=with_files({"proc/uptime": "1.0 1.0"}),
        nonsense=with_files({"proc/uptime": "1.0 1.0", "dev/kmsg": "\x00;;\n6,x,-1;fatal\n"}),
    ),
    "disk": Cases(
        good=nothing,
        bad=fails(os, "fsync", errno.EDQUOT),
        silent=fails(os, "fsync", errno.ENOMEM),
        nonsense=lambda stage: stage.patch.setattr(os, "statvfs", lambda _path: None),
    ),
    "inodes": Cases(
        good=space(files=9000, favail=5000),
        bad=space(files=9000, favail=999),
        silent=space(files=0, favail=0),
        nonsense=lambda stage: stage.patch.setattr(os, "statvfs", lambda _path: None),
    ),
    "mounts": Cases(
        good=mounted("x / ext4 rw 0 0\n"),
        bad=mounted("x / ext4 rw 0 0\n", ("/", "/scratch")),
        silent=nothing,
        nonsense="a list without the mount point says that it is not mounted",
    ),
    "shm": Cases(
        good=shared_memory(space(bavail=2**30, frsize=4096)),
        bad=shared_memory(fails(tempfile, "TemporaryFile", errno.ENOSPC)),
        silent=shared_memory(fails(os, "statvfs", errno.EIO)),
        nonsense=shared_memory(lambda stage: stage.patch.setattr(os, "statvfs", lambda _p: None)),
    ),
    "temporary": Cases(
        good=in_temporary(space(blocks=100, bavail=50)),
        bad=in_temporary(fails(os, "fsync", errno.EROFS)),
        silent=in_temporary(fails(os, "fsync", errno.ENOMEM)),
        nonsense=in_temporary(lambda stage: stage.patch.setattr(os, "statvfs", lambda _p: None)),
    ),
    "room": Cases(
        good=space(blocks=100, bavail=50, frsize=GIB),
        bad=space(blocks=100, bavail=4, frsize=GIB),
        silent=fails(os, "statvfs", errno.EIO),
        nonsense=lambda stage: stage.patch.setattr(os, "statvfs", lambda _path: None),
    ),
    "lustre": Cases(
        good=on_lustre({HEALTH: "healthy\n"}),
        bad=on_lustre({HEALTH: "NOT HEALTHY\nosc-3\n"}),
        silent=on_lustre({}),
        nonsense=on_lustre({HEALTH: "\x00nonsense"}),
    ),
    "lustre_targets": Cases(
        good=on_lustre(import_of("FULL")),
        bad=on_lustre(import_of("EVICTED")),
        silent=on_lustre({}),
        nonsense=on_lustre(import_of("~~~")),
    ),
    "lustre_space": Cases(
        good=on_lustre({}, df(94)),
        bad=on_lustre({}, df(95)),
        silent=on_lustre({}, "exit 3"),
        nonsense=on_lustre({}, "echo nonsense 99% OST"),
    ),
    "lustre_quota": Cases(
        good=on_lustre({}, quota("/fs 1 0 0 - 5 10 10 -")),
        bad=on_lustre({}, quota("/fs 101* 100 100 - 5 10 10 -")),
        silent=on_lustre({}, "exit 3"),
        nonsense=on_lustre({}, quota("nonsense")),
    ),
    "clock": Cases(
        good=at(0.0),
        bad=at(-2.0),
        silent="both times come with the question",
        nonsense=at(float("nan")),
        hangs="it compares two numbers that it has been given",
    ),
    "names": Cases(
        good=resolves(known),
        bad=resolves(unknown),
        silent="a name service that does not answer knows no names",
        nonsense=resolves(lambda *_: "nonsense"),
    ),
    "peers": Cases(
        good=peers_that(ConnectionRefusedError),
        bad=peers_that(TimeoutError),
        silent=resolves(unknown),
        nonsense=resolves(lambda *_, **__: "nonsense"),
    ),
    "infiniband": Cases(
        good=with_files(infiniband()),
        bad=with_files(infiniband("2: INIT")),
        silent=nothing,
        nonsense=with_files({**infiniband(), **WRONG}),
    ),
    "infiniband_errors": Cases(
        good=with_files(infiniband()),
        bad=growing(infiniband(), f"{PORT}/counters/symbol_error"),
        silent=nothing,
        nonsense=with_files({**infiniband(), f"{PORT}/counters/symbol_error": "~"}),
    ),
    "ethernet": Cases(
        good=with_files(ethernet()),
        bad=growing(ethernet(), f"{NET}/statistics/rx_errors"),
        silent=nothing,
        nonsense=with_files({**ethernet(), f"{NET}/statistics/rx_errors": "~"}),
    ),
    "software": Cases(
        good=nothing,
        bad=COMPARED,
        silent=lambda stage: stage.fails(platform, "release", UNREADABLE),
        nonsense="versions are told as they are, whatever they say",
    ),
    "machine": Cases(
        good=with_files({**PLENTY, "sys/devices/system/cpu/online": "0-63\n"}),
        bad=COMPARED,
        silent=nothing,
        nonsense=with_files({"proc/meminfo": "MemTotal: many kB\n"}),
    ),
    "site_command": Cases(
        good=site("true"), bad=site("exit 3"), silent=site("/etc/passwd"), nonsense=site("kill $$")
    ),
}

HANGING_FILES = (
    *(f"{PORT}/{name}" for name in ("state", "counters/symbol_error")),
    *(f"{NET}/{name}" for name in ("type",)),
    *(f"{EDAC}/ue_count", "proc/meminfo", "proc/loadavg", "proc/7/stat", "proc/uptime"),
    *("sys/devices/system/cpu/online", "proc/self/mounts", "sys/bus/pci/devices/0000:3b/vendor"),
)


def make_silent(root: Path) -> None:
    """Files of the kernel that never answer."""
    for name in HANGING_FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(root / name)
    (root / NET / "device").mkdir()
