"""JSON records that carry their own digest: a changed bit makes them unreadable, never wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TypeVar, cast

import xxhash

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
T = TypeVar("T")


def canonical(value: Mapping[str, Json]) -> bytes:
    """The one spelling of a record. Raises TypeError or ValueError for what JSON cannot hold."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def seal(body: Mapping[str, Json]) -> bytes:
    """The record as bytes, with the xxh3-128 of its canonical spelling beside it."""
    digest = xxhash.xxh3_128_hexdigest(canonical(body))
    return canonical({"body": dict(body), "digest": digest}) + b"\n"


def unseal(data: bytes) -> dict[str, Json]:
    """The body of a sealed record. Raises ValueError when any byte differs from what was sealed."""
    try:
        record = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a JSON record ({error})") from error
    if not isinstance(record, dict) or not isinstance(record.get("body"), dict):
        raise ValueError("not a sealed record")
    body = cast(dict[str, Json], record["body"])
    if seal(body) != data:
        raise ValueError("its digest does not match its content")
    return body


def field(body: Mapping[str, Json], name: str, kind: type[T]) -> T:
    """A field of exactly this type (a bool is no int). Raises ValueError."""
    if name not in body:
        raise ValueError(f"field {name!r} is missing")
    value = body[name]
    if type(value) is not kind:
        raise ValueError(f"field {name!r} is {value!r:.80}, expected {kind.__name__}")
    return value


def only(body: Mapping[str, Json], known: Iterable[str]) -> None:
    """Raises ValueError when the record has fields that nobody knows."""
    unknown = sorted(set(body) - set(known))
    if unknown:
        raise ValueError(f"unknown fields {unknown}")
