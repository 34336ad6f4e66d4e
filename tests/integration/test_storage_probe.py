"""The question whether a checkpoint directory works: it never waits for ever."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from relight.resilience.supervise import storage_probe


def ask(directory: Path) -> str | None:
    return asyncio.run(storage_probe.Question(directory).ask())


def test_a_directory_that_works_keeps_nothing_of_the_question(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    assert ask(directory) is None
    assert list(directory.iterdir()) == []


def test_the_fault_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    fault = ask(tmp_path / "file" / "checkpoints")
    assert fault is not None
    assert "Not a directory" in fault


def test_that_nobody_could_be_sent_to_ask_is_no_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    question = storage_probe.Question(tmp_path)
    assert "no process can be started" in str(asyncio.run(question.ask()))
    assert not question.silent


def test_a_full_disk_is_a_fault(small_disk: Path) -> None:
    with suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(1024**2))
    fault = ask(small_disk)
    assert fault is not None
    assert "No space left" in fault


def test_silence_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that does not come back, as in the kernel of a dead file system."""
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(storage_probe, "LIMIT_S", 0.5)
    monkeypatch.setattr(storage_probe, "_REAP_S", 60.0)  # one that is left is told of elsewhere
    fault = ask(tmp_path)
    assert fault is not None
    assert "no answer" in fault


def test_while_one_process_cannot_be_killed_no_other_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a file system that is away for an hour leaves hundreds of them on the host."""
    back, sent = tmp_path / "back", tmp_path / "sent"
    (tmp_path / "sitecustomize.py").write_text(
        "import pathlib, time\n"
        f"print('one', file=open({str(sent)!r}, 'a'))\n"
        f"while not pathlib.Path({str(back)!r}).exists():\n"
        "    time.sleep(0.02)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(storage_probe, "LIMIT_S", 0.5)
    monkeypatch.setattr(storage_probe, "_REAP_S", 0.05)
    monkeypatch.setattr(asyncio.subprocess.Process, "kill", lambda _: None)

    async def scene() -> None:
        question = storage_probe.Question(tmp_path)
        assert "no answer" in str(await question.ask())
        assert "cannot be killed" in str(await question.ask())
        async with asyncio.timeout(60):
            while not sent.exists() or not sent.read_text():  # it starts late on a busy machine
                await asyncio.sleep(0.02)
        assert sent.read_text().split() == ["one"]
        back.touch()
        monkeypatch.setattr(storage_probe, "LIMIT_S", 60.0)
        assert await question.ask() is None

    asyncio.run(scene())
