"""NVIDIA's own diagnostics, where they are installed: ``dcgmi diag`` of the shortest level.

DCGM names each test with results by status; its JSON differs between versions (3: below "DCGM GPU
Diagnostic", 4: "DCGM Diagnostic"), so tests are looked for at any depth. Only what has run and
passed is a pass. DCGM says itself that a pass is not a statement that the GPU is healthy.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Final

from ...ledger.faults import Fault
from ..check import Candidate, Check, Finding, not_judged
from ..gpu.reading import NVIDIA
from ..result import Outcome

_FAILED: Final = frozenset({"fail", "failed"})
_PASSED: Final = frozenset({"pass", "passed"})
_ODD: Final = frozenset({"warn", "warning"})


def check_diag(_candidate: Candidate) -> Finding:
    if shutil.which("dcgmi") is None:
        return not_judged("dcgmi is not installed")
    done = subprocess.run(
        ["dcgmi", "diag", "-r", "1", "-j"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return judge_diag(done.stdout.decode(errors="replace"), done.returncode)


def judge_diag(said: str, code: int) -> Finding:
    """What the JSON says of the boards (pure); the exit code counts for nothing by itself."""
    try:
        found = list(_tests(json.loads(said[said.index("{") :])))
    except (ValueError, RecursionError):
        last = (said.strip().splitlines() or ["no words"])[-1]
        return Finding(Outcome.UNKNOWN, f"dcgmi exited with {code}: {last}")
    for outcome, words in ((Outcome.FAIL_NODE, _FAILED), (Outcome.WARN, _ODD)):
        if named := list(dict.fromkeys(name for name, status in found if status in words)):
            word = "fail" if outcome is Outcome.FAIL_NODE else "warn"
            return Finding(outcome, f"DCGM tests {word}: {', '.join(named[:5])}")
    passed = sum(status in _PASSED for _, status in found)
    if not passed:
        return Finding(Outcome.UNKNOWN, f"dcgmi exited with {code}, and no test has run")
    return Finding(Outcome.PASS, f"{passed} results of DCGM are a pass", float(passed), "results")


def _tests(value: object) -> Iterator[tuple[str, str]]:
    """Each result of each test: its name and the status in small letters."""
    if isinstance(value, list):
        for one in value:
            yield from _tests(one)
    elif isinstance(value, dict):
        results = value.get("results")
        if isinstance(results, list):
            name = str(value.get("name"))
            yield from (
                (name, str(result.get("status")).lower())
                for result in results
                if isinstance(result, dict)
            )
        else:
            for one in value.values():
                yield from _tests(one)


CHECK = Check(
    name="gpu_diag",
    reads="dcgmi diag -r 1, where it is installed",
    threshold="no test fails; nothing is said where none could be run",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    typical_s=10.0,
    timeout_s=60.0,
    needs=(NVIDIA,),
    run=check_diag,
)
