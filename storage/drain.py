"""Copies one rank's shard from its node's tier to the checkpoint directory, and says how it went.

The receipt follows once the copy is durable and every byte of it is right. The process ends with
the agent that has started it: what is half copied has no receipt, and is nothing. Nor has it the
name of a shard: a node that was only held for lost may still be copying what its partner has copied
for it, and must not touch what is committed.

python -m relight.storage.drain TIER DIRECTORY STEP ATTEMPT.gGENERATION RANK REUSE [compress]
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from relight.answer import give
from relight.errors import RelightError

from .child import end_with_parent
from .codec import require
from .commit import read_receipt
from .durable import fsync_dir, make_dirs, publish
from .errors import CheckpointDamaged, CodecMissing
from .layout import Incarnation, receipt_path, shard_path
from .lustre import stripe
from .read_shard import require_whole
from .receipt import Receipt
from .tier import drop, drop_older

_CHUNK_BYTES: Final = 64 << 20


def drain(
    tier: Path, directory: Path, receipt: Receipt, *, compress: bool = False, reuse: int = 0
) -> Receipt:
    """The receipt of the copy: its seconds are those of the save and of the drain.

    Where another node has made a copy already, that counts; nothing replaces it. Older copies in
    the tier go; one that could not be copied goes too, for nobody will restore it.
    Raises OSError, CheckpointDamaged, CodecMissing.
    """
    started_s = time.monotonic()
    step, writer, rank = receipt.step, receipt.incarnation, receipt.rank
    shard = shard_path(directory, step, writer, rank)
    try:
        copied = _copied(tier, directory, receipt, compress=compress, reuse=reuse)
        fsync_dir(shard.parent)
        seconds = receipt.seconds + time.monotonic() - started_s
        durable = replace(copied, seconds=seconds)
        data = durable.to_json().encode("ascii")
        publish(receipt_path(directory, step, writer, rank), data)
    except (OSError, CheckpointDamaged):
        if not shard.exists():
            with suppress(OSError):  # what stays is harmless; the fault of the drain is what counts
                drop(tier, receipt)
        raise
    with suppress(OSError):  # what stays takes room; the copy is what counts
        for left in shard.parent.glob(f".{shard.name}.*"):  # of a node that was lost
            left.unlink(missing_ok=True)
    with suppress(OSError):
        drop_older(tier, receipt)
    return durable


def _copied(
    tier: Path, directory: Path, receipt: Receipt, *, compress: bool, reuse: int
) -> Receipt:
    """The receipt of what has the name of the shard now: ours, or what was there before."""
    source, shard = (
        shard_path(place, receipt.step, receipt.incarnation, receipt.rank)
        for place in (tier, directory)
    )
    copy = shard.with_name(f".{shard.name}.{secrets.token_hex(8)}")
    try:
        try:
            make_dirs(copy.parent, directory.parent)
            stripe(copy.parent, receipt.world_size, receipt.payload_bytes)
            made = _copy(source, receipt, copy, compress=compress, reuse=reuse)
            require_whole(copy, made, shared=False)
        except (OSError, CheckpointDamaged, CodecMissing):
            if not shard.exists():
                raise
            return _made_before(shard, source, receipt)
        return _named(copy, made, directory, source, receipt)
    finally:
        with suppress(OSError):  # what stays is harmless
            copy.unlink(missing_ok=True)


def _named(copy: Path, made: Receipt, directory: Path, source: Path, receipt: Receipt) -> Receipt:
    """Gives the copy its name, unless a whole shard has that, or one with a receipt."""
    place = directory, receipt.step, receipt.incarnation, receipt.rank
    shard = shard_path(*place)
    try:
        shard.hardlink_to(copy)
    except OSError:  # the name is taken; or who has it now has cleared our copy away
        if not shard.exists():
            raise
        try:
            return _made_before(shard, source, receipt)
        except CheckpointDamaged:
            if read_receipt(receipt_path(*place)) is not None:
                raise
            copy.replace(shard)  # what a save that failed has left
    return made


def _made_before(shard: Path, source: Path, receipt: Receipt) -> Receipt:
    from .made_before import receipt_of  # as for `condensed`

    return receipt_of(shard, source, receipt)


def _copy(source: Path, receipt: Receipt, target: Path, *, compress: bool, reuse: int) -> Receipt:
    if compress or reuse:
        from .condense import condensed  # with numpy and h5py, which bytes alone do not need

        made = condensed(source, receipt, target, compressed=compress, reuse=reuse)
        if made is not None:
            return made
    _copy_bytes(source, target)
    return receipt


def _copy_bytes(source: Path, target: Path) -> None:
    with source.open("rb") as read, target.open("wb") as written:
        at = 0
        while sent := os.sendfile(written.fileno(), read.fileno(), at, _CHUNK_BYTES):
            at += sent
        os.fsync(written.fileno())


def main() -> None:
    tier, directory = Path(sys.argv[1]), Path(sys.argv[2])
    step, writer, rank = int(sys.argv[3]), Incarnation.parse(sys.argv[4]), int(sys.argv[5])
    reuse, compress = int(sys.argv[6]), "compress" in sys.argv[7:]
    end_with_parent()
    os.nice(10)  # the program's steps come first
    path = receipt_path(tier, step, writer, rank)
    receipt = read_receipt(path)
    answer: dict[str, object] = {}
    try:
        if compress:
            require()
    except CodecMissing as error:  # the save counts for more
        compress = False
        answer = {"uncompressed": str(error)}
    try:
        if receipt is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        drained = drain(tier, directory, receipt, compress=compress, reuse=reuse)
        answer |= {"receipt": drained.to_json()}
    except CheckpointDamaged as error:
        reason = f"the copy is damaged at {error.array}: {error.reason}"
        answer |= {"reason": reason, "errno": None}
    except (OSError, RelightError) as error:
        answer |= {"reason": str(error), "errno": getattr(error, "errno", None)}
    give(json.dumps(answer))


if __name__ == "__main__":
    main()
