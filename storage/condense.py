"""Copies a shard with less to write.

Arrays that the directory has already are shared, as by a save, and of the others those are
compressed that get shorter by that. The digests of the copy are those of the values, as in the
shard that it is made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

from . import blocks, compress
from .chunks import Chunk, Chunked
from .container import Container, Extent, Packing, create
from .index import Index
from .index import Run as SavedRun
from .kept import Unchanged, bases
from .output import Run, way_to_write
from .read_shard import Shard
from .receipt import AsSaved, Receipt
from .reuse import unchanged_copy
from .write_shard import Written, complete, new_runs


def condensed(
    source: Path, receipt: Receipt, target: Path, *, compressed: bool, reuse: int
) -> Receipt | None:
    """The receipt of the copy, which is fsynced; None, and no copy, when nothing gets less by it.

    `target` must not exist; files that it shares arrays with are linked beside it. What is read is
    not verified: whoever reads the copy will see. Raises OSError, CheckpointDamaged, CodecMissing.
    """
    with Shard(source, receipt) as shard:
        own = shard.index.runs()[:-1]
        there = unchanged_copy(target.parent, shard, reuse)
        left = {place: run for place, run in enumerate(own) if place not in there}
        widths = compress.worthwhile(shard, left) if compressed else {}
        if not there and not widths:
            return None
        container, index = _create(target, shard, there, widths)
        written = complete(
            target,
            way_to_write(
                target.parent, sum(extent.size_bytes for extent in container.arrays.values())
            ),
            container,
            index,
            _copies(shard, there, container),
            lambda _: chain.from_iterable(map(shard.digests_of, shard.index.runs())),
        )
    names = bases(one.kept for one in there.values())
    sizes = {base: target.with_name(base).stat().st_size for base in names}
    return replace(receipt_of_copy(receipt, written), bases=sizes)


def receipt_of_copy(receipt: Receipt, written: Written) -> Receipt:
    """Of a shard's receipt, that of a file which has its state in other bytes."""
    return replace(
        receipt,
        size_bytes=written.size_bytes,
        digest=written.digest,
        index_at=written.index.at,
        index_bytes=written.index.size_bytes,
        digests_at=written.digests.at,
        digests_bytes=written.digests.size_bytes,
        copied_from=AsSaved(
            size_bytes=receipt.size_bytes,
            digest=receipt.digest,
            index_at=receipt.index_at,
            index_bytes=receipt.index_bytes,
            digests_at=receipt.digests_at,
            digests_bytes=receipt.digests_bytes,
        ),
    )


def _create(
    target: Path, shard: Shard, there: Mapping[int, Unchanged], widths: Mapping[int, int]
) -> tuple[Container, bytes]:
    """The new file with its chunks, and its index."""
    *own, pack = shard.index.runs()
    cuts = {place: compress.cuts(shard.index, own[place], widths[place]) for place in widths}
    digests: list[bytes] = []
    made = compress.chunks(shard, chain.from_iterable(cuts.values()), digests)
    with closing(made) as chunks:
        packings = {
            place: Packing(one[0].chunk_bytes, widths[place], islice(chunks, len(one)))
            for place, one in cuts.items()
        }
        return create(
            target,
            [run.size_bytes for run in own],
            {**packings, **there},
            pack.size_bytes,
            (sum(len(shard.digests_of(run)) for run in shard.index.runs()) + 1)
            * blocks.DIGEST_BYTES,
            lambda places, pack_place: _index(
                shard.index, there, widths, places, pack_place, digests
            ).to_bytes(),
        )


def _index(
    index: Index,
    there: Mapping[int, Unchanged],
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
    shared = {place: one.chunked for place, one in there.items() if one.chunked is not None}
    return replace(
        index,
        at=tuple(extents[0].at for extents in places),
        pack_at=pack_place.at,
        kept={place: one.kept for place, one in there.items()},
        chunked=chunked | shared,
    )


def _copies(shard: Shard, there: Mapping[int, Unchanged], container: Container) -> Iterable[Run]:
    """What is new and not compressed."""
    *own, pack = shard.index.runs()
    for place, extent in container.arrays.items():
        unchanged = there.get(place) or Unchanged(own[place].size_bytes)
        yield from new_runs(extent, unchanged, partial(_piece, shard, own[place]))
    yield Run(container.pack.at, pack.size_bytes, partial(_piece, shard, pack))


def _piece(shard: Shard, run: SavedRun, start: int, stop: int) -> memoryview:
    return memoryview(shard.unverified(run, start, stop))
