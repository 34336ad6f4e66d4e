"""The code of a run as it was at submission: the git work tree, uncommitted changes included.

What git ignores stays out. A restart, days later, runs what was submitted.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relight.counted import counted
from relight.errors import UsageError
from relight.resilience.run_folder import RunFolder

from .runs import runs_dir

_log: Final = logging.getLogger(__name__)
MOST_FILES: Final = 20_000
MOST_BYTES: Final = 256 * 1024**2
_GIT_LIMIT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was copied. ``dirty``: the files are not those of ``commit`` alone."""

    commit: str
    dirty: bool
    files: int
    size_bytes: int


def work_tree(folder: Path) -> Path:
    """The root of the git work tree that holds a folder.

    Raises:
        UsageError: none does.
    """
    root = _git(folder, "rev-parse", "--show-toplevel", check=False).removesuffix("\n")
    if not root:
        raise UsageError(
            f"code: snapshot copies a git work tree, and git finds none in {folder}: `git init` "
            "there makes one, without `code` the run uses the files as they are then"
        )
    return Path(root)


def take_snapshot(tree: Path, run: RunFolder, secret: Iterable[str] = ()) -> Snapshot:
    """Copies a work tree into a run folder, but for its ``secret`` files, which stay private.

    Raises:
        UsageError: it is too large, or a file cannot be read.
    """
    runs = [folder.resolve() for folder in (runs_dir(), run.root)]
    known = [name for name in _names(tree) if _is_code(tree, name, runs)]
    private = {Path(file).resolve() for file in secret}
    names = [name for name in known if (tree / name).resolve() not in private]
    if left_out := sorted({*known} - {*names}):
        _log.warning("relight: code: snapshot leaves out %s, named as secret", ", ".join(left_out))
    sizes = [(tree / name).lstat().st_size for name in names]
    if len(names) > MOST_FILES or sum(sizes) > MOST_BYTES:
        raise UsageError(
            f"code: snapshot would copy {counted(len(names), 'file')} with "
            f"{sum(sizes) / 1024**2:.0f} MiB of {tree}; at most {MOST_FILES} files and "
            f"{MOST_BYTES // 1024**2} MiB are: put what is no code into .gitignore"
        )
    target = run.code
    target.mkdir(mode=0o700)
    try:
        for name in names:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            _copy(tree, name, target / name)
    except OSError as error:
        raise UsageError(f"code: snapshot: {error.filename}: {error.strerror}") from error
    commit = _git(tree, "rev-parse", "--verify", "--quiet", "HEAD", check=False).strip() or "none"
    dirty = bool(_git(tree, "status", "--porcelain", "-z"))
    taken = Snapshot(commit, dirty, len(names), sum(sizes))
    facts = {"tree": str(tree), "commit": commit, "dirty": dirty, "files": len(names)}
    (run.root / "code.json").write_text(json.dumps(facts) + "\n")
    return taken


def _is_code(tree: Path, name: str, runs: Sequence[Path]) -> bool:
    """Whether git's file is there as such: not behind a link that has taken its folder's place, and
    no part of a run that is kept in the work tree."""
    path = tree / name
    if any((tree / above).is_symlink() for above in list(Path(name).parents)[:-1]):
        return False
    if any(path.is_relative_to(run) for run in runs if run.is_relative_to(tree)):
        return False
    return path.is_file() or path.is_symlink()


def _copy(tree: Path, name: str, target: Path) -> None:
    """A relative link that leaves the tree would lead elsewhere from its new place."""
    source = tree / name
    if source.is_symlink():
        goal = Path(os.path.normpath(source.parent / source.readlink()))
        if not goal.is_relative_to(tree):
            target.symlink_to(goal)
            return
    shutil.copy2(source, target, follow_symlinks=False)


def _names(tree: Path, below: str = "") -> Iterator[str]:
    """All files that git knows or would take; those of submodules too."""
    listed = _git(tree / below, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in dict.fromkeys(listed.split("\0")):
        path = f"{below}{name}"
        if name and (tree / path).is_dir() and not (tree / path).is_symlink():
            if (tree / path / ".git").exists():
                yield from _names(tree, f"{path.rstrip('/')}/")
        elif name:
            yield path


def _git(folder: Path, *words: str, check: bool = True) -> str:
    argv: Sequence[str] = ("git", "-C", str(folder), "-c", "core.quotepath=off", *words)
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_LIMIT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise UsageError("code: snapshot needs git, which is not on this machine's PATH") from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"code: snapshot: git did not end in {_GIT_LIMIT_S:.0f} s") from error
    if check and done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise UsageError(f"code: snapshot: {said or 'git failed'}")
    return done.stdout.decode(errors="surrogateescape")
