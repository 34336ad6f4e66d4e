"""Plain Python values as JSON, exactly: what JSON has no spelling for gets a one-member object."""

from __future__ import annotations

import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import cast

from .sealed import Json

FACTORIES: dict[str, Callable[[], object] | None] = {
    "None": None,
    **{kind.__name__: kind for kind in (bool, int, float, str, bytes, list, dict, set, tuple)},
}
FACTORY_NAMES = {factory: name for name, factory in FACTORIES.items()}
_JSON_INT = 1 << 63


def encode_int(value: int) -> Json:
    """Hexadecimal beyond 64 bits: decimal text is slow there and Python limits its length."""
    return value if -_JSON_INT <= value < _JSON_INT else {"int": hex(value)}


def encode_float(value: float) -> Json:
    """Finite ones as the shortest decimal text that reads back equal, others by their bits."""
    return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}


def encode_complex(value: complex) -> Json:
    return {"complex": struct.pack(">dd", value.real, value.imag).hex()}


def encode_str(value: str) -> Json:
    """JSON would join two lone surrogates into one character, so such text is kept as bytes."""
    return value if is_text(value) else {"str": value.encode("utf-8", "surrogatepass").hex()}


def encode_bytes(value: bytes) -> Json:
    return {"bytes": b64encode(value).decode("ascii")}


def is_text(value: str) -> bool:
    if value.isascii():
        return True
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def decode_int(text: str) -> int:
    return int(text, 16)


def decode_float(text: str) -> float:
    return cast(float, struct.unpack(">d", bytes.fromhex(text))[0])


def decode_complex(text: str) -> complex:
    return complex(*struct.unpack(">dd", bytes.fromhex(text)))


def decode_str(text: str) -> str:
    return bytes.fromhex(text).decode("utf-8", "surrogatepass")


def decode_bytes(text: str) -> bytes:
    return b64decode(text, validate=True)
