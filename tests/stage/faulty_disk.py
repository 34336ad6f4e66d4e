"""A file system that fails on demand: it shows another folder, over /dev/fuse, without a library.

    python -m stage.faulty_disk MOUNT_POINT FOLDER FAULT_FILE (late | early)

The fault file says what is wrong: {"call": "WRITE", "errno": 5, "after": 3} fails every write but
the first three, {"call": "WRITE", "stall_s": 0.5} makes each take so long, or until the file says
something else, {} is health.
"early" answers write(2) from the server, "late" lets the kernel cache writes, so that fsync fails.

The structures are those of linux/fuse.h, protocol 7.31.
"""

# The system's calls under their own names, some of them on descriptors:
# ruff: noqa: PTH102, PTH104, PTH106, PTH108, PTH118, PTH208

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

_CALLS: Final = {
    1: "LOOKUP", 2: "FORGET", 3: "GETATTR", 4: "SETATTR", 9: "MKDIR", 10: "UNLINK", 11: "RMDIR",
    12: "RENAME", 13: "LINK", 14: "OPEN", 15: "READ", 16: "WRITE", 17: "STATFS", 18: "RELEASE",
    20: "FSYNC", 26: "INIT", 27: "OPENDIR", 28: "READDIR", 29: "RELEASEDIR", 30: "FSYNCDIR",
    35: "CREATE", 42: "BATCH_FORGET", 43: "FALLOCATE", 45: "RENAME2",
}  # fmt: skip
_SILENT: Final = ("FORGET", "BATCH_FORGET")
_HEADER: Final = struct.Struct("<IIQQIIIHH")
_MOST_WRITE: Final = 1 << 17
_BIG_WRITES, _WRITEBACK = 1 << 5, 1 << 16
_ROOT: Final = 1


class Disk:
    """The test's side: what shall be wrong."""

    def __init__(self, root: Path, faults: Path) -> None:
        self.root = root
        self._faults = faults

    def fail(self, call: str, number: int, after: int = 0) -> None:
        self._say({"call": call, "errno": number, "after": after})

    def stall(self, call: str, seconds: float) -> None:
        self._say({"call": call, "stall_s": seconds})

    def mend(self) -> None:
        self._say({})

    def drop_caches(self) -> None:
        """So that the next read asks the server."""
        for path in self.root.rglob("*"):
            if path.is_file():
                fd = os.open(path, os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)

    def _say(self, fault: dict[str, object]) -> None:
        temporary = self._faults.with_suffix(".new")
        temporary.write_text(json.dumps(fault))
        temporary.replace(self._faults)


