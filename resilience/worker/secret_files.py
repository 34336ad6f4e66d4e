"""Secrets are read from files where they are used: they are neither sent nor stored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def read_secrets(files: Mapping[str, str]) -> dict[str, str]:
    """The values of variables from the files that hold them, without white space at their ends.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not text, or holds a null byte. The variable is named in both.
    """
    return {name: _read(name, Path(file).expanduser()) for name, file in files.items()}


def _read(name: str, file: Path) -> str:
    try:
        value = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise OSError(error.errno, f"the secret {name}: {error.strerror}", str(file)) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"the secret {name}: {file} is not text in UTF-8") from error
    if "\0" in value:
        raise ValueError(f"the secret {name}: {file} holds a null byte")
    return value
