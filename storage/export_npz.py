"""numpy's .npz: a zip file, not compressed, of one .npy for each array."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from typing import BinaryIO, Final

import numpy as np

from .entries import Entry, read
from .errors import ExportRefused
from .numpy_state import undescribe
from .shards import Shards

_OF_TORCH: Final = {  # dtypes that numpy has too, under the same names
    "float64", "float32", "float16", "int64", "int32", "int16", "int8",
    "uint64", "uint32", "uint16", "uint8", "bool", "complex64", "complex128",
}  # fmt: skip


def write(
    file: BinaryIO, shards: Shards, named: Mapping[str, Entry], advance: Callable[[int], None]
) -> None:
    """Raises ExportRefused, before anything is written."""
    headers = {name: _header(name, entry) for name, entry in named.items()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, entry in named.items():
            # Of a fixed date, so that equal arrays make equal files.
            info = zipfile.ZipInfo(f"{name}.npy")
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array_header_2_0(member, headers[name])
                for data in read(shards, entry):
                    member.write(data.data)
                    advance(data.nbytes)


def _header(name: str, entry: Entry) -> dict[str, object]:
    form = entry.form
    if form.kind == "torch" and form.dtype not in _OF_TORCH:
        raise ExportRefused(
            f"{name} has dtype {form.dtype}, which numpy does not know: export to .safetensors or "
            ".pt, or use --under to leave it out"
        )
    if "\0" in name:
        raise ExportRefused(f"{name!r} cannot be a name in a zip file: export to .safetensors")
    dtype = np.dtype(form.dtype) if form.kind == "torch" else undescribe(form.dtype)
    return {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": form.shape,
    }
