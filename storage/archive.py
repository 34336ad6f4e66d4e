"""Committed checkpoints in an object store: one more copy, away from the cluster's file systems.

The layout is that of a checkpoint directory, and the manifest is put there last, so what has one is
complete. Shards keep the names that the manifest gives them; no two incarnations share one.

python -m relight.storage.archive put DIRECTORY URL STEP LAST
python -m relight.storage.archive get DIRECTORY URL EPOCH
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .condition import examine, steps
from .durable import fsync_dir, make_dirs, publish_new
from .epoch import check_holding
from .errors import CheckpointDamaged, ManifestDamaged, NoValidCheckpoint
from .layout import MANIFEST, manifest_path, step_dir, step_name, step_of
from .manifest import Manifest
from .objects import Objects, connect
from .read_shard import require_whole
from .set_aside import records, set_aside


def put(directory: Path, step: int, store: Objects) -> int | None:
    """Copies a committed step; the bytes that went, or None when it is not valid (any more) here.

    One that is in the store already stays as it is. Raises OSError, and what the store raises.
    """
    here = examine(directory, step)
    if here.manifest is None or here.condition != "valid":
        return None
    folder = step_name(step)
    if MANIFEST in store.names(folder):
        return 0
    sizes = {file: size for one in here.manifest.receipts for file, size in one.files.items()}
    for file, size_bytes in sizes.items():
        store.upload(step_dir(directory, step) / file, f"{folder}/{file}")
        if store.size_bytes(f"{folder}/{file}") != size_bytes:
            raise OSError(f"{file} has another size in the store than here: it was cut off")
    for key in _code(here.manifest):
        with suppress(FileNotFoundError):  # for people; the state does not need it
            store.write_new(key, (directory / key).read_bytes())
    store.write_new(f"{folder}/{MANIFEST}", here.manifest.to_bytes())
    return sum(sizes.values())


def thin(store: Objects, last: int) -> None:
    """Removes all but the newest committed steps, and what was never completed before them."""
    committed = archived(store)
    for step in _steps(store):
        if step not in committed[:last] and committed and step < committed[0]:
            with suppress(FileNotFoundError):  # first: without it the rest is no checkpoint
                store.remove(f"{step_name(step)}/{MANIFEST}")
            with suppress(FileNotFoundError):
                store.remove(step_name(step))


def archived(store: Objects) -> list[int]:
    """The committed steps of the store, newest first."""
    return [step for step in _steps(store) if MANIFEST in store.names(step_name(step))]


def wanted(directory: Path) -> range | None:
    """Which steps of an archive would be better than the newest valid one here; None: it is best.

    Better is what was committed here, and is damaged or set aside; where nothing valid is left,
    any. A newer one that somebody has deleted stays deleted.
    """
    known = [examine(directory, step) for step in steps(directory)]
    valid = max((one.step for one in known if one.condition == "valid"), default=None)
    if valid is None:
        return range(sys.maxsize)
    lost = [one.step for one in known if one.condition == "damaged"]
    lost += [record.step for record in records(directory)]
    newest = max(lost, default=valid)
    return range(valid + 1, newest + 1) if newest > valid else None


def get(directory: Path, store: Objects, epoch: int) -> Manifest | None:
    """Brings the newest step that is wanted here back, whole and committed; None without any.

    Raises:
        NoValidCheckpoint: the archive has some, all are damaged, and nothing valid is here.
        Fenced: a later epoch was claimed.
        OSError: the directory does not work; and what the store raises.
    """
    steps_wanted = wanted(directory)
    if steps_wanted is None:
        return None
    reasons = []
    for step in archived(store):
        if step not in steps_wanted:
            continue
        try:
            return _bring_back(directory, step, store, epoch)
        except (CheckpointDamaged, ManifestDamaged) as error:
            reasons.append(f"step {step} of the archive: {error}")
    if reasons and steps_wanted.start == 0:
        raise NoValidCheckpoint(str(directory), tuple(reasons))
    return None


def _bring_back(directory: Path, step: int, store: Objects, epoch: int) -> Manifest:
    data = store.read(f"{step_name(step)}/{MANIFEST}")
    manifest = Manifest.parse(data)
    if manifest.step != step:
        raise ManifestDamaged(f"it is that of step {manifest.step}")
    here = examine(directory, step)
    if here.condition == "damaged":
        set_aside(directory, step, here.reason)
    folder = step_dir(directory, step)
    for receipt in manifest.receipts:
        for file in receipt.files:
            _download(store, f"{step_name(step)}/{file}", folder / file)
        require_whole(folder / receipt.file, receipt)
        fsync_dir((folder / receipt.file).parent)
    for key in _code(manifest):
        with suppress(FileNotFoundError):
            _download(store, key, directory / key)
    check_holding(directory, epoch)
    publish_new(manifest_path(directory, step), data)
    return manifest


def _download(store: Objects, key: str, target: Path) -> None:
    """Appears whole: an earlier file of this name may share its bytes with other checkpoints."""
    make_dirs(target.parent)
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        store.download(key, part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _steps(store: Objects) -> list[int]:
    found = (step_of(name) for name in store.names(""))
    return sorted((step for step in found if step is not None), reverse=True)


def _code(manifest: Manifest) -> Iterator[str]:
    """The changes of the code that saved, if there were any."""
    code = manifest.provenance.get("code")
    digest = code.get("diff_sha256") if isinstance(code, dict) else None
    if isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest):
        yield f"code/{digest}.diff"


def _answer(job: str, directory: Path, url: str, number: int, last: int) -> dict[str, object]:
    store = connect(url)
    if job == "put":
        size_bytes = put(directory, number, store)
        thin(store, last)
        return {"step": number, "bytes": size_bytes}
    manifest = get(directory, store, number)
    if manifest is None:
        return {"step": None, "bytes": 0}
    return {"step": manifest.step, "bytes": manifest.payload_bytes}


def main() -> None:
    job, directory, url, number, *last = sys.argv[1:]
    if job == "put":
        os.nice(19)  # the program's steps come first
    begun = time.monotonic()
    try:
        answer = _answer(job, Path(directory), url, int(number), int(*last))
    except NoValidCheckpoint as error:
        answer = {"damaged": error.reasons}
    except Exception as error:  # a store's library raises anything; all of it is for the journal
        answer = {"failure": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps({**answer, "seconds": time.monotonic() - begun}))


if __name__ == "__main__":
    main()
