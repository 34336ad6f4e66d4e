"""The choice between direct and buffered, and how it is remembered. Files of a few MiB only."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from relight.storage import input as reading
from relight.storage import output as writing
from relight.storage import way
from relight.storage.blocks import digest
from relight.storage.way import USUAL, Way, fastest

BUFFERED = Way(direct=False, threads=4)


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "relight" / "ways.json"


class Trials:
    """Ways that take a given time, 0.01 s by default, on a clock that nothing else moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.needed_s: dict[Way, float] = {}
        self.tried: list[Way] = []

    def __call__(self, _: int, one: Way) -> None:
        self.now += self.needed_s.get(one, 0.01)
        self.tried.append(one)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Trials:
    trials = Trials()
    monkeypatch.setattr(way, "time", SimpleNamespace(monotonic=lambda: trials.now))
    return trials


def test_only_a_clearly_faster_way_displaces_the_usual_one(
    tmp_path: Path, trials: Trials, memory: Path
) -> None:
    trials.needed_s = {BUFFERED: 0.009}
    assert fastest("write", tmp_path, trials) == USUAL
    memory.unlink()
    trials.needed_s = {BUFFERED: 0.005}
    assert fastest("write", tmp_path, trials) == BUFFERED
    count = len(trials.tried)
    assert fastest("write", tmp_path, trials) == BUFFERED
    assert len(trials.tried) == count, "it was tried again"
    assert fastest("read", tmp_path, trials) == BUFFERED
    (found,) = json.loads(memory.read_text()).values()
    assert set(found) == {"write", "read"}


def test_a_slow_file_system_is_tried_once(tmp_path: Path, trials: Trials) -> None:
    trials.needed_s = {USUAL: 0.3}
    assert fastest("write", tmp_path, trials) == USUAL
    assert trials.tried == [USUAL]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"a": 1}', "\0"])
def test_a_spoilt_memory_is_made_anew(
    tmp_path: Path, trials: Trials, memory: Path, content: str
) -> None:
    trials.needed_s = {BUFFERED: 0.001}
    memory.parent.mkdir(parents=True)
    memory.write_text(content)
    assert fastest("write", tmp_path, trials) == BUFFERED
    assert fastest("write", tmp_path, trials) == BUFFERED


def test_nothing_about_it_is_fatal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: int, one: Way) -> None:
        raise OSError(errno.EIO, "no")

    assert fastest("read", tmp_path, fails) == USUAL
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert fastest("read", tmp_path, lambda *_: None) in (USUAL, *way._OTHERS)
    monkeypatch.setattr(writing, "WORTH_A_TRIAL_BYTES", 0)
    assert writing.way_to_write(tmp_path / "missing", 1) == USUAL


def test_the_trials_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: Path
) -> None:
    for module in (writing, reading):
        monkeypatch.setattr(module, "WORTH_A_TRIAL_BYTES", 1 << 20)
        monkeypatch.setattr(module, "TRIAL_BYTES", 1 << 20)
    folder = tmp_path / "folder"
    folder.mkdir()
    assert writing.way_to_write(folder, 1) == USUAL
    assert not memory.exists(), "a small save is not worth a trial"
    writing.way_to_write(folder, 2 << 20)
    assert list(folder.iterdir()) == []
    file = folder / "file"
    file.write_bytes(bytes(8 << 20))
    with reading.Input(file) as opened:
        assert opened.way in (USUAL, *way._OTHERS)
    (found,) = json.loads(memory.read_text()).values()
    assert set(found) == {"write", "read"}


@pytest.mark.parametrize("direct", [False, True])
def test_what_is_not_in_the_file_has_no_digest(tmp_path: Path, direct: bool) -> None:
    """Though it would be like what is there: the thread that reads it has just read that."""
    size_bytes = 3 << 20
    file = tmp_path / "file"
    file.write_bytes(bytes(size_bytes))
    there, alone = digest(bytes(size_bytes)), Way(direct=direct, threads=1)
    with reading.Input(file) as opened:
        target = memoryview(bytearray(size_bytes))
        ends = [(at, size_bytes) for at in (0, 4096)]
        assert list(opened.digests(ends, alone)) == [there, b""]
        assert list(opened.read([(at, target) for at, _ in ends], alone)) == [there, b""]
