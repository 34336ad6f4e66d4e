"""Whether the kernel says that it has killed for lack of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from relight.resilience.worker.memory import oom_kills


@pytest.mark.parametrize(
    ("group", "file", "content"),
    [
        (
            "0::/slurm/job_7/step_0\n",
            "slurm/job_7/step_0/memory.events",
            "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n",
        ),
        (
            "12:pids:/a\n4:cpu,memory:/slurm/uid_5/job_7\n",
            "memory/slurm/uid_5/job_7/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        ),
    ],
)
def test_the_count_is_read(tmp_path: Path, group: str, file: str, content: str) -> None:
    membership, counter = tmp_path / "cgroup", tmp_path / "fs" / file
    membership.write_text(group)
    assert oom_kills(membership, tmp_path / "fs") == 0
    counter.parent.mkdir(parents=True)
    counter.write_text(content)
    assert oom_kills(membership, tmp_path / "fs") == 2


def test_where_nobody_counts_there_are_none(tmp_path: Path) -> None:
    assert oom_kills(tmp_path / "absent", tmp_path) == 0
