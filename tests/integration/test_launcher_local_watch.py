"""Nodes that turn bad while ranks run: `relight run`, with a site's own check."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from health.plugin import install

from relight.resilience.supervise.journal import read_journals

RELIGHT = Path(sys.executable).with_name("relight")
PATIENCE_S = 240.0  # nodes are watched at the lowest priority
PROGRAM = """\
import sys
import time
from pathlib import Path
import numpy as np
import relight

run = relight.join()
field = np.zeros(64)
run.protect(field=field)
for step in run.steps(100_000):
    field += step
    print("step", step, flush=True)
    if Path(sys.argv[1]).exists():
        break
    time.sleep(0.03)
"""

Start = Callable[..., "Watched"]


class Watched:
    """A run of two nodes with a spare, looked at every second, until there is a file."""

    def __init__(self, tmp_path: Path, on_degrade: str) -> None:
        self.stop = tmp_path / "stop"
        self.flags = install(tmp_path / "site")
        self._home = tmp_path / "home"
        (tmp_path / "work.py").write_text(PROGRAM)
        spec = tmp_path / "job.yaml"
        spec.write_text(
            f"command: [{sys.executable}, {tmp_path / 'work.py'}, {self.stop}]\n"
            "resources: {nodes: 2, spares: 1}\n"
            "checkpoint: {interval: 1000 steps}\n"
            f"health: {{during: 1s, on_degrade: {on_degrade}}}\n"
        )
        self._env = {
            **os.environ,
            "RELIGHT_HOME": str(self._home),
            "PYTHONPATH": str(self.flags),
        }
        self.process = subprocess.Popen(
            [RELIGHT, "run", "--json", str(spec)],
            env=self._env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @property
    def folder(self) -> Path:
        (folder,) = (self._home / "runs").iterdir()
        return folder

    def data_of(self, name: str) -> list[Mapping[str, object]]:
        records = read_journals(self.folder / "journal") if (self._home / "runs").exists() else []
        return [record.data for record in records if record.name == name]

    def wait(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "it did not come to pass"
            assert self.process.poll() is None, "the run has ended"
            time.sleep(0.05)

    def nodes(self) -> list[str]:
        self.wait(lambda: self.data_of("RanksStarted"))
        nodes = self.data_of("RanksStarted")[-1]["nodes"]
        assert isinstance(nodes, list)
        return nodes

    def spare(self) -> str:
        every = self.data_of("AttemptStarted")[-1]["nodes"]
        assert isinstance(every, list)
        (spare,) = set(every) - set(self.nodes())
        return str(spare)

    def flag(self, what: str, node: str) -> None:
        (self.flags / f"{what}-{node}").touch()

    def status(self) -> dict[str, object]:
        said = self.relight("status", self.folder.name, "--json")
        answer: dict[str, object] = json.loads(said)
        return answer

    def relight(self, *arguments: str) -> str:
        return subprocess.run(
            [RELIGHT, *arguments],
            env=self._env,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout

    def steps_of(self, rank: int) -> list[int]:
        """All steps that a rank has done, in any generation."""
        logs = sorted(self.folder.glob(f"attempts/*/logs/*/{rank}.log"))
        text = "".join(log.read_text() for log in logs)
        return [int(step) for step in re.findall(r"^step (\d+)$", text, re.MULTILINE)]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Start]:
    runs: list[Watched] = []

    def start(on_degrade: str) -> Watched:
        runs.append(Watched(tmp_path, on_degrade))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.process.terminate()
        run.process.wait(PATIENCE_S)


def test_a_node_that_turns_bad_is_left_and_no_step_is_done_twice(
    watched: Start,
) -> None:
    run = watched("move")
    bad, spare = run.nodes()[1], run.spare()
    run.wait(lambda: len(run.steps_of(0)) > 20)
    run.flag("burnt", bad)
    run.wait(lambda: len(run.data_of("RanksStarted")) == 2)
    saved = int(str(run.data_of("RanksStarted")[1]["restored_step"]))
    run.wait(lambda: all(run.steps_of(rank)[-1] > saved for rank in (0, 1)))
    run.stop.touch()
    assert run.process.wait(PATIENCE_S) == 0
    (degraded,) = [data for data in run.data_of("NodeDegraded") if data["can_save"]]
    assert (degraded["node"], degraded["evidence"]) == (bad, "smoke: it is burnt")
    (excluded,) = run.data_of("ExcludeNode")
    assert (excluded["node"], excluded["cause"]) == (bad, "degraded")
    assert [len(run.data_of(name)) for name in ("RanksStarted", "StopRanks")] == [2, 0]
    assert spare in str(run.data_of("RanksStarted")[-1]["nodes"])
    steps = sorted(log.name for log in run.folder.glob("attempts/*/logs/step-*.log"))
    assert steps == ["step-1.log", "step-2.log"], "the spare had agents, and the other keeps its"
    for rank in (0, 1):
        assert run.steps_of(rank) == list(range(len(run.steps_of(rank))))
    story = run.relight("history", run.folder.name)
    assert f"{bad} turns bad while ranks run: smoke: it is burnt" in story
    assert f"{bad} is left out: smoke: it is burnt" in story


def test_with_warn_it_is_told_and_only_a_spare_is_left(watched: Start) -> None:
    run = watched("warn")
    (warm, burnt), spare = run.nodes(), run.spare()
    run.flag("warm", warm)
    run.flag("burnt", burnt)
    told = [f"{burnt} turns bad: smoke: it is burnt", f"smoke: it is warm ({warm})"]
    run.wait(lambda: run.status()["health"] == told)
    assert "it is warm" in run.relight("status", run.folder.name)
    (run.flags / f"burnt-{burnt}").unlink()  # two of three would not be the nodes' fault
    run.flag("burnt", spare)
    run.wait(lambda: run.data_of("ExcludeNode"))
    assert [data["node"] for data in run.data_of("ExcludeNode")] == [spare]
    assert len(run.data_of("RanksStarted")) == 1
    assert run.data_of("SaveAndStop") == []


def test_after_a_failure_the_nodes_are_looked_at(tmp_path: Path) -> None:
    flags = install(tmp_path / "site")
    (flags / "burnt-node0").touch()
    spec = tmp_path / "job.yaml"
    spec.write_text("command: 'false'\nhealth: {preflight: off}\nrestart: {failures: 0}\n")
    env = {**os.environ, "RELIGHT_HOME": str(tmp_path / "home"), "PYTHONPATH": str(flags)}
    run = [str(RELIGHT), "run", str(spec)]
    done = subprocess.run(run, env=env, capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    (folder,) = (tmp_path / "home" / "runs").iterdir()
    last = read_journals(folder / "journal")[-1]
    assert (last.name, last.data["bad"]) == ("NodesExamined", {"node0": "smoke: it is burnt"})
    history = [str(RELIGHT), "history", folder.name]
    story = subprocess.run(history, env=env, capture_output=True, text=True, check=True).stdout
    assert "after the run: not fit: node0 (smoke: it is burnt)" in story


CONTAINED = """\
import os, sys
from pathlib import Path

