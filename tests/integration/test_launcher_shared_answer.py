"""One squeue in 10 s for all processes of a user: who asks, who waits, and what does not count."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from relight.launcher.clusters.slurm.parse import JobState, QueuedJob
from relight.launcher.queue import Queue
from relight.launcher.shared_answer import answer_file, forget_answer

FAKE_BIN = Path(__file__).parents[1] / "data" / "slurm" / "fake" / "bin"
JOB = QueuedJob("7_[1-3]", JobState.PENDING, "Priority", 5.0, "/a|b")


def test_processes_share_one_question(tmp_path: Path) -> None:
    """Four processes at once lead to one squeue: three wait for its answer."""
    (tmp_path / "squeue.out").write_text("7|PENDING|Priority|N/A|/x\n")
    (tmp_path / "squeue.1.sleep").write_text("0.3")
    program = (
        "import os, sys; from pathlib import Path; from relight.launcher.queue import Queue\n"
        "print(Queue(shared=Path(sys.argv[1])).answer().jobs[0].job_id)"
    )
    env = {**os.environ, "FAKE_SLURM": str(tmp_path), "PATH": f"{FAKE_BIN}:{os.environ['PATH']}"}

    def look(_: int) -> str:
        argv = [sys.executable, "-P", "-c", program, str(tmp_path / "answer")]
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(look, range(4))) == ["7\n"] * 4
    assert (tmp_path / "squeue.count").read_text() == "1\n"
    assert (tmp_path / "answer").stat().st_mode & 0o777 == 0o600


def test_what_a_user_has_changed_is_asked_for_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path))
    path = answer_file(os.environ)
    forget_answer()
    answers = iter(([JOB], []))
    for expected in ([JOB], [JOB]):
        assert Queue(lambda: next(answers), lambda: 100.0, path).answer().jobs == expected
    forget_answer()
    assert Queue(lambda: next(answers), lambda: 100.0, path).answer().jobs == []


def test_an_answer_is_passed_on_whole_and_grows_old(tmp_path: Path) -> None:
    now, asked = [100.0], []

    def ask() -> list[QueuedJob]:
        asked.append(now[0])
        return [JOB]

    def queue() -> Queue:
        return Queue(ask, lambda: now[0], tmp_path / "answer")

    assert [queue().answer().jobs for _ in range(3)] == [[JOB]] * 3
    now[0] = 109.9
    assert queue().answer().asked == 100.0
    now[0] = 110.0
    assert queue().answer().asked == 110.0
    now[0] = 50.0  # the clock was set back
    assert queue().answer().asked == 50.0
    assert asked == [100.0, 110.0, 50.0]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"asked": 100, "jobs": [[1]]}', b"\xff"])
def test_what_is_no_answer_does_not_count(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "answer").write_bytes(content)
    queue = Queue(lambda: [JOB], lambda: 100.0, tmp_path / "answer")
    assert queue.answer().jobs == [JOB]


def test_without_a_file_everybody_asks(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for path in (tmp_path / "nowhere" / "answer", tmp_path / "link"):
        assert Queue(lambda: [JOB], lambda: 1.0, path).answer().jobs == [JOB]
    assert (tmp_path / "target").read_text() == ""


def test_a_full_disk_is_no_reason_to_ask_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)

    def ask() -> list[QueuedJob]:
        asked.append(1)
        return [JOB]

    assert Queue(ask, lambda: 100.0, tmp_path / "answer").answer().jobs == [JOB]
    assert len(asked) == 1


def test_another_slurm_has_another_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path))
    one, other = (answer_file({"SLURM_CONF": name}) for name in ("/a", "/b"))
    assert one != other
    assert one.parent == tmp_path
