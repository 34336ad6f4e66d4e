"""torch's own format: a dict of tensors by name, for `torch.load(..., weights_only=True)`.

torch.save wants all tensors at once, so they are laid into a file without a name, mapped: the
kernel may drop its pages again, and memory stays small.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from .entries import Entry, read
from .errors import ExportRefused
from .leaf import Form
from .numpy_state import Buffer, undescribe
from .shards import Shards

_ALIGNED = 64


def write(
    file: BinaryIO, shards: Shards, named: Mapping[str, Entry], advance: Callable[[int], None]
) -> None:
    """Raises ExportRefused, before anything is written."""
    try:
        import torch
    except ImportError as error:
        raise ExportRefused("a .pt file needs torch, which is not installed here") from error
    places, end = {}, 0
    for name, entry in named.items():
        _tensor(name, entry.form, np.zeros(entry.width, np.uint8))
        places[name] = end
        end += -(-entry.form.size_bytes // _ALIGNED) * _ALIGNED
    with tempfile.TemporaryFile(dir=Path(file.name).parent) as room:
        room.truncate(max(1, end))
        memory = np.memmap(room, np.uint8, "r+")
        tensors = {}
        for name, entry in named.items():
            start = at = places[name]
            for data in read(shards, entry):
                memory[at : at + data.nbytes] = data
                at += data.nbytes
                advance(data.nbytes)
            tensors[name] = _tensor(name, entry.form, np.asarray(memory[start:at]))
        torch.save(tensors, file)


def _tensor(name: str, form: Form, data: Buffer) -> object:
    import torch

    from . import torch_state

    shape = form.shape if data.nbytes == form.size_bytes else (1,)
    if form.kind == "torch":
        return torch_state.rebuild(Form("torch", form.dtype, shape, data.nbytes), data)
    try:
        return torch.from_numpy(data.view(undescribe(form.dtype)).reshape(shape))
    except (TypeError, ValueError) as error:
        raise ExportRefused(
            f"{name} has dtype {form.dtype}, which torch does not know: export to .npz, or use "
            "--under to leave it out"
        ) from error
