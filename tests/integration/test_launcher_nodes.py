"""``relight nodes``, and submissions that heed it, against a fake Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from relight.resilience.ledger.faults import DAY_S, Fault
from relight.resilience.ledger.record import Evidence
from relight.resilience.ledger.store import Ledger

DATA = Path(__file__).parents[1] / "data" / "slurm"
RELIGHT = Path(sys.executable).with_name("relight")
SLURM = {
    "scontrol.1.out": (DATA / "22.05" / "scontrol-show-config.txt").read_text(),
    "scontrol.2.out": (DATA / "22.05" / "scontrol-show-partition.txt").read_text(),
    "sinfo.out": "".join(f"n{number}|mixed\n" for number in range(1, 7)),
}

Relight = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    folder = tmp_path / "fake"
    folder.mkdir()
    for name, answer in SLURM.items():
        (folder / name).write_text(answer)
    (folder / "sbatch.out").write_text("Submitted batch job 4242\n")
    return folder


@pytest.fixture
def relight(tmp_path: Path, fake: Path) -> Relight:
    path = f"{DATA / 'fake' / 'bin'}:{os.environ['PATH']}"
    env = {**os.environ, "RELIGHT_HOME": str(tmp_path), "FAKE_SLURM": str(fake), "PATH": path}
    env.pop("RELIGHT_LEDGER", None)

    def call(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [RELIGHT, *arguments], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return call


def accuse(tmp_path: Path, node: str = "n4", cluster: str = "mini") -> None:
    now = time.time()
    Ledger(tmp_path / "ledger").add(
        Evidence(
            cluster=cluster,
            node=node,
            fault=Fault.HARDWARE,
            lines=("gpu_xid: Xid 79 on GPU 3",),
            weight=1.0,
            ttl_s=DAY_S,
            first_seen=now,
            last_seen=now,
            run_id="lm-0a1b2c",
        )
    )


def script(relight: Relight, tmp_path: Path, sbatch: str = "{}", nodes: int = 2) -> str:
    spec = tmp_path / "job.yaml"
    spec.write_text(f"command: [echo]\nsbatch: {sbatch}\nresources: {{nodes: {nodes}}}\n")
    return relight("plan", str(spec)).stdout


def test_an_empty_ledger(relight: Relight, fake: Path) -> None:
    answer = json.loads(relight("nodes", "ls", "--json").stdout)
    assert answer["nodes"] == []
    assert "nothing counts against n1" in relight("nodes", "show", "n1").stdout
    exported = relight("nodes", "export")
    assert (exported.stdout, "no node is avoided" in exported.stderr) == ("", True)
    assert "nothing counts" in relight("nodes", "release", "n1", code=2).stderr
    assert not (fake / "calls").exists()


def test_a_node_is_excluded_shown_exported_and_released(relight: Relight, fake: Path) -> None:
    said = relight("nodes", "exclude", "n4", "--reason", "[/burnt] out", "--for", "2d").stdout
    assert said == "new jobs on mini avoid n4 for 2d\n"
    (node,) = json.loads(relight("nodes", "ls", "--json").stdout)["nodes"]
    assert (node["node"], node["cluster"], node["avoided"]) == ("n4", "mini", True)
    assert node["until"] == pytest.approx(time.time() + 2 * DAY_S, abs=60)
    assert "[/burnt]" in relight("nodes", "ls").stdout  # no markup
    assert "[/burnt] out" in relight("nodes", "show", "n4").stdout
    told = "scontrol update NodeName=n4 State=DRAIN Reason='[/burnt] out'"
    assert told in relight("nodes", "export").stdout
    assert "nothing counts against n5" in relight("nodes", "export", "n4", "n5", code=2).stderr
    (fake / "scontrol.2.out").write_text(SLURM["scontrol.1.out"])
    assert "no node n77" in relight("nodes", "exclude", "n77", "--reason", "x").stderr
    relight("nodes", "release", "n77")
    relight("nodes", "release", "n4")
    assert json.loads(relight("nodes", "ls", "--json").stdout)["nodes"] == []


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("n4", "--reason", "x", "--for", "91d"), "at most 90d"),
        (("n4", "--reason", "x", "--for", "soon"), "--for"),
        (("../n4", "--reason", "x"), "not the name of a node"),
        (("n4", "--reason", " "), "--reason is empty"),
        (("n4", "--reason", "x", "--cluster", "../x"), "not the name of a cluster"),
    ],
)
def test_mistakes(relight: Relight, arguments: tuple[str, ...], part: str) -> None:
    refused = relight("nodes", "exclude", *arguments, code=2)
    assert part in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_submission_avoids_and_says_so(relight: Relight, tmp_path: Path) -> None:
    accuse(tmp_path)
    (tmp_path / "job.yaml").write_text("command: [echo]\nname: hi\n")
    done = relight("submit", "--json", str(tmp_path / "job.yaml"))
    assert "avoiding n4: gpu_xid: Xid 79 on GPU 3 (1 run; `relight nodes show n4`)" in done.stderr
    sent = Path(json.loads(done.stdout)["run_dir"], "job.sh").read_text()
    assert "#SBATCH --exclude=n4\n" in sent


@pytest.mark.parametrize(
    ("sbatch", "line"),
    [
        ("{exclude: 'n[1-2]'}", "#SBATCH --exclude='n[1-2],n4'\n"),
        ("{--exclude: n1}", "#SBATCH --exclude=n1,n4\n"),
        ("{nodelist: n5}", "#SBATCH --exclude=n4\n"),
    ],
)
def test_it_is_merged_with_what_the_user_asks(
    relight: Relight, tmp_path: Path, sbatch: str, line: str
) -> None:
    accuse(tmp_path)
    sent = script(relight, tmp_path, sbatch)
    assert line in sent
    assert sent.count("exclude") == 1


@pytest.mark.parametrize("sbatch", ["{nodelist: 'n[4-5]'}", "{exclude: n4}", "{exclude: ./bad}"])
def test_the_users_own_lists_stand(relight: Relight, tmp_path: Path, sbatch: str) -> None:
    accuse(tmp_path)
    assert ",n4" not in script(relight, tmp_path, sbatch)


def test_nodes_of_other_clusters_and_needed_ones_are_not_excluded(
    relight: Relight, tmp_path: Path, fake: Path
) -> None:
    accuse(tmp_path, cluster="other")
    assert "exclude" not in script(relight, tmp_path)
    (fake / "scontrol.count").unlink()
    accuse(tmp_path)
    assert "exclude" not in script(relight, tmp_path, nodes=6)


def test_a_silent_slurm_costs_the_exclusion_and_not_the_submission(
    relight: Relight, tmp_path: Path, fake: Path
) -> None:
    accuse(tmp_path)
    (fake / "scontrol.1.rc").write_text("1")
    (tmp_path / "job.yaml").write_text("command: [echo]\nname: hi\n")
    done = relight("submit", str(tmp_path / "job.yaml"))
    assert "known bad nodes are not excluded" in done.stderr
    assert "job 4242" in done.stdout


def test_what_was_predicted_is_shown(relight: Relight, tmp_path: Path) -> None:
    accuse(tmp_path)
    before = time.time() - 7200
    trend = Evidence(
        cluster="mini",
        node="n4",
        fault=Fault.TREND,
        lines=("links gone down: 3 more in 2.0 h, 0 on most nodes",),
        weight=0.3,
        ttl_s=DAY_S,
        first_seen=before,
        last_seen=before,
        run_id="lm-3d4e5f",
    )
    Ledger(tmp_path / "ledger").add(trend)
    said = relight("nodes", "show", "n4").stdout
    assert "predicted: links gone down, 2.0 h before its hardware fault" in said
    assert "links gone down: seen 1 time, right 1 time, 2.0 h before (median)" in said
    (answer,) = json.loads(relight("nodes", "show", "n4", "--json").stdout)
    assert answer["predicted"][0]["counter"] == "links gone down"


@pytest.mark.parametrize(
    ("words", "excluded"),
    [
        (("-N2", "--exclude=n1"), "--exclude=n1,n4"),
        (("-N2",), "--exclude=n4"),
        (("-N2", "-w", "n4"), None),
        (("-N6",), None),
    ],
)
def test_sbatch_avoids_it_too(
    relight: Relight, tmp_path: Path, words: tuple[str, ...], excluded: str | None
) -> None:
    accuse(tmp_path)
    (tmp_path / "job.sh").write_text("#!/bin/sh\ntrue\n")
    done = relight("sbatch", "--relight-dry-run", *words, str(tmp_path / "job.sh"))
    sent = done.stdout.splitlines()[0].split()[1:-1]
    found = [word for word in sent if "exclude" in word]
    assert found[-1:] == ([] if excluded is None else [excluded])
    assert ("avoiding n4" in done.stderr) is (excluded is not None)
