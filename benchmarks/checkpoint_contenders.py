"""Who saves and restores in `checkpoint.py`: relight, its peers, and the limits of the machine.

Every save is durable when it returns: data and the names of the files are fsynced for all.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load as load_dcp
from torch.distributed.checkpoint.state_dict_saver import save as save_dcp

from relight.storage.checkpointer import load_shard, save_shard
from relight.storage.choose import newest_valid
from relight.storage.commit import claim_epoch, commit
from relight.storage.layout import Incarnation
from relight.storage.page_memory import in_huge_pages

State = dict[str, torch.Tensor]
_BLOCK_BYTES = 8 << 20
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Contender:
    """Saves into an empty folder; `restore` may load into the state that it is given.

    That is like the one that was saved, of other values, and its pages are there.

    One that takes minutes for more than `most_arrays` is not asked to.
    """

    name: str
    save: Callable[[Path, State], None]
    restore: Callable[[Path, State], State]
    most_arrays: float = math.inf


def contenders() -> list[Contender]:
    """relight first, and those that come with torch and h5py."""
    return [
        Contender("relight", _save_relight, _restore_relight),
        Contender("relight, in place", _save_relight, _restore_in_place),
        Contender("torch.save", _save_torch, _restore_torch),
        Contender("DCP, 1 thread", _dcp(1), _restore_dcp),
        Contender("DCP, 4 threads", _dcp(4), _restore_dcp),
        Contender("h5py", _save_h5py, _restore_h5py),
    ]


class Raw:
    """The same bytes without any format: what disk and memory of this machine can do."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = -(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES
        self._source, self._target = (in_huge_pages(self.size_bytes) for _ in range(2))
        noise = os.urandom(_BLOCK_BYTES)
        for start in range(0, self.size_bytes, _BLOCK_BYTES):
            block = self._source[start : start + _BLOCK_BYTES]
            block[:] = noise[: len(block)]
        self.copy()

    def copy(self) -> None:
        self._target[:] = self._source

    def write(self, path: Path) -> None:
        """Direct, into reserved space, by four threads, from whole pages: no copy, no digest."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o600)
        ctypes.CDLL(None).fallocate(fd, 0, ctypes.c_int64(0), ctypes.c_int64(self.size_bytes))
        self._each(lambda at, end: os.pwrite(fd, self._source[at:end], at), 4)
        os.fsync(fd)
        os.close(fd)
        fsync_dir(path.parent)

    def read(self, path: Path, direct: bool, threads: int) -> None:
        """Into memory that is there already, which no restore finds."""
        fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
        self._each(lambda at, end: os.preadv(fd, [self._target[at:end]], at), threads)
        os.close(fd)

    def _each(self, work: Callable[[int, int], int], threads: int) -> None:
        starts = range(0, self.size_bytes, _BLOCK_BYTES)
        ends = [min(start + _BLOCK_BYTES, self.size_bytes) for start in starts]
        with ThreadPoolExecutor(threads) as pool:
            if sum(pool.map(work, starts, ends)) != self.size_bytes:
                raise OSError("a short transfer")


def fsync_dir(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def make_durable(folder: Path) -> None:
    """Fsyncs all files and folders."""
    for path in [*folder.rglob("*"), folder, folder.parent]:
        fsync_dir(path)


def _save_relight(folder: Path, state: State) -> None:
    incarnation = Incarnation("bench", 0)
    epoch = claim_epoch(folder, incarnation)
    receipt = save_shard(folder, 1, incarnation, 0, 1, state)
    commit(folder, 1, incarnation, epoch, [receipt], {})


def _restore_relight(folder: Path, _: State) -> State:
    return _loaded(folder, {})


def _restore_in_place(folder: Path, there: State) -> State:
    return _loaded(folder, {(): there})


def _loaded(folder: Path, into: dict[tuple[str, ...], object]) -> State:
    manifest = newest_valid(folder)
    if manifest is None:
        raise FileNotFoundError(folder)
    loaded: dict[str, Any] = load_shard(folder, manifest, 0, into=into)
    return loaded


def _save_torch(folder: Path, state: State) -> None:
    torch.save(state, folder / "state.pt")
    make_durable(folder)


def _restore_torch(folder: Path, _: State) -> State:
    loaded: State = torch.load(folder / "state.pt", weights_only=True)
    return loaded


def _dcp(threads: int) -> Callable[[Path, State], None]:
    def save(folder: Path, state: State) -> None:
        writer = FileSystemWriter(folder, thread_count=threads, sync_files=True)
        save_dcp({**state}, storage_writer=writer, no_dist=True)
        make_durable(folder)

    return save


def _restore_dcp(folder: Path, there: State) -> State:
    load_dcp({**there}, storage_reader=FileSystemReader(folder), no_dist=True)
    return there


def _save_h5py(folder: Path, state: State) -> None:
    with h5py.File(folder / "state.h5", "w") as file:
        for name, tensor in state.items():
            file.create_dataset(name, data=tensor.numpy())
    make_durable(folder)


def _restore_h5py(folder: Path, there: State) -> State:
    with h5py.File(folder / "state.h5", "r") as file:
        return {name: torch.from_numpy(np.asarray(file[name][()])) for name in there}
