"""The catalogue: what its checks declare, which a run wants, and those of installed packages."""

from __future__ import annotations

import dataclasses
import threading
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from relight.resilience.config import HealthConfig, RunConfig
from relight.resilience.health import catalogue
from relight.resilience.health.catalogue import CHECKS, all_checks, wanted_checks
from relight.resilience.health.check import Candidate, Check, Finding
from relight.resilience.health.isolate import run_checks
from relight.resilience.health.result import Outcome

LIMIT_S = 60.0


def hang(candidate: Candidate) -> Finding:
    threading.Event().wait()
    return fine(candidate)


@pytest.mark.parametrize(
    ("silence", "limit_s", "outcome"),
    [
        (Outcome.UNKNOWN, LIMIT_S, Outcome.UNKNOWN),
        (Outcome.FAIL_NODE, LIMIT_S, Outcome.FAIL_NODE),
        (Outcome.FAIL_NODE, 0.1, Outcome.UNKNOWN),  # it did not have all its time
    ],
)
def test_a_check_that_hangs(
    run_config: RunConfig, silence: Outcome, limit_s: float, outcome: Outcome
) -> None:
    hanging = dataclasses.replace(CHECKS[0], run=hang, timeout_s=0.3, silence=silence)
    (result,) = run_checks([hanging], Candidate("n1", run_config, 0.0), limit_s)
    assert (result.outcome, "no answer" in result.evidence) == (outcome, True)


def test_each_check_says_what_it_is() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert check.reads
        assert check.threshold
        assert 0 < check.typical_s < check.timeout_s
        assert all(limit.check == check.name for limit in check.limits)
        if check.silence is Outcome.FAIL_NODE:
            # Else the budget would always cut it short, and it could never be said to hang.
            assert check.timeout_s < HealthConfig().budget_s * 0.9


def test_what_a_run_does_not_want() -> None:
    names = {check.name for check in wanted_checks(HealthConfig(skip=("load",)))}
    assert "load" not in names
    assert "site_command" not in names
    assert "site_command" in {c.name for c in wanted_checks(HealthConfig(site_command="nhc"))}


def fine(_candidate: Candidate) -> Finding:
    return Finding(Outcome.PASS, "fine")


SITE_CHECK = dataclasses.replace(CHECKS[0], name="site", run=fine)


def test_checks_of_installed_packages(
    monkeypatch: pytest.MonkeyPatch, run_config: RunConfig
) -> None:
    entries = [
        EntryPoint("site", "test_catalogue_entry:SITE_CHECK", "relight.checks"),
        EntryPoint("text", "os:sep", "relight.checks"),
        EntryPoint("gone", "no_such_module:CHECK", "relight.checks"),
        EntryPoint("memory", "mine:MEMORY", "relight.checks"),
        EntryPoint("other", "mine:SITE", "relight.checks"),
        EntryPoint("program", "program:CHECK", "relight.checks"),
    ]
    memory = dataclasses.replace(SITE_CHECK, name=CHECKS[0].name)
    loaded = {"test_catalogue_entry:SITE_CHECK": SITE_CHECK, "os:sep": "/"}
    loaded |= {"mine:MEMORY": memory, "mine:SITE": SITE_CHECK}

    def load(entry: EntryPoint) -> object:
        if entry.value in loaded:
            return loaded[entry.value]
        raise SystemExit("usage") if entry.name == "program" else ImportError(entry.value)

    monkeypatch.setattr(EntryPoint, "load", load)
    monkeypatch.setattr(catalogue, "entry_points", lambda group: entries)
    added: tuple[Check, ...] = all_checks()[len(CHECKS) :]
    results = run_checks(added, Candidate("n1", run_config, 0.0), LIMIT_S)
    assert [(result.check, result.outcome) for result in results] == [
        ("site", Outcome.PASS),
        ("text", Outcome.UNKNOWN),
        ("gone", Outcome.UNKNOWN),
        ("mine:MEMORY", Outcome.UNKNOWN),
        ("other", Outcome.UNKNOWN),
        ("program", Outcome.UNKNOWN),
    ]
    assert "mine:MEMORY is called memory" in results[3].evidence


@pytest.mark.parametrize(
    "wrong",
    [
        *({"timeout_s": None}, {"timeout_s": "3"}, {"typical_s": None}, {"name": None}),
        *({"timeout_s": float("nan")}, {"typical_s": float("inf")}),
        *({"needs": 5}, {"needs": "sys"}, {"limits": None}, {"limits": ("x",)}),
        *({"silence": None}, {"worst": "bad"}, {"fault": 1}, {"run": 3}, {"reads": None}),
    ],
)
def test_a_check_is_declared_right_or_not_at_all(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"{next(iter(wrong))} of check"):
        dataclasses.replace(SITE_CHECK, **wrong)