@contextmanager
def faulty_disk(folder: Path, *, late: bool) -> Iterator[Disk | None]:
    """Mounted below `folder`; None where that is not possible."""
    root, behind, faults = folder / "disk", folder / "behind", folder / "faults.json"
    for one in (root, behind):
        one.mkdir()
    disk = Disk(root, faults)
    disk.mend()
    command = [sys.executable, "-m", "stage.faulty_disk", str(root), str(behind), str(faults)]
    process = subprocess.Popen(
        [*command, "late" if late else "early"],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield disk if process.stdout.readline() == b"mounted\n" else None
    finally:
        subprocess.run(["umount", "-l", str(root)], check=False, capture_output=True)
        process.send_signal(signal.SIGKILL)
        process.communicate()


class Server:
    """Answers the kernel, one request after the other."""

    def __init__(self, fuse: int, behind: str, faults: str, *, late: bool) -> None:
        self._fuse = fuse
        self._paths = {_ROOT: behind}
        self._faults = faults
        self._fault: dict[str, object] = {}
        self._seen = 0
        self._late = late

    def serve(self) -> None:
        while True:
            try:
                request = os.read(self._fuse, _MOST_WRITE + (1 << 16))
            except OSError:
                return  # unmounted
            _, code, unique, node, *_ = _HEADER.unpack_from(request)
            call = _CALLS.get(code, "")
            answer, number = b"", errno.ENOSYS
            if call:
                answer, number = self._answer(call, node, request[_HEADER.size :])
            if call not in _SILENT:
                os.write(
                    self._fuse, struct.pack("<IiQ", 16 + len(answer), -number, unique) + answer
                )

    def _answer(self, call: str, node: int, body: bytes) -> tuple[bytes, int]:
        number = self._fault_of(call)
        if number:
            return b"", number
        try:
            handler: Callable[[int, bytes], bytes] = getattr(self, f"_{call.lower()}")
            return handler(node, body), 0
        except OSError as error:
            return b"", error.errno or errno.EIO

    def _fault_of(self, call: str) -> int:
        fault = self._fault_now()
        if fault != self._fault:
            self._fault, self._seen = fault, 0
        if fault.get("call") != call:
            return 0
        self._seen += 1
        over = time.monotonic() + fault.get("stall_s", 0.0)
        while time.monotonic() < over and self._fault_now() == fault:
            time.sleep(0.02)
        return int(fault.get("errno", 0)) if self._seen > fault.get("after", 0) else 0

    def _fault_now(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Path(self._faults).read_text())
        return found

    # Names

    def _path(self, node: int, name: bytes = b"") -> str:
        name = name.rstrip(b"\0")
        return os.path.join(self._paths[node], os.fsdecode(name)) if name else self._paths[node]

    def _entry(self, path: str) -> bytes:
        found = os.lstat(path)
        node = next((one for one, known in self._paths.items() if known == path), None)
        if node is None:
            node = max(self._paths) + 1
            self._paths[node] = path
        # Valid for no time, so that the kernel asks again.
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + _attributes(found)

    def _forgotten(self, path: str) -> None:
        """Its number is not given to another file: a handle may still have it."""
        for node, known in self._paths.items():
            if known == path:
                self._paths[node] = f"{path}/gone"

    def _lookup(self, node: int, body: bytes) -> bytes:
        return self._entry(self._path(node, body))

    def _getattr(self, node: int, body: bytes) -> bytes:
        flags, _, handle = struct.unpack_from("<IIQ", body)
        found = os.fstat(handle) if flags & 1 else os.lstat(self._path(node))
        return struct.pack("<QII", 0, 0, 0) + _attributes(found)

    def _setattr(self, node: int, body: bytes) -> bytes:
        valid, _, handle, size = struct.unpack_from("<IIQQ", body)
        if valid & 8:
            os.truncate(handle if valid & 64 else self._path(node), size)
        found = os.fstat(handle) if valid & 64 else os.lstat(self._path(node))
        return struct.pack("<QII", 0, 0, 0) + _attributes(found)

    def _mkdir(self, node: int, body: bytes) -> bytes:
        path = self._path(node, body[8:])
        os.mkdir(path, 0o700)
        return self._entry(path)

    def _unlink(self, node: int, body: bytes) -> bytes:
        os.unlink(self._path(node, body))
        self._forgotten(self._path(node, body))
        return b""

    def _rmdir(self, node: int, body: bytes) -> bytes:
        os.rmdir(self._path(node, body))
        self._forgotten(self._path(node, body))
        return b""

    def _rename(self, node: int, body: bytes) -> bytes:
        return self._renamed(node, _number(body), body[8:])

    def _rename2(self, node: int, body: bytes) -> bytes:
        return self._renamed(node, _number(body), body[16:])

    def _renamed(self, node: int, new_node: int, names: bytes) -> bytes:
        old, new, _ = names.split(b"\0")
        before, after = self._path(node, old), self._path(new_node, new)
        os.rename(before, after)
        self._forgotten(after)
        for one, known in self._paths.items():
            if known == before or known.startswith(f"{before}/"):
                self._paths[one] = after + known[len(before) :]
        return b""

    def _link(self, node: int, body: bytes) -> bytes:
        path = self._path(node, body[8:])
        old = _number(body)
        os.link(self._path(old), path)
        found = os.lstat(path)  # the two names are one file, and one number
        return struct.pack("<QQQQII", old, 0, 0, 0, 0, 0) + _attributes(found)

    def _statfs(self, node: int, body: bytes) -> bytes:
        found = os.statvfs(self._paths[_ROOT])
        numbers = (found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree)
        return struct.pack("<5Q4I24x", *numbers, found.f_bsize, 255, found.f_frsize, 0)

    # Files

    def _open(self, node: int, body: bytes) -> bytes:
        (flags,) = struct.unpack_from("<I", body)
        return self._handle(os.open(self._path(node), self._flags(flags)))

    def _create(self, node: int, body: bytes) -> bytes:
        flags, mode = struct.unpack_from("<II", body)
        path = self._path(node, body[16:])
        fd = os.open(path, self._flags(flags) | os.O_CREAT, mode & 0o777)
        return self._entry(path) + self._handle(fd)

    def _flags(self, flags: int) -> int:
        """Without O_DIRECT, and readable: a kernel that caches writes reads, and aligns nothing."""
        access = os.O_RDWR if flags & os.O_ACCMODE else os.O_RDONLY
        return access | (flags & (os.O_EXCL | os.O_TRUNC))

    def _handle(self, fd: int) -> bytes:
        return struct.pack("<QII", fd, 0, 0)

    def _read(self, node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(handle, size, offset)

    def _write(self, node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return struct.pack("<II", os.pwrite(handle, body[40 : 40 + size], offset), 0)

    def _fsync(self, node: int, body: bytes) -> bytes:
        return b""  # what the server has is safe enough for a test

    def _fallocate(self, node: int, body: bytes) -> bytes:
        handle, offset, length, mode = struct.unpack_from("<QQQI", body)
        if mode:
            raise OSError(errno.EOPNOTSUPP, "mode")
        os.posix_fallocate(handle, offset, length)
        return b""

    def _release(self, node: int, body: bytes) -> bytes:
        os.close(_number(body))
        return b""

    def _opendir(self, node: int, body: bytes) -> bytes:
        return self._handle(os.open(self._path(node), os.O_RDONLY | os.O_DIRECTORY))

    def _readdir(self, node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        listed = b""
        for place, name in enumerate(sorted(os.listdir(handle))[offset:], offset + 1):
            encoded = os.fsencode(name)
            one = struct.pack("<QQII", place, place, len(encoded), 0) + encoded
            one += b"\0" * (-len(one) % 8)
            if len(listed) + len(one) > size:
                break
            listed += one
        return listed

    _fsyncdir = _fsync
    _releasedir = _release

    def _forget(self, node: int, body: bytes) -> bytes:
        return b""

    _batch_forget = _forget

    def _init(self, node: int, body: bytes) -> bytes:
        flags = _BIG_WRITES | (_WRITEBACK if self._late else 0)
        return struct.pack("<4IHHIIHHI28x", 7, 31, 1 << 17, flags, 16, 12, _MOST_WRITE, 1, 0, 0, 0)


def _number(body: bytes) -> int:
    """A node or a handle, which stand first."""
    return int.from_bytes(body[:8], "little")


def _attributes(found: os.stat_result) -> bytes:
    times = (int(found.st_atime), int(found.st_mtime), int(found.st_ctime))
    return struct.pack(
        "<6Q10I",
        *(found.st_ino, found.st_size, found.st_blocks, *times, 0, 0, 0),
        *(found.st_mode, found.st_nlink, found.st_uid, found.st_gid, 0, 4096, 0),
    )


def main(root: str, behind: str, faults: str, when: str) -> None:
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    mount = ctypes.CDLL(None, use_errno=True).mount
    if mount(b"faulty", root.encode(), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    sys.stdout.write("mounted\n")
    sys.stdout.flush()
    Server(fuse, behind, faults, late=when == "late").serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
