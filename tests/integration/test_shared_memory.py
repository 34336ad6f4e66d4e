"""What killed programs leave in /dev/shm is removed, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from relight.resilience.worker.shared_memory import remove_leftovers

PATIENCE_S = 60.0
# A process that keeps one file mapped and another open, until it is killed.
HOLDER = """
import mmap, sys
mapped, kept_open = sys.argv[1:]
with open(mapped, "r+b") as file:
    view = mmap.mmap(file.fileno(), 0)
still = open(kept_open)
print("up", flush=True)
sys.stdin.read()
"""


def all_seen(folder: Path) -> Path:
    """The processes that live now, as the host's own /proc shows them: we may be in a container."""
    (folder / "self" / "ns").mkdir(parents=True)
    (folder / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    for process in Path("/proc").glob("[0-9]*"):
        (folder / process.name).symlink_to(process)
    return folder


def test_only_what_nobody_uses_goes(tmp_path: Path) -> None:
    shm = tmp_path / "shm"
    shm.mkdir()
    used = [shm / "psm_mapped", shm / "nccl-open"]
    left = [shm / "torch_1_2", shm / "sem.mp-x", shm / "psm_left"]
    meant = shm / "dataset.bin"
    for path in (*used, *left, meant):
        path.write_bytes(b"x" * 4096)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, *map(str, used)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0,
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"up\n"
        remove_leftovers(0.0, shm, all_seen(tmp_path / "before"), limit_s=PATIENCE_S)
        assert sorted(shm.iterdir()) == sorted([*used, meant])
    finally:
        _kill_group(holder)
    remove_leftovers(0.0, shm, all_seen(tmp_path / "after"), limit_s=PATIENCE_S)
    assert list(shm.iterdir()) == [meant]


def processes(tmp_path: Path, namespace: str = "pid:[4026531836]") -> Path:
    """A /proc of one process, which is ours."""
    proc = tmp_path / "proc"
    (proc / "1").mkdir(parents=True)
    (proc / "7").mkdir()
    (proc / "7" / "status").write_text(f"State:\tS (sleeping)\nUid:\t{os.getuid()}\t0\t0\t0\n")
    (proc / "self" / "ns").mkdir(parents=True)
    (proc / "self" / "ns" / "pid").symlink_to(namespace)
    return proc


def test_what_cannot_be_seen_may_be_in_use(tmp_path: Path) -> None:
    (left := tmp_path / "psm_left").touch()
    (maps := processes(tmp_path) / "7" / "maps").mkdir()  # which nobody can read
    remove_leftovers(0.0, tmp_path, tmp_path / "proc", limit_s=PATIENCE_S)
    assert left.exists()
    maps.rmdir()
    later = left.stat().st_ctime + 1.0
    remove_leftovers(later, tmp_path, tmp_path / "proc", limit_s=PATIENCE_S)
    assert left.exists(), "it is older than the program"
    other = processes(tmp_path / "container", "pid:[4026532281]")
    remove_leftovers(0.0, tmp_path, other, limit_s=PATIENCE_S)
    assert left.exists(), "others than those of this namespace may use it"
    remove_leftovers(0.0, tmp_path, tmp_path / "proc", limit_s=PATIENCE_S)
    assert not left.exists()


def test_a_process_that_hangs_in_the_kernel_holds_nobody_up(tmp_path: Path) -> None:
    (left := tmp_path / "psm_left").touch()
    proc = processes(tmp_path)
    os.mkfifo(maps := proc / "7" / "maps")
    remove_leftovers(0.0, tmp_path, proc)
    assert left.exists(), "it may be in use"
    maps.write_text("")  # it goes on
    deadline = time.monotonic() + PATIENCE_S
    while left.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """With the process of Python's that would remove the segment."""
    subprocess.run(["kill", "-KILL", "--", f"-{process.pid}"], check=True)
    process.communicate()
