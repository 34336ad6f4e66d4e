"""``relight preflight --directory`` of a filesystem that never answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from relight.launcher import preflight
from relight.launcher.cli.preflight import command
from relight.resilience.health.check import Candidate
from relight.resilience.health.result import NodeReport
from relight.resilience.ledger.record import Identity


def test_only_the_checks_look_at_the_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dead = tmp_path / "dead"
    asked: list[Path] = []

    def examine(candidate: Candidate, _started: float, *, active: bool) -> NodeReport:
        asked.append(candidate.config.checkpoint.directory)
        return NodeReport(node="n1", results=(), identity=Identity(), started=0.0, seconds=0.0)

    def hangs(call: Callable[..., object]) -> Callable[..., object]:
        def instead(path: object, *more: object, **named: object) -> object:
            assert str(dead) not in os.fsdecode(str(path)), "this would hang for ever"
            return call(path, *more, **named)

        return instead

    monkeypatch.setattr(preflight, "examine", examine)
    for name in ("stat", "lstat", "mkdir", "open", "scandir", "readlink"):
        monkeypatch.setattr(os, name, hangs(getattr(os, name)))
    context = command.make_context("preflight", ["--directory", str(dead)])
    preflight.examine_here(context.params["directory"], active=False)
    assert asked == [dead]
