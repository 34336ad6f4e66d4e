"""What is said when nobody knows whether a job was submitted."""

from __future__ import annotations

import pytest

from relight.launcher.clusters.slurm.lookup import SubmissionUnknown, find_sent
from relight.resilience.supervise.cluster import ClusterUnavailable


def silent() -> str | None:
    raise ClusterUnavailable("no answer")


@pytest.mark.parametrize(
    ("shown_by", "command"), [(None, "squeue --me --name=lm-1"), ("squeue -o %o", "squeue -o %o")]
)
def test_how_to_find_out_is_said(shown_by: str | None, command: str) -> None:
    waits: list[float] = []
    with pytest.raises(SubmissionUnknown, match=f"whether lm-1 was submitted.*`{command}` shows"):
        find_sent(silent, "lm-1", waits.append, shown_by=shown_by)
    assert sum(waits) == 30


def test_one_empty_answer_may_be_too_early() -> None:
    answers = iter([None, "7"])
    assert find_sent(lambda: next(answers), "lm-1", lambda _: None) == "7"
