"""Secrets come from files that hold a text, and nothing else is read for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from relight.resilience.worker.secret_files import MOST_CHARACTERS, read_secrets


def test_white_space_at_the_ends_is_not_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(" k e y\n")
    assert read_secrets({"K": str(tmp_path / "key")}) == {"K": "k e y"}


def test_what_never_ends_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the secret K: /dev/zero is no file"):
        read_secrets({"K": "/dev/zero"})
    (tmp_path / "long").write_text("x" * (MOST_CHARACTERS + 1))
    with pytest.raises(ValueError, match="has more than 100000 characters"):
        read_secrets({"K": str(tmp_path / "long")})
