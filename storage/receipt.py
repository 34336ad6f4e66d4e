"""A rank's word that its shard is durable: what it wrote, where, and how to recognise it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from dataclasses import field as attribute

from .layout import Incarnation, shard_file
from .notes import Notes
from .sealed import Json, field, only, seal, unseal


@dataclass(frozen=True, slots=True, kw_only=True)
class AsSaved:
    """What a receipt says of a file, of the shard as the rank has saved it."""

    size_bytes: int
    digest: str
    index_at: int
    index_bytes: int
    digests_at: int
    digests_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a manifest must know of one shard.

    Attributes:
        file: the shard, relative to its step folder.
        digest: xxh3-128 over index and block digests, so over every byte that can be loaded.
        payload_bytes: bytes of values, without index, digests and HDF5's own.
        seconds: wall time of the save.
        shares_digest: of the ranks' shares of the replicated arrays; the same for all ranks.
        notes: of rank 0 only.
        bases: earlier shards beside this one that hold some of its arrays, and their sizes.
        copied_from: the shard in the tier of its node, where that has the state in other bytes.
        index_at, digests_at: byte positions of the two in the file; loading starts there.
    """

    step: int
    rank: int
    world_size: int
    incarnation: Incarnation
    file: str
    size_bytes: int
    digest: str
    payload_bytes: int
    seconds: float
    index_at: int
    index_bytes: int
    digests_at: int
    digests_bytes: int
    shares_digest: str = ""
    notes: Notes = attribute(default_factory=Notes)
    bases: Mapping[str, int] = attribute(default_factory=dict)
    copied_from: AsSaved | None = None

    @property
    def as_saved(self) -> Receipt:
        """That of the shard in the tier of its node: the same state, with nothing left out."""
        if self.copied_from is None:
            return self
        return replace(self, copied_from=None, bases={}, **asdict(self.copied_from))

    @property
    def files(self) -> dict[str, int]:
        """All that loading needs: paths relative to the step folder, and sizes in bytes."""
        folder = self.incarnation.folder
        return {self.file: self.size_bytes} | {
            f"{folder}/{name}": size_bytes for name, size_bytes in self.bases.items()
        }

    def to_json(self) -> str:
        """One line, sealed with its own digest."""
        return seal(self.to_body()).decode("ascii")

    @classmethod
    def from_json(cls, text: str | bytes) -> Receipt:
        """Raises ValueError when anything differs from what `to_json` wrote."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return cls.from_body(unseal(data))

    def to_body(self) -> dict[str, Json]:
        body: dict[str, Json] = {
            "step": self.step,
            "rank": self.rank,
            "world_size": self.world_size,
            "attempt": self.incarnation.attempt,
            "generation": self.incarnation.generation,
            "file": self.file,
            "size_bytes": self.size_bytes,
            "digest": self.digest,
            "payload_bytes": self.payload_bytes,
            "seconds": self.seconds,
            "index_at": self.index_at,
            "index_bytes": self.index_bytes,
            "digests_at": self.digests_at,
            "digests_bytes": self.digests_bytes,
            "shares_digest": self.shares_digest,
            "metrics": dict(self.notes.metrics),
            "provenance": dict(self.notes.provenance),
        }
        if self.bases:
            body["bases"] = dict(self.bases)
        if self.copied_from is not None:
            body["copied_from"] = asdict(self.copied_from)
        return body

    @classmethod
    def from_body(cls, body: Mapping[str, Json]) -> Receipt:
        """Raises ValueError for a missing, unknown, mistyped or contradictory field."""
        incarnation = Incarnation(field(body, "attempt", str), field(body, "generation", int))
        receipt = cls(
            step=field(body, "step", int),
            rank=field(body, "rank", int),
            world_size=field(body, "world_size", int),
            incarnation=incarnation,
            file=field(body, "file", str),
            size_bytes=field(body, "size_bytes", int),
            digest=field(body, "digest", str),
            payload_bytes=field(body, "payload_bytes", int),
            seconds=field(body, "seconds", float),
            index_at=field(body, "index_at", int),
            index_bytes=field(body, "index_bytes", int),
            digests_at=field(body, "digests_at", int),
            digests_bytes=field(body, "digests_bytes", int),
            shares_digest=field(body, "shares_digest", str),
            notes=_notes(body),
            bases=_bases(body),
            copied_from=_as_saved(body) if "copied_from" in body else None,
        )
        only(body, receipt.to_body())
        if not 0 <= receipt.rank < receipt.world_size:
            raise ValueError(f"rank {receipt.rank} is not in a world of {receipt.world_size}")
        if receipt.file != shard_file(incarnation, receipt.rank):
            raise ValueError(f"file {receipt.file!r} is not that of rank {receipt.rank}")
        return receipt


def _bases(body: Mapping[str, Json]) -> dict[str, int]:
    bases = field(body, "bases", dict) if "bases" in body else {}
    for name in bases:
        if "/" in name:
            raise ValueError(f"base {name!r} is no plain file name")
    return {name: field(bases, name, int) for name in bases}


def _as_saved(body: Mapping[str, Json]) -> AsSaved:
    saved = field(body, "copied_from", dict)
    return AsSaved(
        size_bytes=field(saved, "size_bytes", int),
        digest=field(saved, "digest", str),
        index_at=field(saved, "index_at", int),
        index_bytes=field(saved, "index_bytes", int),
        digests_at=field(saved, "digests_at", int),
        digests_bytes=field(saved, "digests_bytes", int),
    )


def _notes(body: Mapping[str, Json]) -> Notes:
    metrics = field(body, "metrics", dict)
    return Notes(
        metrics={name: field(metrics, name, float) for name in metrics},
        provenance=field(body, "provenance", dict),
    )
