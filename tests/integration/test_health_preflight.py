"""The program of one node, as a process; and the site's own command within it."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.health.catalogue import CHECKS
from relight.resilience.health.check import Candidate
from relight.resilience.health.collect import read_reports
from relight.resilience.health.disk import check_disk
from relight.resilience.health.isolate import run_checks
from relight.resilience.health.preflight import examine
from relight.resilience.health.result import CheckResult, NodeReport, Outcome
from relight.resilience.health.site_command import CHECK as SITE_COMMAND

PROGRAM = "relight.resilience.health.preflight"
LIMIT_S = 60.0
MAX_RSS_BYTES = 100 * 1024**2


def start(config: RunConfig, plan: str | None = None, **env: str) -> subprocess.Popen[str]:
    config.run_dir.mkdir()
    written = json.dumps({"run": config.to_json()}) if plan is None else plan
    (config.run_dir / "plan.json").write_text(written)
    program = [sys.executable, "-m", PROGRAM]
    return subprocess.Popen(
        [*program, str(config.run_dir), str(config.run_dir / "out"), str(time.time())],
        env=os.environ | {"RELIGHT_NODE": "n1"} | env,
        stderr=subprocess.PIPE,
        text=True,
    )


def preflight(config: RunConfig, **env: str) -> NodeReport | None:
    process = start(config, **env)
    _, complaints = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, complaints) == (0, "")
    return read_reports(config.run_dir / "out", ["n1"])["n1"]


def with_health(config: RunConfig, **changes: object) -> RunConfig:
    health = dataclasses.replace(config.health, **changes)  # type: ignore[arg-type]
    return dataclasses.replace(config, health=health)


def outcomes(report: NodeReport | None) -> dict[str, Outcome]:
    assert report is not None
    return {result.check: result.outcome for result in report.results}


def test_a_good_node(run_config: RunConfig) -> None:
    report = preflight(run_config)
    assert report is not None
    assert (report.node, report.seconds < run_config.health.budget_s) == ("n1", True)
    assert report.identity.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert {"memory", "disk", "shm", "clock", "software", "peers"} < set(outcomes(report))
    assert "site_command" not in outcomes(report)
    assert not {Outcome.FAIL_NODE, Outcome.FAIL_JOB} & set(outcomes(report).values())
    assert [path.name for path in (run_config.run_dir / "out").iterdir()] == ["n1.json"]


def test_a_node_with_too_little_memory(run_config: RunConfig) -> None:
    report = preflight(with_health(run_config, min_free_memory_bytes=2**60))
    assert outcomes(report)["memory"] is Outcome.FAIL_NODE
    assert outcomes(report)["disk"] is Outcome.PASS


def test_slurm_names_the_node_where_relight_does_not(run_config: RunConfig) -> None:
    process = start(run_config, RELIGHT_NODE="", SLURMD_NODENAME="s7")
    process.communicate(timeout=LIMIT_S)
    assert read_reports(run_config.run_dir / "out", ["s7"])["s7"] is not None


def test_a_command_that_never_ends_does_not_hold_the_report(run_config: RunConfig) -> None:
    others = tuple({check.name for check in CHECKS} - {"memory", "site_command"})
    patient = with_health(run_config, site_command="exec cat /dev/zero", budget_s=2.0, skip=others)
    report = preflight(patient)
    assert report is not None
    assert outcomes(report)["site_command"] is Outcome.UNKNOWN
    assert outcomes(report)["memory"] is Outcome.PASS


@pytest.mark.parametrize("plan", ["", "[]", "{}", '{"run": []}', '{"run": {"name": "lm"}}'])
def test_no_readable_plan_is_no_report(run_config: RunConfig, plan: str) -> None:
    process = start(run_config, plan)
    _, complaints = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert "plan" in complaints
    assert "Traceback" not in complaints
    assert read_reports(run_config.run_dir / "out", ["n1"]) == {"n1": None}


def test_told_to_stop_it_takes_its_checks_along(run_config: RunConfig, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = start(with_health(run_config, site_command=f"echo here > {fifo}; exec cat {fifo}"))
    assert fifo.read_text() == "here\n"  # the command is at work
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode != 0
    # Nobody reads the pipe any more: the command has been ended.
    with pytest.raises(OSError, match="No such device"):
        os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)


def test_it_is_light(run_config: RunConfig) -> None:
    run_config.run_dir.mkdir()
    plan = json.dumps({"run": run_config.to_json()})
    (run_config.run_dir / "plan.json").write_text(plan)
    words = [sys.executable, "-m", PROGRAM, str(run_config.run_dir), str(run_config.run_dir), "0"]
    # By a process in between, since a child's peak begins with that of the process that forked it.
    measure = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    peak_kib = subprocess.check_output([sys.executable, "-c", measure, *words], timeout=LIMIT_S)
    assert int(peak_kib) * 1024 < MAX_RSS_BYTES


def site_command(config: RunConfig, command: str, limit_s: float = LIMIT_S) -> CheckResult:
    candidate = Candidate("n1", with_health(config, site_command=command), 0.0)
    (result,) = run_checks([SITE_COMMAND], candidate, limit_s)
    return result


@pytest.mark.parametrize(
    ("command", "outcome", "evidence"),
    [
        ("true", Outcome.PASS, "it printed nothing"),
        ("echo fine", Outcome.PASS, "fine"),
        ("echo no gpu >&2; exit 1", Outcome.FAIL_NODE, "echo exited with 1: no gpu"),
        ("seq 9; exit 255", Outcome.FAIL_NODE, "exited with 255: 5 | 6 | 7 | 8 | 9"),
        (r"printf '\377\000\n'; exit 2", Outcome.FAIL_NODE, "exited with 2"),
        ("no-such-command-anywhere", Outcome.UNKNOWN, "with 127, as when it cannot be started"),
        ("/etc/passwd", Outcome.UNKNOWN, "with 126, as when it cannot be started"),
        ("kill -KILL $$", Outcome.UNKNOWN, "ended by signal 9"),
        ("sh -c 'kill -TERM $$'; exit $?", Outcome.UNKNOWN, "ended by signal 15"),
    ],
)
def test_site_command(run_config: RunConfig, command: str, outcome: Outcome, evidence: str) -> None:
    result = site_command(run_config, command)
    assert (result.outcome, evidence in result.evidence) == (outcome, True), result.evidence


def test_a_site_command_without_enough_time(run_config: RunConfig) -> None:
    config = with_health(run_config, budget_s=5.0, site_command="echo begun; sleep 60")
    candidate = Candidate("n1", config, 0.0)
    (result,) = run_checks([SITE_COMMAND], candidate, LIMIT_S)
    assert result.outcome is Outcome.UNKNOWN
    assert "had not ended after 4 s, for health.budget is 5 s: begun" in result.evidence


def test_what_a_site_command_is_given_is_no_evidence(run_config: RunConfig) -> None:
    """Others may read that, in a shared ledger."""
    result = site_command(run_config, "TOKEN=s3cret test --password s3cret")
    assert result.evidence.startswith("test exited with 2")
    assert "s3cret" not in result.evidence


def test_what_a_site_command_leaves_in_the_background_does_not_hold_it(
    run_config: RunConfig, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert site_command(run_config, f"cat {fifo} & echo done").outcome is Outcome.PASS


def test_a_site_command_that_hangs(run_config: RunConfig, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    result = site_command(run_config, f"cat {fifo}", limit_s=0.3)
    assert result.outcome is Outcome.UNKNOWN
    assert "no answer" in result.evidence


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 512 KiB, less than the probe."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(mount)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"no filesystem can be mounted here: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def on(directory: Path, config: RunConfig) -> Candidate:
    checkpoint = dataclasses.replace(config.checkpoint, directory=directory)
    return Candidate("n1", dataclasses.replace(config, checkpoint=checkpoint), 0.0)


def test_a_full_disk(run_config: RunConfig, small_disk: Path) -> None:
    report = examine(on(small_disk, run_config), time.time())
    assert outcomes(report)["disk"] is Outcome.FAIL_JOB, "another node would find it full too"
    said = {result.check: result.evidence for result in report.results}
    assert "No space left" in said["disk"]
    assert list(small_disk.iterdir()) == []


def test_a_read_only_disk(run_config: RunConfig, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    finding = check_disk(on(small_disk / "checkpoints", run_config))
    assert finding.outcome is Outcome.FAIL_NODE
    assert "Read-only" in finding.evidence
