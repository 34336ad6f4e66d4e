"""The ledger is asked by a process of its own: the same answers, and an end where none comes."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from stage.ledger import evidence, own

from relight.resilience.ledger import apart
from relight.resilience.ledger.apart import LedgerApart, LedgerSilent, default_ledger
from relight.resilience.ledger.record import Release
from relight.resilience.ledger.store import Ledger, LedgerUnwritable


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


def test_a_ledger_apart_is_the_same(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = LedgerApart(ledger)
    assert asked.files() == []
    record, word = evidence(), Release(cluster="mini", node="n2", time=1e10, reason="by hand")
    asked.add(record)
    asked.release(word)
    (own(ledger) / "n3.torn.json").touch()
    greets = "import atexit\nprint('welcome')\natexit.register(print, 'goodbye')\n"
    requeued = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"  # as Slurm does
    (tmp_path / "sitecustomize.py").write_text(greets + requeued)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # a greeting may come late
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    assert set(asked.files()) == {record, word, None}
    assert set(asked.records()) == {record, word}
    own(ledger).chmod(0o777)
    with pytest.raises(LedgerUnwritable, match="only yours to write"):
        asked.add(record)


def test_a_ledger_that_does_not_answer_costs_its_answer(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that waits for ever stands for one that waits for a dead server."""
    silent = ledger.root.parent / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 600\n")
    silent.chmod(0o700)
    monkeypatch.setattr(apart, "LIMIT_S", 0.2)
    monkeypatch.setattr(sys, "executable", str(silent))
    for ask in (LedgerApart(ledger).records, lambda: LedgerApart(ledger).add(evidence())):
        with pytest.raises(LedgerSilent, match=r"no answer"):
            ask()
        monkeypatch.setattr(apart, "_silent", {})
    monkeypatch.setattr(apart, "_silent", {ledger.root: time.monotonic()})
    monkeypatch.setattr(apart, "LIMIT_S", 600.0)
    with pytest.raises(LedgerSilent, match="a moment ago"):  # not a second time at once
        LedgerApart(ledger).records()


def test_what_is_no_ledger_does_not_read_as_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RELIGHT_LEDGER", "~/wrong")
    assert default_ledger().records() == []
    (tmp_path / "wrong").touch()
    with pytest.raises(LedgerSilent, match="wrong cannot be read"):
        default_ledger().records()
