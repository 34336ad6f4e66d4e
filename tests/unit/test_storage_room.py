"""How much memory is left: of the machine, and of every control group above this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from relight.storage.staging_room import room_bytes

GIB = 1024**3


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    (folder / "self").mkdir(parents=True)
    (folder / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable:   8388608 kB\nSwapFree: 1 kB\n")
    return folder


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_that_of_the_machine_where_no_group_has_a_limit(proc: Path, tmp_path: Path) -> None:
    (proc / "self/cgroup").write_text("0::/\n")
    assert room_bytes(proc, tmp_path / "groups") == 8 * GIB


def test_the_tightest_group_counts_and_cached_files_are_free(proc: Path, tmp_path: Path) -> None:
    (proc / "self/cgroup").write_text("0::/job/step\n")
    groups = tmp_path / "groups"
    stat = f"anon 5\nactive_file {GIB // 2}\ninactive_file {GIB // 2}"
    write(groups / "job", memory__max=str(4 * GIB), memory__current=str(3 * GIB), memory__stat=stat)
    write(groups / "job/step", memory__max="max", memory__current="5", memory__stat=stat)
    assert room_bytes(proc, groups) == 2 * GIB


def test_groups_of_version_1(proc: Path, tmp_path: Path) -> None:
    (proc / "self/cgroup").write_text("5:cpu:/a\n4:memory:/slurm/job_7\n")
    folder = tmp_path / "groups/memory/slurm/job_7"
    write(folder, memory__limit_in_bytes=str(3 * GIB), memory__usage_in_bytes=str(2 * GIB))
    write(folder, memory__stat=f"cache 9\ntotal_inactive_file {GIB}\ntotal_active_file 0")
    assert room_bytes(proc, tmp_path / "groups") == 2 * GIB


def test_of_this_machine() -> None:
    assert room_bytes() > 0
