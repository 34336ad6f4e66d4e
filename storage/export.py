"""Arrays of a checkpoint as a file that others read. Streams; the file appears whole or not at all.

Plain values have no place in these formats and stay behind.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from .durable import fsync_dir
from .entries import Entry, entries
from .errors import ExportRefused
from .manifest import Manifest
from .shards import Shards

_HEADS: Final = 8

Advance = Callable[[int], None]
# Writes named arrays to a file that is open, or raises ExportRefused before anything is written.
Write = Callable[[BinaryIO, Shards, Mapping[str, Entry], Advance], None]


def export(
    directory: Path,
    manifest: Manifest,
    target: Path,
    under: str = "",
    advance: Advance = lambda _: None,
) -> Mapping[str, Entry]:
    """Writes the arrays to `target`, whose ending says how, and returns them by their names there.

    Arrays in parts are put together; one that is the same on all ranks is written once, others are
    named `rank1/KEY` and so on. With `under` only those below this key, named without it, or the
    one of this key, named by its last part.

    Raises:
        ExportRefused: the target is there, its ending is unknown, or an array has no place in it.
        CheckpointDamaged, PartsUnfit: nothing is left of the target.
    """
    write = _writer(target)
    with Shards(directory, manifest) as shards:
        found = entries(shards, manifest.world_size)
        named = _named(shards, found, under.strip("/"))
        if not named:
            raise ExportRefused(_nothing_under(under, found))
        _publish(target, lambda file: write(file, shards, named, advance))
    return named


def total_bytes(directory: Path, manifest: Manifest, under: str = "") -> int:
    """Of what `export` writes."""
    with Shards(directory, manifest) as shards:
        named = _named(shards, entries(shards, manifest.world_size), under.strip("/"))
    return sum(entry.form.size_bytes for entry in named.values())


def _writer(target: Path) -> Write:
    from . import export_npz, export_safetensors, export_torch

    writers: Final[Mapping[str, Write]] = {
        ".npz": export_npz.write,
        ".safetensors": export_safetensors.write,
        ".pt": export_torch.write,
    }
    if target.suffix not in writers:
        raise ExportRefused(
            f"{target.name} does not say how to write it: end it with {', '.join(writers)}"
        )
    if os.path.lexists(target):
        raise ExportRefused(f"{target} is there already: choose another name, or remove it")
    return writers[target.suffix]


def _named(shards: Shards, found: Iterable[Entry], under: str) -> dict[str, Entry]:
    by_key: dict[str, list[Entry]] = {}
    for entry in found:
        name = _name_below(under, entry.name)
        if name is not None:
            by_key.setdefault(name, []).append(entry)
    named: dict[str, Entry] = {}
    for name, same in by_key.items():
        one = len({entry.key for entry in same}) == 1
        if one and len({_content(shards, entry) for entry in same}) == 1:
            _put(named, name, same[0])
        elif one:
            for entry in same:
                _put(named, f"rank{entry.rank}/{name}", entry)
        else:
            raise _ambiguous(name)
    return named


def _put(named: dict[str, Entry], name: str, entry: Entry) -> None:
    if name in named:
        raise _ambiguous(name)
    named[name] = entry


def _ambiguous(name: str) -> ExportRefused:
    return ExportRefused(
        f"two arrays would be named {name}, for a file has flat names: use --under to leave one out"
    )


def _name_below(under: str, name: str) -> str | None:
    """None for what is somewhere else."""
    if not under:
        return name
    if name == under:
        return name.rpartition("/")[2]
    return name[len(under) + 1 :] if name.startswith(f"{under}/") else None


def _nothing_under(under: str, found: Iterable[Entry]) -> str:
    heads = sorted({"/".join(entry.key[:2]) for entry in found})
    if not heads:
        return "the checkpoint has no arrays, only plain values"
    others = f" and {len(heads) - _HEADS} more" if len(heads) > _HEADS else ""
    return (
        f"the checkpoint has no arrays under {under!r}; it has some under "
        f"{', '.join(heads[:_HEADS])}{others}"
    )


def _content(shards: Shards, entry: Entry) -> object:
    digests = [shards.fingerprint(one.rank, one.number) for one in entry.saved]
    return (entry.form, *digests)


def _publish(target: Path, write: Callable[[BinaryIO], None]) -> None:
    """A file that is whole when it gets its name. Never replaces one."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise ExportRefused(f"{target} was made by somebody else meanwhile") from None
    except OSError as error:
        if error.filename not in (None, str(temporary)):
            raise  # it is about a shard
        raise ExportRefused(f"{target} cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
    fsync_dir(target.absolute().parent)
