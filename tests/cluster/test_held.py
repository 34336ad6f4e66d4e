"""``relight run`` inside an allocation that ``salloc`` has made."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from stage.site import PYTHON, RELIGHT, Site, eventually
from stage.whole import whole

PROGRAM = """
import os, signal
import numpy as np
import relight
run = relight.join()
field = np.zeros(64)
run.protect(field=field)
for step in run.steps(20):
    field += step
    if step == 12 and os.environ["RANK"] == "1" and os.environ["RELIGHT_GENERATION"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def site(generous: Site) -> Iterator[Site]:
    yield from whole(generous)


def test_a_run_uses_the_allocation_that_it_is_in(site: Site) -> None:
    program, spec = site.shared / "held.py", site.shared / "held.json"
    program.write_text(PROGRAM)
    spec.write_text(
        json.dumps(
            {
                "name": "held",
                "command": [str(PYTHON), str(program)],
                "resources": {"nodes": 2},
                "checkpoint": {"interval": "5 steps"},
            }
        )
    )
    said = site.user("salloc", "-N2", "-t5", "-plow", str(RELIGHT), "run", str(spec), "--json")
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    begun = [one["data"] for one in events if one["name"] == "AttemptStarted"]
    assert len(begun) == 1
    nodes = begun[0]["nodes"]
    known = site.user("sinfo", "-h", "-N", "-p", "low", "-o", "%N").split()
    assert len(nodes) == 2
    assert set(nodes) <= set(known), "real nodes, and no pretend ones"
    assert [one["data"]["generation"] for one in events if one["name"] == "RanksStarted"] == [1, 2]
    # Slurm takes its time to clear the nodes after salloc has ended.
    eventually(lambda: not site.jobs(), 60, lambda: site.user("squeue"))
