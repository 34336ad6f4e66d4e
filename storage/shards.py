"""The shards of one checkpoint, opened as they are needed, and arrays out of them, verified."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from . import blocks, content, node_reads
from .condition import shard_fault
from .errors import PartsUnfit
from .index import Index, Run
from .keys import Path as Key
from .keys import array_paths
from .layout import step_dir
from .leaf import Form
from .manifest import Manifest
from .node_reads import Neighbours
from .numpy_state import Buffer, in_pages
from .pack import unpack
from .progress import Progress, unseen
from .read_shard import Shard
from .receipt import Receipt
from .targets import Target

Place = tuple[int, Run]  # a rank, and a run of its shard
_Runs = defaultdict[int, list[tuple[Run, memoryview]]]  # by rank, with where they go

_MOST_OPEN = 64  # a process may often have 1024 files open, a checkpoint more shards


class Shards:
    """Use as a context manager. All raise CheckpointDamaged.

    A shard that is in a node's `tier` too, by its size, is read there.
    """

    def __init__(self, directory: Path, manifest: Manifest, tier: Path | None = None) -> None:
        self._folder = step_dir(directory, manifest.step)
        self._near = None if tier is None else step_dir(tier, manifest.step)
        self._manifest = manifest
        self._shards: dict[int, Shard] = {}  # open ones, those used last at the end
        self._indexes: dict[int, Index] = {}
        self._fetched: dict[tuple[int, int | None], Buffer] = {}  # by rank and array
        self._places: dict[int, dict[int, tuple[Run, int]]] = {}
        self._keys: dict[int, dict[Key, int]] = {}
        self._targets: Mapping[tuple[int, int], Target] = {}

    def __enter__(self) -> Shards:
        return self

    def __exit__(self, *_: object) -> None:
        for shard in self._shards.values():
            shard.close()

    def __getitem__(self, rank: int) -> Shard:
        shard = self._shards.pop(rank, None)
        if shard is None:
            shard = self._open(self._manifest.receipts[rank])
            if len(self._shards) >= _MOST_OPEN:
                self._shards.pop(next(iter(self._shards))).close()
        self._shards[rank] = shard
        return shard

    def _open(self, receipt: Receipt) -> Shard:
        near = self._near
        if near is None or shard_fault(near, receipt.as_saved):
            return Shard(self._folder / receipt.file, receipt)
        return Shard(near / receipt.file, receipt.as_saved)

    def index(self, rank: int) -> Index:
        if rank not in self._indexes:
            self._indexes[rank] = self[rank].index
        return self._indexes[rank]

    def form(self, rank: int, number: int) -> Form:
        index = self.index(rank)
        return index.forms[index.arrays[number]]

    def read_into(self, targets: Mapping[tuple[int, int], Target]) -> None:
        """These arrays, by rank and number, are those of the program, once they are fetched."""
        self._targets = targets

    def fetch(
        self,
        wanted: Iterable[Place],
        neighbours: Neighbours | None = None,
        shown: Progress = unseen,
    ) -> None:
        """Reads the runs of some arrays in one go, for the methods below to take.

        What other ranks of this node want too is read by one of them.
        """
        shared, own = _Runs(list), _Runs(list)
        for rank, run in dict.fromkeys(wanted):
            data = self._fetched[rank, run.array] = self._room(rank, run)
            runs = shared if neighbours is not None and self._may_be_shared(rank, run) else own
            runs[rank].append((run, data.data))
        total_bytes = sum(
            run.size_bytes for runs in (*shared.values(), *own.values()) for run, _ in runs
        )
        with shown(total_bytes) as advance:
            if neighbours is not None:
                done = node_reads.fill(neighbours, self._by_digest(shared), advance)
                for rank, runs_of_rank in shared.items():
                    self[rank].fill(runs_of_rank, done, advance)
            # A block of these may be like one that is done, and still lacks in its own place.
            for rank, runs_of_rank in own.items():
                self[rank].fill(runs_of_rank, (), advance)

    def _may_be_shared(self, rank: int, run: Run) -> bool:
        """Whether other ranks may want it too, and it is not in memory already."""
        index = self.index(rank)
        if index.block_bytes > blocks.BLOCK_BYTES or self[rank].in_memory:
            return False
        is_part = run.array is not None and self.form(rank, run.array).global_shape is not None
        return bool(index.borrows) or not is_part  # else each rank has its own

    def _by_digest(self, runs: _Runs) -> dict[bytes, list[node_reads.BlockPlace]]:
        found: dict[bytes, list[node_reads.BlockPlace]] = defaultdict(list)
        for rank, of_rank in runs.items():
            for run, data in of_rank:
                for digest, place in self[rank].places(run, data):
                    found[digest].append(place)
        return found

    def place(self, rank: int, number: int) -> Place:
        """Where an array lies, for `fetch`."""
        return rank, self._place(rank, number)[0]

    def all_arrays(self, rank: int) -> list[object]:
        """All arrays of one shard, which have been fetched. Raises ValueError too."""
        index = self.index(rank)
        *own, pack = (self._fetched[rank, run.array] for run in index.runs())
        found = unpack(index, pack)
        for number, buffer in zip(index.own(), own, strict=True):
            found[number] = self._rebuilt(rank, number, buffer)
        return [found[number] for number in range(len(index.arrays))]

    def array(self, rank: int, number: int) -> object:
        """One array of one shard. Raises ValueError too."""
        form = self.form(rank, number)
        data = self.bytes_of(rank, number, 0, form.size_bytes)
        is_view = form.size_bytes < self.index(rank).packed_below_bytes
        return self._rebuilt(rank, number, data.copy() if is_view else data)

    def number_of(self, rank: int, key: Key) -> int:
        """The array that a rank has saved under a key. Raises PartsUnfit."""
        if rank not in self._keys:
            paths = array_paths(self.index(rank).tree)
            self._keys[rank] = {path: node["array"] for path, node in paths if "array" in node}
        if key not in self._keys[rank]:
            raise PartsUnfit("/".join(key), f"rank {rank}, whose share it was, has not saved it")
        return self._keys[rank][key]

    def fingerprint(self, rank: int, number: int) -> bytes:
        """Equal for arrays of equal bytes, none of which is read where they have digests."""
        if self.form(rank, number).size_bytes < self.index(rank).packed_below_bytes:
            size_bytes = self.form(rank, number).size_bytes
            return blocks.digest(self.bytes_of(rank, number, 0, size_bytes).data)
        return b"".join(self[rank].digests_of(self._place(rank, number)[0]))

    def holder(self, rank: int, key: Key, node: Mapping[str, int]) -> tuple[int, int]:
        """Whose shard has an array of a rank's tree, and as which number. Raises PartsUnfit."""
        if "array" in node:
            return rank, node["array"]
        return node["written_by"], self.number_of(node["written_by"], key)

    def bytes_of(self, rank: int, number: int, start: int, stop: int) -> Buffer:
        """Bytes start to stop of an array; no more than the blocks around them is read."""
        run, base = self._place(rank, number)
        if run.array is None and (rank, None) not in self._fetched:
            self.fetch([(rank, run)])
        if (rank, run.array) in self._fetched:
            return self._fetched[rank, run.array][base + start : base + stop]
        size = self.index(rank).block_bytes
        first, last = start // size, -(-stop // size)
        begin, end = first * size, min(last * size, run.size_bytes)
        data = in_pages(end - begin)
        self[rank].fill_blocks(run, first, data.data)
        return data[start - begin : stop - begin]

    def _room(self, rank: int, run: Run) -> Buffer:
        target = None if run.array is None else self._targets.get((rank, run.array))
        return in_pages(run.size_bytes) if target is None else target.memory

    def _rebuilt(self, rank: int, number: int, data: Buffer) -> object:
        target = self._targets.get((rank, number))
        return content.rebuild(self.form(rank, number), data) if target is None else target.array

    def _place(self, rank: int, number: int) -> tuple[Run, int]:
        if rank not in self._places:
            self._places[rank] = self.index(rank).places()
        return self._places[rank][number]