if os.environ["RELIGHT_GENERATION"] == "1" and os.environ["RANK"] == "1":
    sys.exit("NVRM: Xid (PCI:0000:3b:00): 94, pid=7, Contained: SM")
"""


def test_a_node_whose_gpu_is_in_doubt_is_put_to_work(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(CONTAINED)
    spec = tmp_path / "job.yaml"
    spec.write_text(
        f"command: [{sys.executable}, {tmp_path / 'work.py'}]\n"
        "resources: {nodes: 2}\n"
        "health: {preflight: off}\n"
    )
    env = {**os.environ, "RELIGHT_HOME": str(tmp_path / "home")}
    run = [str(RELIGHT), "run", str(spec)]
    done = subprocess.run(run, env=env, capture_output=True, timeout=PATIENCE_S, check=False)
    (folder,) = (tmp_path / "home" / "runs").iterdir()
    records = read_journals(folder / "journal")
    assert done.returncode == 0, [record.name for record in records]
    (asked,) = [record.data for record in records if record.name == "ProbeNodes"]
    assert (asked["nodes"], asked["work"]) == (["node1"], True)
    (answer,) = [record.data for record in records if record.name == "NodesProbed"]
    assert (answer["answered"], answer["failed"]) == (["node1"], {})
    (report,) = folder.glob("attempts/*/tests/node1.json")
    tests = {result["check"] for result in json.loads(report.read_text())["results"]}
    assert {"product", "memory_rate", "disk_rate"} < tests
