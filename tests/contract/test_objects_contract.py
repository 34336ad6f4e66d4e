"""Each kind of object store does what an archive relies on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from stage import objects
from stage.objects import BUCKET, keeps_its_word, s3_server

from relight.storage.errors import ArchiveUnfit
from relight.storage.objects import connect


def test_a_folder(tmp_path: Path) -> None:
    keeps_its_word(connect(f"file://{tmp_path / 'store'}"), tmp_path)


def test_s3(tmp_path: Path) -> None:
    """In a process of its own: fsspec keeps a thread for the life of the interpreter."""
    words = [sys.executable, objects.__file__, f"s3://{BUCKET}/runs/lm", str(tmp_path)]
    with s3_server() as env:
        subprocess.run(words, env=env, check=True, timeout=120)


@pytest.mark.parametrize(
    ("url", "part"), [("nope://bucket", "Protocol not known: nope"), ("gs://bucket", "gcsfs")]
)
def test_an_address_that_nothing_can_read(url: str, part: str) -> None:
    with pytest.raises(ArchiveUnfit, match=part):
        connect(url)
