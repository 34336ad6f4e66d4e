"""Files under one address of an object store, through fsspec: S3, GCS, Azure, or a mounted folder.

An object is there whole or not at all. What makes many of them one checkpoint is `archive`'s work.
Credentials and endpoints are what the store's own library finds: its files and variables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from .errors import ArchiveUnfit

# Without folders; s3fs would make a bucket whose name is misspelt.
_FOLDERLESS: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss"})


class Objects(Protocol):
    """What an archive needs of a store. Keys are relative, with `/` between their parts.

    All but `names` raise FileNotFoundError for what is not there, and all whatever the store's
    library raises when it does not answer.
    """

    def names(self, prefix: str) -> list[str]:
        """What lies directly below a prefix, sorted; nothing where nothing is."""

    def read(self, key: str) -> bytes: ...

    def write_new(self, key: str, data: bytes) -> bool:
        """False when there is one; where the store can do so, True for exactly one of many."""

    def size_bytes(self, key: str) -> int: ...

    def upload(self, source: Path, key: str) -> None: ...

    def download(self, key: str, target: Path) -> None: ...

    def remove(self, key: str) -> None:
        """One object, or all below a prefix."""


def require_readable(url: str) -> None:
    """Raises ArchiveUnfit for an address that no installed library reads. Asks nobody."""
    try:
        from fsspec import get_filesystem_class
    except ImportError as error:
        raise ArchiveUnfit(url, "fsspec is not installed", "pip install 'relight[s3]'") from error
    try:
        for part in url.split("::"):
            get_filesystem_class(part.partition("://")[0])
    except ImportError as error:
        raise ArchiveUnfit(url, str(error), "install that where relight is") from error
    except ValueError as error:
        raise ArchiveUnfit(url, str(error), "write for example s3://bucket/runs/lm") from error


def connect(url: str) -> Objects:
    """Raises ArchiveUnfit for an address that nothing can read, and what the library raises."""
    require_readable(url)
    from fsspec.core import url_to_fs

    # A list that was remembered would not show what another run has written since.
    files, root = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    return _Files(files, root)


class _Files:
    """One address, as an fsspec file system shows it."""

    def __init__(self, files: _FileSystem, root: str) -> None:
        self._files = files
        self._root = root.rstrip("/")

    def names(self, prefix: str) -> list[str]:
        try:
            found = self._files.ls(self._at(prefix), detail=False)
        except FileNotFoundError:
            return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def read(self, key: str) -> bytes:
        return self._files.cat_file(self._at(key))

    def write_new(self, key: str, data: bytes) -> bool:
        path = self._at(key)
        if self._files.exists(path):
            return False
        self._make_folder_of(path)
        try:
            self._files.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        return True

    def size_bytes(self, key: str) -> int:
        return int(self._files.size(self._at(key)))

    def upload(self, source: Path, key: str) -> None:
        path = self._at(key)
        self._make_folder_of(path)
        self._files.put_file(str(source), path)

    def download(self, key: str, target: Path) -> None:
        self._files.get_file(self._at(key), str(target))

    def remove(self, key: str) -> None:
        self._files.rm(self._at(key), recursive=True)

    def _make_folder_of(self, path: str) -> None:
        protocol = self._files.protocol
        if _FOLDERLESS.isdisjoint((protocol,) if isinstance(protocol, str) else protocol):
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)

    def _at(self, key: str) -> str:
        return f"{self._root}/{key}".rstrip("/")


class _FileSystem(Protocol):
    """The part of `fsspec.AbstractFileSystem` that is used; fsspec ships no types."""

    protocol: str | tuple[str, ...]

    def ls(self, path: str, *, detail: bool) -> list[str]: ...
    def cat_file(self, path: str) -> bytes: ...
    def exists(self, path: str) -> bool: ...
    def makedirs(self, path: str, *, exist_ok: bool) -> None: ...
    def pipe_file(self, path: str, value: bytes, *, mode: str) -> None: ...
    def size(self, path: str) -> int: ...
    def put_file(self, lpath: str, rpath: str) -> None: ...
    def get_file(self, rpath: str, lpath: str) -> None: ...
    def rm(self, path: str, *, recursive: bool) -> None: ...
