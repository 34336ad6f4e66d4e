"""Reports as files: what was written is read back, and nothing else passes for a report."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.resilience.health.collect import arrived, read_reports
from relight.resilience.health.result import (
    MAX_COUNT,
    CheckResult,
    NodeReport,
    Outcome,
    ReportDamaged,
)
from relight.resilience.ledger.faults import Fault
from relight.resilience.ledger.record import Identity
from relight.resilience.one_line import one_line

TEXT = st.text(max_size=300).map(lambda text: one_line(text, 300))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
RESULTS = st.builds(
    CheckResult,
    check=TEXT,
    outcome=st.sampled_from(Outcome),
    evidence=TEXT,
    value=st.none() | NUMBERS,
    unit=st.none() | TEXT,
    seconds=NUMBERS,
    fault=st.sampled_from(Fault),
    facts=st.dictionaries(TEXT, TEXT, max_size=3),
    counts=st.dictionaries(TEXT, st.integers(0, MAX_COUNT - 1), max_size=3),
)
REPORTS = st.builds(
    NodeReport,
    node=TEXT,
    results=st.lists(RESULTS).map(tuple),
    identity=st.builds(Identity, TEXT, st.lists(TEXT).map(tuple)),
    started=NUMBERS,
    seconds=NUMBERS,
)

RESULT: dict[str, object] = {
    "check": "disk",
    "outcome": "PASS",
    "evidence": "fine",
    "value": 1,
    "unit": "bytes",
    "seconds": 0.1,
    "fault": "condition",
    "facts": {},
    "counts": {},
}
REPORT: dict[str, object] = {
    "node": "n1",
    "results": [RESULT],
    "identity": {"boot_id": "b", "gpus": []},
    "started": 1.0,
    "seconds": 0.2,
}


def test_what_a_report_says_is_short_and_steers_no_terminal() -> None:
    wicked = "\x1b[2J\n" + "x" * 10**6
    names = {"check": wicked, "unit": wicked, "evidence": wicked}
    maps = {"facts": {wicked: wicked}, "counts": {wicked: 1}}
    report = NodeReport.from_json(
        {
            **REPORT,
            "node": wicked,
            "results": [{**RESULT, **names, **maps}],
            "identity": {"boot_id": wicked, "gpus": [wicked]},
        }
    )
    text = json.dumps(report.to_json(), ensure_ascii=False)
    assert text.isprintable()
    assert len(text) < 20_000


@given(REPORTS)
def test_round_trip(report: NodeReport) -> None:
    assert NodeReport.from_json(json.loads(json.dumps(report.to_json()))) == report


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "report",
        {},
        {**REPORT, "more": 1},
        {**REPORT, "node": 1},
        {**REPORT, "started": "now"},
        {**REPORT, "started": True},
        {**REPORT, "seconds": float("nan")},
        {**REPORT, "results": "none"},
        {**REPORT, "results": [{}]},
        {**REPORT, "results": [{**RESULT, "outcome": "FINE"}]},
        {**REPORT, "results": [{**RESULT, "fault": "age"}]},
        {**REPORT, "results": [{**RESULT, "facts": {"kernel": 6}}]},
        {**REPORT, "results": [{**RESULT, "counts": {"links": 1.5}}]},
        {**REPORT, "results": [{**RESULT, "counts": {"links": True}}]},
        {**REPORT, "results": [{**RESULT, "counts": {"links": 2**64}}]},
        {**REPORT, "identity": "b"},
        {**REPORT, "identity": {"boot_id": "b", "gpus": "0"}},
        {**REPORT, "results": [{**RESULT, "value": "1"}]},
        {**REPORT, "results": [{**RESULT, "evidence": None}]},
    ],
)
def test_anything_else_is_refused(data: object) -> None:
    with pytest.raises(ReportDamaged):
        NodeReport.from_json(data)


def test_only_whole_reports_of_the_nodes_themselves_are_collected(tmp_path: Path) -> None:
    whole = json.dumps(REPORT)
    (tmp_path / "n1.json").write_text(whole)
    (tmp_path / "n2.json").write_text(whole)  # of another node
    (tmp_path / "n3.json").write_text(whole[:-20])
    (tmp_path / "n4.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "n5.json").mkdir()
    os.mkfifo(tmp_path / "n6.json")  # opening it waits for a writer
    (tmp_path / "n9.json").symlink_to(tmp_path / "n1.json")
    (tmp_path / "n7.json").write_text(json.dumps({**REPORT, "node": "n7", "started": 10**400}))
    (tmp_path / "n8.json").write_text("[" * 100_000)
    nodes = [f"n{number}" for number in range(1, 10)]
    reports = read_reports(tmp_path, nodes)
    assert list(reports) == nodes
    assert [node for node, report in reports.items() if report] == ["n1"]


def test_only_reports_that_are_there_are_opened(tmp_path: Path) -> None:
    (tmp_path / "n2.json").write_text("")
    (tmp_path / ".n3.7.part").write_text("")
    assert arrived(tmp_path, ["n1", "n2", "n3"]) == ["n2"]
    assert arrived(tmp_path / "none", ["n1"]) == []


def test_no_folder_is_no_report(tmp_path: Path) -> None:
    assert read_reports(tmp_path / "none", ["n1"]) == {"n1": None}
