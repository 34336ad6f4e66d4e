"""The safetensors format: the length of a JSON header, the header, and the arrays without gaps.

See https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import BinaryIO, Final

from .entries import Entry, read
from .errors import ExportRefused
from .shards import Shards

_DTYPES: Final[Mapping[str, Mapping[str, str]]] = {
    "torch": {
        "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
        "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
        "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
        "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
        "bool": "BOOL", "complex64": "C64",
    },
    "numpy": {
        "<f8": "F64", "<f4": "F32", "<f2": "F16", "<i8": "I64", "<i4": "I32", "<i2": "I16",
        "|i1": "I8", "<u8": "U64", "<u4": "U32", "<u2": "U16", "|u1": "U8", "|b1": "BOOL",
        "<c8": "C64",
    },
}  # fmt: skip
_KINDS: Final[Mapping[str, str]] = {
    "torch": "torch",
    "numpy": "numpy",
    "scalar": "numpy",
    "bytes": "numpy",
}
_ALIGNED: Final = 8


def write(
    file: BinaryIO, shards: Shards, named: Mapping[str, Entry], advance: Callable[[int], None]
) -> None:
    """Raises ExportRefused, before anything is written."""
    # Wide elements first, as the library itself has it: so all of them are aligned.
    ordered = sorted(named.items(), key=lambda item: (-item[1].width, item[0]))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, entry in ordered:
        start, end = end, end + entry.form.size_bytes
        header[name] = {
            "dtype": _dtype(name, entry),
            "shape": list(entry.form.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNED)
    file.write(len(text).to_bytes(8, "little") + text)
    for _, entry in ordered:
        for data in read(shards, entry):
            file.write(data.data)
            advance(data.nbytes)


def _dtype(name: str, entry: Entry) -> str:
    known = _DTYPES[_KINDS[entry.form.kind]]
    if name == "__metadata__" or entry.form.dtype not in known:
        raise ExportRefused(
            f"{name} has dtype {entry.form.dtype}, which safetensors does not know: export to .npz "
            "or .pt, or use --under to leave it out"
        )
    return known[entry.form.dtype]
