"""Copies a shard and compresses, on the way, the arrays of it that get shorter by that.

The copy is one of any HDF5 file with the filters shuffle and zstd. Its digests are those of the
values, as in the shard that it is made of.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from math import gcd, prod
from pathlib import Path
from typing import Final, NamedTuple

from . import blocks, codec
from .chunks import WIDTHS, Chunk, Chunked
from .container import Container, Extent, Packing, create
from .index import Index
from .index import Run as Saved
from .output import Run, way_to_write
from .read_shard import Shard
from .receipt import AsSaved, Receipt
from .write_shard import Written, complete

_WORTH: Final = 0.05  # of what there was; less is not worth the time that reading it takes
_SAMPLE_BYTES: Final = 1 << 20  # zstd looks at 128 KiB at a time, which is one byte of 8 in each
_THREADS: Final = 2  # of a rank, beside its program


def compressed(source: Path, receipt: Receipt, target: Path) -> Receipt | None:
    """The receipt of the copy, which is fsynced; None, and no copy, when nothing gets shorter.

    `target` must not exist. What is read is not verified: whoever reads the copy will see.
    Raises OSError, CheckpointDamaged, CodecMissing.
    """
    codec.require()
    with Shard(source, receipt) as shard:
        *own, pack = shard.index.runs()
        widths = _widths(shard, own)
        if not widths:
            return None
        container, index = _create(target, shard, widths)
        rest = [run for place, run in enumerate(own) if place not in widths]
        written = complete(
            target,
            way_to_write(target.parent, sum(run.size_bytes for run in rest)),
            container,
            index,
            _copies(shard, [*rest, pack], container),
            lambda _: map(shard.digests_of, shard.index.runs()),
        )
    return _of_copy(receipt, written)


def _of_copy(receipt: Receipt, written: Written) -> Receipt:
    return replace(
        receipt,
        size_bytes=written.size_bytes,
        digest=written.digest,
        index_at=written.index.at,
        index_bytes=written.index.size_bytes,
        digests_at=written.digests.at,
        digests_bytes=written.digests.size_bytes,
        uncompressed=AsSaved(
            size_bytes=receipt.size_bytes,
            digest=receipt.digest,
            index_at=receipt.index_at,
            index_bytes=receipt.index_bytes,
            digests_at=receipt.digests_at,
            digests_bytes=receipt.digests_bytes,
        ),
    )


# What is worth it


def _widths(shard: Shard, own: Sequence[Saved]) -> dict[int, int]:
    """By place, the arrays to be compressed, and how many bytes their elements have."""
    widths = [_width(shard.index, run) for run in own]
    pays = blocks.in_parallel(
        lambda pair: _pays(shard, *pair), zip(own, widths, strict=True), _THREADS
    )
    return {place: widths[place] for place, so in enumerate(pays) if so}


def _width(index: Index, run: Saved) -> int:
    """Of an element, or of what it is made of: a complex number is two floats."""
    assert run.array is not None
    form = index.forms[index.arrays[run.array]]
    return gcd(form.size_bytes // max(1, prod(form.shape)), WIDTHS[-1])


def _pays(shard: Shard, run: Saved, width: int) -> bool:
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


# The copy


def _create(target: Path, shard: Shard, widths: Mapping[int, int]) -> tuple[Container, bytes]:
    """The new file with its chunks, and its index."""
    *own, pack = shard.index.runs()
    cuts = {place: _cuts(shard.index, own[place], width) for place, width in widths.items()}
    digests: list[bytes] = []
    with closing(_chunks(shard, chain.from_iterable(cuts.values()), digests)) as chunks:
        return create(
            target,
            [run.size_bytes for run in own],
            {
                place: Packing(one[0].chunk_bytes, widths[place], islice(chunks, len(one)))
                for place, one in cuts.items()
            },
            pack.size_bytes,
            sum(len(shard.digests_of(run)) for run in shard.index.runs()) + blocks.DIGEST_BYTES,
            lambda places, pack_place: _index(
                shard.index, widths, places, pack_place, digests
            ).to_bytes(),
        )


class _Cut(NamedTuple):
    """One chunk to be."""

    run: Saved
    start: int
    chunk_bytes: int
    width: int


def _cuts(index: Index, run: Saved, width: int) -> list[_Cut]:
    chunk_bytes = min(index.block_bytes, run.size_bytes)
    return [_Cut(run, at, chunk_bytes, width) for at in range(0, run.size_bytes, chunk_bytes)]


def _chunks(
    shard: Shard, cuts: Iterable[_Cut], digests: list[bytes]
) -> Generator[bytes, None, None]:
    """The chunks of all arrays, one after the other; their digests are noted."""
    for chunk in blocks.in_parallel(partial(_chunk, shard), cuts, _THREADS):
        digests.append(blocks.digest(chunk))
        yield chunk


def _chunk(shard: Shard, cut: _Cut) -> bytes:
    stop = min(cut.start + cut.chunk_bytes, cut.run.size_bytes)
    data = shard.unverified(cut.run, cut.start, stop, cut.chunk_bytes)
    packed = codec.pack(data, cut.width)
    return packed if _is_worth(len(packed), len(data)) else bytes(data)


def _index(
    index: Index,
    widths: Mapping[int, int],
    places: Sequence[Sequence[Extent]],
    pack_place: Extent,
    digests: Sequence[bytes],
) -> Index:
    following = iter(digests)
    chunked = {
        place: Chunked(
            width,
            tuple(Chunk(one.at, one.size_bytes, next(following)) for one in places[place]),
        )
        for place, width in widths.items()
    }
    at = tuple(extents[0].at for extents in places)
    return replace(index, at=at, pack_at=pack_place.at, chunked=chunked)


def _copies(shard: Shard, runs: Iterable[Saved], container: Container) -> Iterable[Run]:
    """What is not compressed."""
    for run, extent in zip(runs, (*container.arrays, container.pack), strict=True):
        yield Run(extent.at, run.size_bytes, partial(_piece, shard, run))


def _piece(shard: Shard, run: Saved, start: int, stop: int) -> memoryview:
    return memoryview(shard.unverified(run, start, stop))
