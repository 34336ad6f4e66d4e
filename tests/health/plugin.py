"""A site's own check as an installed package: a node is burnt while a file says so."""

from __future__ import annotations

from pathlib import Path

_CHECK = """\
from pathlib import Path

from relight.resilience.health.check import Check, Finding
from relight.resilience.health.result import Outcome
from relight.resilience.ledger.faults import Fault

FLAGS = Path(__file__).parent


def look(candidate):
    if (FLAGS / f"burnt-{candidate.node}").exists():
        return Finding(Outcome.FAIL_NODE, "it is burnt")
    if (FLAGS / f"warm-{candidate.node}").exists():
        return Finding(Outcome.WARN, "it is warm")
    return Finding(Outcome.PASS, "it is cool")


CHECK = Check(
    name="smoke",
    reads="a file",
    threshold="absent",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    typical_s=0.01,
    timeout_s=5.0,
    run=look,
    repeated=True,
)
"""


def install(folder: Path) -> Path:
    """A folder for PYTHONPATH, in which `burnt-<node>` makes that node bad."""
    about = folder / "smoke-1.dist-info"
    about.mkdir(parents=True)
    (folder / "smoke.py").write_text(_CHECK)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: smoke\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[relight.checks]\nsmoke = smoke:CHECK\n")
    return folder
