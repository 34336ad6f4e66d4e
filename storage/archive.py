"""Committed checkpoints in an object store: one more copy, away from the cluster's file systems.

The layout is that of a checkpoint directory, and the manifest is put there last, so what has one is
complete. Shards keep the names that the manifest gives them; no two incarnations share one.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from .condition import examine
from .layout import MANIFEST, code_path, step_dir, step_name, step_of
from .manifest import Manifest
from .objects import Objects


def put(directory: Path, step: int, store: Objects) -> int | None:
    """Copies a committed step; the bytes that went, or None when it is not valid (any more) here.

    The same checkpoint is not copied twice; another one of this step, which a run has gone back
    from, is replaced. What is deleted here meanwhile is copied all the same. Raises OSError, and
    what the store raises.
    """
    here = examine(directory, step)
    if here.manifest is None or here.condition != "valid":
        return None
    folder, data = step_name(step), here.manifest.to_bytes()
    if (there := manifest_of(store, step)) is not None:
        if there == data:
            return 0
        store.remove(f"{folder}/{MANIFEST}")
    sizes = {file: size for one in here.manifest.receipts for file, size in one.files.items()}
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # one for each rank
    with ExitStack() as opened:
        try:
            sources = {name: _held(step_dir(directory, step) / name, opened) for name in sizes}
        except FileNotFoundError:
            return None
        for name, source in sources.items():
            store.upload(source, f"{folder}/{name}")
    for name, size_bytes in sizes.items():
        if store.size_bytes(f"{folder}/{name}") != size_bytes:
            raise OSError(f"{name} has another size in the store than here: it was cut off")
    for digest in code_of(here.manifest):
        with suppress(FileNotFoundError):  # for people; the state does not need it
            store.write_new(code_key(digest), code_path(directory, digest).read_bytes())
    store.write_new(f"{folder}/{MANIFEST}", data)
    return sum(sizes.values())


def _held(path: Path, opened: ExitStack) -> Path:
    """A name of the file that lasts until it is closed, whoever deletes its own."""
    return Path(f"/proc/self/fd/{opened.enter_context(path.open('rb')).fileno()}")


def thin(store: Objects, last: int, put_now: int) -> None:
    """Removes all but the newest committed steps and the one that was put now, and what was never
    completed before them."""
    committed = archived(store)
    for step in steps_in(store):
        kept = step in committed[:last] or step == put_now
        if not kept and committed and step < committed[0]:
            _remove(store, step)


def drop(store: Objects, step: int) -> None:
    """Removes this step and all after it: the run has gone back behind them."""
    for one in steps_in(store):
        if one >= step:
            _remove(store, one)


def _remove(store: Objects, step: int) -> None:
    # The manifest goes first: without it the rest is no checkpoint.
    for key in (f"{step_name(step)}/{MANIFEST}", step_name(step)):
        with suppress(FileNotFoundError):
            store.remove(key)


def archived(store: Objects) -> list[int]:
    """The committed steps of the store, newest first."""
    return [step for step in steps_in(store) if MANIFEST in store.names(step_name(step))]


def steps_in(store: Objects) -> list[int]:
    """All that has a step's name, newest first."""
    found = (step_of(name) for name in store.names(""))
    return sorted((step for step in found if step is not None), reverse=True)


def manifest_of(store: Objects, step: int) -> bytes | None:
    """The bytes of a step's manifest, None without one."""
    try:
        return store.read(f"{step_name(step)}/{MANIFEST}")
    except FileNotFoundError:
        return None


def code_of(manifest: Manifest) -> Iterator[str]:
    """The digest of the changes of the code that saved, if there were any."""
    code = manifest.provenance.get("code")
    digest = code.get("diff_sha256") if isinstance(code, dict) else None
    if isinstance(digest, str) and len(digest) == 64 and set(digest) <= set("0123456789abcdef"):
        yield digest


def code_key(digest: str) -> str:
    return f"code/{digest}.diff"
