"""All active tests, each beside the published floor for the card."""

from __future__ import annotations

from passive import config
from rows import Row, small, tell

from relight.resilience.health.active.floors import floor
from relight.resilience.health.catalogue import ACTIVE
from relight.resilience.health.check import Candidate
from relight.resilience.health.isolate import run_checks
from relight.resilience.health.preflight import node_name

LIMIT_S = 60.0


def main() -> None:
    candidate = Candidate(node_name(), config(), 0.0)
    tests = [test for test in ACTIVE if not small() or not test.name.startswith("gpu")]
    facts: dict[str, str] = {}
    rows: list[Row] = []
    for test in tests:
        # Torch sees GPUs where /proc/driver is hidden, as in containers.
        (result,) = run_checks((test,), candidate, LIMIT_S)
        facts |= result.facts
        least = floor(test.name, facts)
        value = "" if result.value is None else f"{result.value:.4g} {result.unit}"
        beside = "no floor" if least is None else f"floor {least:.4g} {result.unit}"
        text = f"{result.outcome.value}: {result.evidence} ({beside}, {result.seconds:.1f} s)"
        rows.append((test.name, value, text))
    tell(rows)


if __name__ == "__main__":
    main()
