"""Which arrays of a shard get shorter by shuffle and zstd, and the chunks that they become."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from functools import partial
from math import gcd, prod
from typing import Final, NamedTuple

from . import blocks, codec
from .chunks import WIDTHS
from .index import Index, Run
from .read_shard import Shard

_WORTH: Final = 0.05  # of what there was; less is not worth the time that reading it takes
_SAMPLE_BYTES: Final = 1 << 20  # zstd looks at 128 KiB at a time, which is one byte of 8 in each
_THREADS: Final = 2  # of a rank, beside its program


def worthwhile(shard: Shard, runs: Mapping[int, Run]) -> dict[int, int]:
    """Of some runs, by place, those to be compressed, and how many bytes their elements have.

    Raises OSError, CodecMissing.
    """
    codec.require()
    widths = {place: _width(shard.index, run) for place, run in runs.items()}
    pays = blocks.in_parallel(
        lambda place: _pays(shard, runs[place], widths[place]), runs, _THREADS
    )
    return {place: widths[place] for place, so in zip(runs, pays, strict=True) if so}


def _width(index: Index, run: Run) -> int:
    """Of an element, or of what it is made of: a complex number is two floats."""
    assert run.array is not None
    form = index.forms[index.arrays[run.array]]
    return gcd(form.size_bytes // max(1, prod(form.shape)), WIDTHS[-1])


def _pays(shard: Shard, run: Run, width: int) -> bool:
    """By a sample: what cannot be compressed costs no more than that."""
    starts = [0]
    size_bytes = run.size_bytes
    if size_bytes > 2 * _SAMPLE_BYTES:
        size_bytes = _SAMPLE_BYTES
        starts = [(run.size_bytes - size_bytes) * third // 3 // width * width for third in (1, 2)]
    samples = [shard.unverified(run, start, start + size_bytes) for start in starts]
    packed_bytes = sum(len(codec.pack(sample, width)) for sample in samples)
    return _is_worth(packed_bytes, size_bytes * len(samples))


def _is_worth(packed_bytes: int, size_bytes: int) -> bool:
    return packed_bytes <= size_bytes * (1 - _WORTH)


class Cut(NamedTuple):
    """One chunk to be."""

    run: Run
    start: int
    chunk_bytes: int
    width: int


def cuts(index: Index, run: Run, width: int) -> list[Cut]:
    chunk_bytes = min(index.block_bytes, run.size_bytes)
    return [Cut(run, at, chunk_bytes, width) for at in range(0, run.size_bytes, chunk_bytes)]


def chunks(shard: Shard, cuts: Iterable[Cut], digests: list[bytes]) -> Generator[bytes, None, None]:
    """The chunks of all arrays, one after the other; their digests are noted."""
    for chunk in blocks.in_parallel(partial(_chunk, shard), cuts, _THREADS):
        digests.append(blocks.digest(chunk))
        yield chunk


def _chunk(shard: Shard, cut: Cut) -> bytes:
    stop = min(cut.start + cut.chunk_bytes, cut.run.size_bytes)
    data = shard.unverified(cut.run, cut.start, stop, cut.chunk_bytes)
    packed = codec.pack(data, cut.width)
    return packed if _is_worth(len(packed), len(data)) else bytes(data)
