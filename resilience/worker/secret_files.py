"""Secrets are read from files where they are used: they are neither sent nor stored."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

MOST_CHARACTERS: Final = 100_000  # Linux takes 128 KiB for one variable


def read_secrets(files: Mapping[str, str]) -> dict[str, str]:
    """The values of variables from the files that hold them, without white space at their ends.

    Raises:
        OSError: a file cannot be read.
        ValueError: it is no text, too long, or holds a null byte. The variable is named in both.
    """
    return {name: _read(name, Path(file).expanduser()) for name, file in files.items()}


def _read(name: str, file: Path) -> str:
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise ValueError(f"the secret {name}: {file} is no file of a text")
        with file.open(encoding="utf-8") as opened:
            value = opened.read(MOST_CHARACTERS + 1).strip()
    except OSError as error:
        raise OSError(error.errno, f"the secret {name}: {error.strerror}", str(file)) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"the secret {name}: {file} is not text in UTF-8") from error
    if len(value) > MOST_CHARACTERS:
        raise ValueError(f"the secret {name}: {file} has more than {MOST_CHARACTERS} characters")
    if "\0" in value:
        raise ValueError(f"the secret {name}: {file} holds a null byte")
    return value
