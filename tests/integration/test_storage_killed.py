"""A save that dies at any change to the file system harms nothing and can be repeated.

The save runs in a fork under ptrace(2), which stops it at every system call of every thread, HDF5's
own too. It is killed just before the n-th call that may change what is on disk, for every n.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from relight.storage.checkpointer import load_shard, save_shard
from relight.storage.choose import newest_valid
from relight.storage.commit import claim_epoch, commit, commit_complete
from relight.storage.layout import Incarnation
from relight.storage.prune import prune
from relight.storage.retention import Keep
from relight.storage.verify import verify

OLD, DYING, NEXT = Incarnation("1.0", 0), Incarnation("1.0", 1), Incarnation("2.0", 0)
LIBC = ctypes.CDLL(None, use_errno=True)
TRACEME, SYSCALL, SETOPTIONS, GET_SYSCALL_INFO = 0, 24, 0x4200, 0x420E
GOOD_STOPS, FOLLOW_THREADS, KILL_WITH_US = 0x1, 0x8, 0x100000
ANY_THREAD = 0x40000000
CHANGING = {  # numbers of x86-64
    1: "write", 2: "open", 18: "pwrite64", 74: "fsync", 77: "ftruncate", 82: "rename",
    83: "mkdir", 84: "rmdir", 86: "link", 87: "unlink", 257: "openat", 258: "mkdirat",
    263: "unlinkat", 264: "renameat", 265: "linkat", 285: "fallocate", 296: "pwritev",
}  # fmt: skip
FLAGS_OF = {"open": 1, "openat": 2}  # their arguments from 0
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the system call numbers are those of x86-64"
)


FROZEN = np.arange(10_000, dtype="f8")  # is left in the shard that has it, under one more name


def state(step: int) -> dict[str, object]:
    changing = {"w": np.full(20_000, step, "f8"), "small": np.arange(step), "step": step}
    return {"frozen": FROZEN, **changing}


def save(directory: Path, step: int, incarnation: Incarnation, epoch: int) -> None:
    receipts = [
        save_shard(directory, step, incarnation, rank, 2, state(step), reuse=5) for rank in range(2)
    ]
    commit(directory, step, incarnation, epoch, receipts, {})


def save_and_prune(directory: Path) -> None:
    save(directory, 3, DYING, 1)
    prune(directory, Keep(last=1), 1, DYING)


def dies_at(call: int, directory: Path) -> bool:
    """Saves in a fork that is killed at a changing call; False when it came to its end."""
    child = os.fork()
    if child == 0:
        result = 1
        try:
            if ptrace(TRACEME, 0) == 0:
                os.kill(os.getpid(), signal.SIGSTOP)
                save_and_prune(directory)
                result = 0
        finally:
            os._exit(result)
    _, status = os.waitpid(child, 0)
    if not os.WIFSTOPPED(status):
        pytest.skip("ptrace is not allowed here")
    ptrace(SETOPTIONS, child, GOOD_STOPS | FOLLOW_THREADS | KILL_WITH_US)
    ptrace(SYSCALL, child)
    status = run_to(call, child)
    assert status in (0, signal.SIGKILL), "the save itself failed"
    return status == signal.SIGKILL


def run_to(call: int, child: int) -> int:
    """Lets all threads of the child run, kills it at the call, and returns its wait status."""
    made = 0
    while True:
        thread, status = os.waitpid(-1, ANY_THREAD)
        if not os.WIFSTOPPED(status):
            if thread == child:
                return status
            continue
        stop = os.WSTOPSIG(status)
        if stop == signal.SIGTRAP | 0x80 and is_about_to_change(thread):
            made += 1
            if made == call:
                os.kill(child, signal.SIGKILL)
        ours = stop in (signal.SIGTRAP | 0x80, signal.SIGTRAP, signal.SIGSTOP)
        ptrace(SYSCALL, thread, 0 if ours else stop)


def is_about_to_change(thread: int) -> bool:
    """Whether a stopped thread is about to make a call that may change what is on disk."""
    info = (ctypes.c_uint64 * 11)()
    size = ctypes.c_void_p(ctypes.sizeof(info))
    LIBC.ptrace(ctypes.c_long(GET_SYSCALL_INFO), ctypes.c_long(thread), size, info)
    if info[0] & 0xFF != 1 or info[3] not in CHANGING:
        return False
    place = FLAGS_OF.get(CHANGING[info[3]])
    return place is None or bool(info[4 + place] & WRITING)


def ptrace(request: int, thread: int, data: int = 0) -> int:
    arguments = (ctypes.c_long(request), ctypes.c_long(thread), None, ctypes.c_void_p(data))
    return int(LIBC.ptrace(*arguments))


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A directory with two committed steps."""
    directory = tmp_path / "before"
    epoch = claim_epoch(directory, OLD)
    save(directory, 1, OLD, epoch)
    save(directory, 2, OLD, epoch)
    return directory


def test_a_save_killed_at_any_call_can_be_repeated_by_anyone(tmp_path: Path, before: Path) -> None:
    call = 0
    died = True
    while died:
        call += 1
        directory = Path(shutil.copytree(before, tmp_path / str(call)))
        died = dies_at(call, directory)
        repeated = Path(shutil.copytree(directory, tmp_path / f"{call}.repeated"))
        left = newest_valid(directory)
        assert left is not None
        assert left.step in (2, 3), call
        assert verify(directory).sound, call
        assert_restorable(directory)
        epoch = claim_epoch(directory, NEXT)
        commit_complete(directory, epoch)
        save(directory, 3, NEXT, epoch)
        prune(directory, Keep(last=1), epoch, NEXT)
        assert assert_restorable(directory) == 3, call
        assert verify(directory).steps == (3,), call
        folders = {path.name for path in (directory / "000000000003").glob("*.g*")}
        assert folders <= {committer(directory), NEXT.folder}, call
        save(repeated, 3, DYING, 1)  # by the incarnation that was killed itself
        assert assert_restorable(repeated) == 3, call
        assert verify(repeated).sound, call
    assert call > 60, "the harness saw too few calls to mean anything"
    print(f"killed at {call - 1} calls")


def committer(directory: Path) -> str:
    manifest = newest_valid(directory)
    assert manifest is not None
    return manifest.incarnation.folder


def assert_restorable(directory: Path) -> int:
    manifest = newest_valid(directory)
    assert manifest is not None
    for rank in range(2):
        loaded = load_shard(directory, manifest, rank)
        assert loaded["step"] == manifest.step
        assert np.array_equal(np.asarray(loaded["w"]), np.asarray(state(manifest.step)["w"]))
        assert np.array_equal(np.asarray(loaded["frozen"]), FROZEN)
    return manifest.step


def test_the_harness_kills(tmp_path: Path) -> None:
    claim_epoch(tmp_path, OLD)
    assert dies_at(1, tmp_path)
    assert not dies_at(10_000, tmp_path)
    assert assert_restorable(tmp_path) == 3
    claim_epoch(tmp_path, NEXT)
    with pytest.raises(AssertionError, match="the save itself failed"):
        dies_at(10_000, tmp_path)
