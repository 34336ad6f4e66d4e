"""Status and history from records, and the sentences of the story."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from relight.launcher.cli.main import relight
from relight.launcher.cli.status import as_text, most_wanted
from relight.launcher.clusters.local_front import pretend_nodes
from relight.launcher.clusters.local_step import tasks_of
from relight.launcher.report import history
from relight.launcher.status import Presence, RunFacts, RunState, Status, status
from relight.launcher.story import sentence
from relight.launcher.transfers import plain_lines
from relight.launcher.watch import (
    JournalTail,
    LineWatcher,
    catch_up,
    flushed,
    json_line,
    read_progress,
    standing,
    timed_sentence,
    untold_end,
)
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.journal import Kind, Record, read_journals
from relight.resilience.supervise.standing import Verdict

FACTS = RunFacts(
    run_id="lm-0a1b2c",
    cluster="slurm",
    run_dir="/r",
    job_id="8",
    progress={
        "attempt": "7.0",
        "generation": 2,
        "phase": "running",
        "step": 40,
        "nodes": ["n1", "n2"],
        "excluded": [{"node": "n3", "cause": "node down", "evidence": "silent"}],
        "last_checkpoint": 20,
    },
    verdict=None,
    presence=Presence.RUNNING,
    has_started=True,
    now=1000.0,
)


def verdict(state: str) -> Verdict:
    return Verdict(state=state, exit_code=0, cause="", reason="why", tail=(), time=0.0)


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (FACTS, RunState.RUNNING),
        (replace(FACTS, presence=Presence.WAITING), RunState.RESTARTING),
        (replace(FACTS, presence=Presence.WAITING, held=True), RunState.HELD),
        (replace(FACTS, held=True), RunState.RUNNING),
        (replace(FACTS, presence=Presence.WAITING, has_started=False), RunState.PENDING),
        (replace(FACTS, presence=Presence.ABSENT), RunState.UNKNOWN),
        (replace(FACTS, presence=Presence.UNKNOWN), RunState.UNKNOWN),
        (replace(FACTS, verdict=verdict("COMPLETED")), RunState.COMPLETED),
        (replace(FACTS, verdict=verdict("STOPPED"), presence=Presence.UNKNOWN), RunState.STOPPED),
        (replace(FACTS, verdict=verdict("OF A LATER VERSION")), RunState.UNKNOWN),
    ],
)
def test_state(facts: RunFacts, state: RunState) -> None:
    assert status(facts).state is state


def test_status_holds_what_was_promised() -> None:
    told = status(FACTS).to_json()
    assert told["nodes"] == ("n1", "n2")
    assert told["excluded"] == ("n3",)
    assert (told["step"], told["last_checkpoint"], told["job_id"]) == (40, 20, "8")


def test_nodes_are_those_that_a_run_holds_or_ran_on() -> None:
    assert "\nnodes           n1, n2\n" in as_text(status(FACTS))
    waiting = replace(FACTS, presence=Presence.WAITING)
    assert "\nran on          n1, n2\n" in as_text(status(waiting))


def test_status_before_the_first_attempt() -> None:
    told = status(replace(FACTS, progress=None, presence=Presence.WAITING, has_started=False))
    assert (told.state, told.step, told.nodes) == (RunState.PENDING, None, ())


def test_time_left_and_silence_are_those_of_the_job_that_runs() -> None:
    progress = {**(FACTS.progress or {}), "end_time": 1300.0, "steps_per_s": 0.5, "time": 900.0}
    mine = status(replace(FACTS, progress={**progress, "job_id": "8"}))
    assert (mine.time_left_s, mine.steps_per_s, mine.silent_s) == (300, 0.5, 100)
    older = status(replace(FACTS, progress={**progress, "job_id": "7"}))
    assert (older.time_left_s, older.steps_per_s, older.silent_s) == (None, None, None)
    local = replace(FACTS, cluster="local", progress={**progress, "job_id": "8"})
    assert status(local).time_left_s == 300
    for ended in (
        replace(local, presence=Presence.ABSENT, verdict=verdict("FAILED")),
        replace(local, presence=Presence.WAITING),
    ):
        assert (status(ended).time_left_s, status(ended).steps_per_s) == (None, None)


def test_a_killed_supervisor_leaves_no_stale_progress(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.journals.mkdir()
    commits = [(100.0, 20), (103.0, 26)]
    lines = [
        {
            "place": 1,
            "time": at,
            "kind": "event",
            "name": "CheckpointCommitted",
            "data": {"step": s},
        }
        for at, s in commits
    ]
    folder.journal("local-1.0").write_text("".join(json.dumps(line) + "\n" for line in lines))
    folder.progress.write_text(json.dumps({"time": 102.5, "step": 20, "last_checkpoint": 20}))
    catch_up(folder)
    facts = replace(FACTS, cluster="local", progress=read_progress(folder))
    assert (status(facts).step, status(facts).last_checkpoint) == (26, 26)


def test_an_end_that_no_journal_has_is_told(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    ended = replace(verdict("FAILED"), reason="line 1 of setup failed", tail=("bash: no module",))
    told = untold_end(folder, ended)
    assert told is not None
    assert sentence(told) == "FAILED: line 1 of setup failed\n      | bash: no module"
    folder.attempts.mkdir()
    (folder.attempts / "7.out").write_text("\n".join("abcdefg") + "\nmodule: command not found\n")
    setup = untold_end(folder, replace(ended, cause="setup", tail=()))
    assert setup is not None
    assert setup.data["tail"] == [*"defg", "module: command not found"]
    folder.journals.mkdir()
    line = {"place": 1, "time": 1.0, "kind": "action", "name": "Finish", "data": {**told.data}}
    folder.journal("local-1.0").write_text(json.dumps(line) + "\n")
    assert untold_end(folder, ended) is None
    assert untold_end(folder, None) is None


def record(time: float, name: str, attempt: str = "7.0", **data: object) -> Record:
    kind: Kind = "event"
    return Record(time, kind, name, data, attempt)


STORY = [
    record(1, "AttemptStarted", attempt="7.0", nodes=["n1", "n2"]),
    record(2, "RanksStarted", generation=1, nodes=["n1", "n2"], world_size=2, restored_step=None),
    record(3, "CheckpointCommitted", generation=1, step=20),
    record(4, "RankExited", generation=1, rank=1, node="n2", signal="SIGKILL", code=None),
    record(5, "ExcludeNode", node="n2", cause="node down", reason="silent"),
    record(6, "RanksStarted", generation=2, nodes=["n1"], world_size=1, restored_step=20),
    record(7, "CheckpointCommitted", generation=2, step=40),
    record(8, "Finish", outcome="RESTARTING", cause="preempted", reason="goes on"),
    record(9, "AttemptStarted", attempt="8.0", nodes=["n1"]),
]


def test_history() -> None:
    told = history("lm-0a1b2c", STORY)
    first, second = told.attempts
    assert [g.checkpoints for g in first.generations] == [(20,), (40,)]
    assert [g.restored_step for g in first.generations] == [None, 20]
    assert (first.outcome, first.cause, first.ended) == ("RESTARTING", "preempted", 8)
    assert (second.job_id, second.outcome, second.nodes) == ("8", None, ("n1",))
    assert [(e.node, e.cause, e.evidence) for e in told.excluded] == [("n2", "node down", "silent")]
    assert "rank 1 on n2 was killed (SIGKILL)" in [happening.text for happening in told.story]


def test_history_of_a_run_that_has_not_begun() -> None:
    assert history("lm-0a1b2c", []).attempts == ()


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("RankExited", {"rank": 0, "code": 0}, None),
        ("RankExited", {"rank": 0, "code": 75}, None),
        ("RankExited", {"rank": 0, "signal": "SIGTERM", "stopped": True}, None),
        ("RankExited", {"rank": 0, "node": "n1", "code": 3}, "rank 0 on n1 exited with 3"),
        (
            "CheckpointCommitted",
            {"step": 20, "bytes": 6 * 10**9, "seconds": 4.0, "slowest_rank": 3, "stall_s": 0.25},
            "checkpoint of step 20: 6 GB in 4 s (1.5 GB/s), rank 3 the slowest; "
            "steps waited 0.25 s",
        ),
        (
            "CheckpointCommitted",
            {"step": 20, "bytes": 1200, "seconds": 2.0},
            "checkpoint of step 20: 1.2 kB in 2 s (600 B/s)",
        ),
        ("CheckpointCommitted", {"step": 20, "bytes": 0, "seconds": 0.0}, "checkpoint of step 20"),
        (
            "CheckpointDrilled",
            {"step": 20, "damage": ""},
            "checkpoint 20 was read again and is whole",
        ),
        (
            "MetricMissing",
            {"metric": "accuracy", "logged": ["eval", "loss"]},
            "checkpoint.keep.best goes by 'accuracy', of which rank 0 has logged no finite number "
            "yet, but of eval, loss: until then no checkpoint is kept as the best",
        ),
        ("PreflightFinished", {"bad": {}}, "preflight: all nodes are fit"),
        (
            "PreflightFinished",
            {"bad": {"n1": "hot"}, "silent": ["n2"]},
            "preflight: not fit: n1 (hot); no answer: n2",
        ),
        (
            "ExclusionForgotten",
            {"node": "n1", "reason": "full"},
            "other runs will meet n1, which is not remembered: full",
        ),
        ("NodesExamined", {"bad": {}}, "after the run: the light checks find no fault"),
        (
            "PreflightFinished",
            {"bad": {}, "warnings": ["so many nodes fail alike that it is not the nodes: x"]},
            "preflight: no node is left out\n"
            "      warning: so many nodes fail alike that it is not the nodes: x",
        ),
        ("PreflightFinished", {"bad": {"n2": "disk"}}, "preflight: not fit: n2 (disk)"),
        ("PreflightFinished", {"job_fault": "all"}, "preflight: all"),
        ("PreflightFinished", {"outage": "away"}, "preflight: away"),
        (
            "PreflightFinished",
            {"bad": {}, "warnings": ["gpu: n1 is warm", "unclear: disk"]},
            "preflight: all nodes are fit\n      warning: gpu: n1 is warm"
            "\n      warning: unclear: disk",
        ),
        (
            "RanksLingered",
            {"ranks": [0, 2], "detail": "the time left is over"},
            "ranks 0, 2 are slow to exit, and ended now: the time left is over",
        ),
        (
            "RanksLingered",
            {"ranks": [1], "detail": "step 9 is saved"},
            "rank 1 is slow to exit, and ended now: step 9 is saved",
        ),
        (
            "RanksHung",
            {"ranks": [0], "detail": "no step for 30 s"},
            "hang: no step for 30 s; rank 0 is behind",
        ),
        (
            "RanksStarted",
            {"generation": 1, "world_size": 1, "nodes": ["n1"], "restored_step": None},
            "generation 1: 1 rank on n1, from the beginning",
        ),
        (
            "RanksStarted",
            {"generation": 2, "world_size": 1, "nodes": ["n1"], "by_resume": True},
            "generation 2: 1 rank on n1, by resume",
        ),
        (
            "AllocationArranged",
            {"mode": "successor", "job_id": "9", "released": ["n1", "n4"]},
            "goes on as job 9 (successor), which may use n1, n4 again: too few others are left",
        ),
        ("SomethingOfALaterVersion", {}, None),
    ],
)
def test_sentences(name: str, data: Mapping[str, object], text: str | None) -> None:
    assert sentence(Record(0.0, "event", name, data)) == text


def test_what_comes_often_fits_into_80_columns() -> None:
    saved = record(
        0.0, "CheckpointCommitted", step=99_999, bytes=1_234_567_890_123, seconds=123.45,
        stall_s=0.012345, slowest_rank=1023, staged_bytes=10**9,
    )  # fmt: skip
    said = timed_sentence(saved)
    assert said is not None
    assert said[9:] == "checkpoint of step 99999: 1.23 TB in 123 s (10 GB/s), waited 0.012 s"
    assert len(said) <= 80


def test_no_runs_are_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path))
    assert (
        CliRunner().invoke(relight, ["status"]).output == f"there are no runs in {tmp_path}/runs\n"
    )
    assert json.loads(CliRunner().invoke(relight, ["status", "--json"]).output) == []


def test_standing() -> None:
    progress = {"phase": "running", "step": 5, "last_checkpoint": 4, "steps_per_s": 2.0}
    assert standing(progress, 0.0) == "running · step 5 (2/s) · last checkpoint: step 4"
    wait = {"what": "agents on n2", "since": 90.0}
    starting = {"phase": "starting", "wait": wait}
    assert standing(starting, 102.2) == "starting · waits for agents on n2, for 12 s"
    assert status(replace(FACTS, progress={**starting, "job_id": "8"})).waits_for == (
        "agents on n2, for 910 s"
    )
    assert status(replace(FACTS, progress={**starting, "job_id": "7"})).waits_for is None


def test_pretend_nodes() -> None:
    assert pretend_nodes(3, frozenset({"node1", "node3"})) == ("node0", "node2", "node4")


def test_tasks_are_numbered_node_by_node() -> None:
    tasks = [(task.number, task.node, task.local_number) for task in tasks_of(["a", "b"], [2, 1])]
    assert tasks == [(0, "a", 0), (1, "a", 1), (2, "b", 0)]


def test_the_run_goes_on_when_nobody_reads_of_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.journals.mkdir()
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        nothing = plain_lines(lambda: None)
        tail = JournalTail(folder)
        watching = LineWatcher(tail, json_line, flushed(stream), lambda text: text, nothing)
        watching.say("to nobody")
        watching.say("to nobody")


def test_a_watcher_hears_of_an_older_journal_too_when_it_grows(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    tail = JournalTail(folder)

    def written(attempt: str, name: str) -> list[str]:
        path = folder.journal(attempt)
        path.parent.mkdir(exist_ok=True)
        place = 1 + int(attempt != "7.0")
        line = {"place": place, "time": 1.0, "kind": "event", "name": name, "data": {}}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return [record.name for record in tail.new_records()]

    for attempt, name in (("7.0", "a"), ("7.0", "b"), ("8.0", "c"), ("7.0", "late"), ("8.0", "d")):
        assert written(attempt, name) == [name]
    assert tail.new_records() == []


def test_what_a_full_disk_or_a_crash_leaves_in_a_journal_hides_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.journals.mkdir()
    tail, path = JournalTail(folder), folder.journal("7.0")

    def line(name: str) -> bytes:
        return json.dumps({"time": 1.0, "kind": "event", "name": name, "data": {}}).encode() + b"\n"

    def told() -> list[str]:
        return [record.name for record in tail.new_records()]

    path.write_bytes(line("a") + line("cut off again"))
    assert told() == ["a", "cut off again"]
    os.truncate(path, len(line("a")))
    assert told() == []
    path.write_bytes(line("a") + bytes(40) + b"\n" + line("b"))
    assert told() == ["b"]
    assert [record.name for record in read_journals(folder.journals)] == ["a", "b"]


def test_a_stop_is_told_once_in_an_attempt() -> None:
    told = history(
        "lm-0a1b2c",
        [
            *(
                record(1, "StopRequested", cause="cancelled", evidence=why)
                for why in ("TERM", "end")
            ),
            record(2, "StopRequested", cause="time limit", evidence="near"),
            record(3, "StopRequested", attempt="7.1", cause="time limit", evidence="near"),
        ],
    )
    assert [happening.text for happening in told.story] == [
        "told to stop (cancelled): TERM",
        "told to stop (time limit): near",
        "told to stop (time limit): near",
    ]


def test_a_terminal_shows_what_goes_on_before_what_has_ended() -> None:
    ended = [status(replace(FACTS, run_id=f"e{n}", verdict=verdict("FAILED"))) for n in range(20)]
    running = [status(replace(FACTS, run_id=name)) for name in ("r0", "r1")]

    def ids(found: list[Status]) -> str:
        return " ".join(one.run_id for one in found)

    found = [running[0], *ended, running[1]]
    assert most_wanted(found, 7, ids) == "r1 r0 e19 e18\nand 18 more"
    assert most_wanted(found, 40, ids).endswith(" e0")
