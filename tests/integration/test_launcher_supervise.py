"""What the batch script exits with when the supervisor cannot go on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from relight.errors import RelightError, UsageError
from relight.launcher import supervise
from relight.launcher.keeper import EXIT_CRASHED
from relight.launcher.stored_plan import StoredPlan
from relight.resilience.config import RunConfig
from relight.resilience.supervise.cluster import ClusterUnavailable


def first_life(body: Callable[[int], int], *_: object) -> int:
    return body(1)


@pytest.mark.parametrize(
    ("error", "code"), [(ClusterUnavailable("silence"), EXIT_CRASHED), (UsageError("no"), 2)]
)
def test_only_what_may_pass_is_tried_again(
    error: RelightError,
    code: int,
    run_config: RunConfig,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, life: int) -> int:
        raise error

    plan = StoredPlan(cluster="local", config=run_config, submitted_by="me", created=0.0)
    monkeypatch.setattr(supervise, "read_plan", lambda root: plan)
    monkeypatch.setattr(supervise, "cluster_of", nullcontext)
    monkeypatch.setattr(supervise, "keep", first_life)
    monkeypatch.setattr(supervise, "supervise", fail)
    run_config.run_dir.mkdir()
    assert supervise.main([str(run_config.run_dir)]) == code
    assert capfd.readouterr().err == f"relight: {error}\n"


def test_a_process_ends_though_one_of_its_threads_hangs() -> None:
    program = (
        "import threading\n"
        "from relight.launcher.supervise import exit_with\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "print('said')\n"
        "exit_with(75)\n"
    )
    argv = [sys.executable, "-P", "-c", program]
    done = subprocess.run(argv, stdout=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (75, b"said\n")
