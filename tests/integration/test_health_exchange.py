"""The program of a pair: two real processes, and one whose partner does not come."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relight.launcher import pairs
from relight.launcher.pairs import PairSteps
from relight.resilience.health.pairs import localise

# In the place of srun: the program on each node of --nodelist.
SRUN = """#!/bin/bash
while [ "$1" != -- ]; do case $1 in --nodelist=*) nodes=${1#*=} ;; esac; shift; done
shift
for node in ${nodes//,/ }; do
    RELIGHT_NODE=$node "$@" &
done
wait
"""


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PairSteps:
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return PairSteps("7", tmp_path)


def test_two_nodes_that_work(steps: PairSteps) -> None:
    rates = steps.measure([("n1", "n2")])
    rate = rates["n1", "n2"]
    assert rate is not None
    assert rate > 0


def test_a_step_that_does_not_start_has_no_rate(steps: PairSteps, tmp_path: Path) -> None:
    (tmp_path / "srun").write_text("#!/bin/sh\nexit 1\n")
    assert steps.measure([("n1", "n3")]) == {("n1", "n3"): None}


def test_a_pair_that_never_ends_has_no_rate(
    steps: PairSteps, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "srun").write_text(f"#!/bin/sh\nexec cat {fifo}\n")
    monkeypatch.setattr(pairs, "LIMIT_S", 0.2)
    found = localise(("n1", "n2"), steps.measure)
    assert (found.bad, found.unclear) == ({}, ("n1", "n2"))


def test_it_says_which_sum_was_wrong(tmp_path: Path) -> None:
    program = (
        "from relight.resilience.health.active import exchange; import sys; "
        "exchange.exchange = lambda *_: None; "
        "sys.exit(exchange.main([sys.argv[1], 'n1', 'n2']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env=os.environ | {"RELIGHT_NODE": "n1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "between n1 and n2 is wrong" in done.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []
