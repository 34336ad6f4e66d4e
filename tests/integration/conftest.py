"""What several integration tests share."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from stage.proxy import Proxy

_ROOM_BYTES = 8 * 1024**2


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 8 MiB: in memory, or a real one in a file."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_ROOM_BYTES}", "relight-test"]
    if request.param == "ext4":
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(2 * _ROOM_BYTES)
        made = subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=False)
        if made.returncode != 0:
            pytest.skip("ext4 cannot be made here")
        mount = ["mount", "-o", "loop", str(image)]
    if subprocess.run([*mount, str(disk)], check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting is not allowed here")
    found = os.statvfs(disk)
    if (more := found.f_bavail * found.f_frsize - _ROOM_BYTES) > 0:
        with (disk / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, more)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture
def under_quota(tmp_path: Path) -> Iterator[Path]:
    """A folder that takes 8 MiB on a real file system with far more room: btrfs, in a file."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    image, disk = tmp_path / "image", tmp_path / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(200 * 1024**2)
    folder = disk / "limited"

    def call(*command: str | Path) -> None:
        subprocess.run(command, check=True, capture_output=True)

    call("mkfs.btrfs", "-q", image)
    call("mount", "-o", "loop", image, disk)
    try:
        call("btrfs", "quota", "enable", disk)
        call("btrfs", "subvolume", "create", folder)
        call("btrfs", "qgroup", "limit", str(_ROOM_BYTES), folder)
        yield folder
    finally:
        call("umount", disk)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A way that can be cut."""
    with Proxy().running() as running:
        yield running
