"""The front of a local run whose folder, or whose terminal, goes away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from relight.launcher.cli.main import relight
from relight.launcher.clusters.local_front import Front
from relight.launcher.no_verdict import no_verdict
from relight.launcher.watch import watcher
from relight.resilience.config import RunConfig
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.journal import Entry, JournalWriter
from relight.resilience.supervise.standing import read_verdict

# Without CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH modes hold for root, too (capabilities(7)).
FRONT = """
import ctypes, sys
from pathlib import Path
from relight.launcher.clusters.local_front import Front
from relight.launcher.clusters.slurm.held import HeldAllocation
from relight.launcher.stored_plan import read_plan
from relight.launcher.watch import watcher
from relight.resilience.run_folder import RunFolder

libc = ctypes.CDLL(None)
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
libc.capget(header, data)
data[0] &= ~0b110
libc.capset(header, data)
root = Path(sys.argv[1])
folder = RunFolder(root)
held = HeldAllocation("7", ("n1",))
sys.exit(Front(folder, read_plan(root).config, watcher(folder, as_json=False), held).run())
"""


def front(config: RunConfig, script: str) -> subprocess.Popen[str]:
    folder = RunFolder(config.run_dir)
    folder.attempts.mkdir(parents=True)
    folder.journals.mkdir()
    plan = {"version": 1, "cluster": "local", "submitted_by": "test", "created": 0}
    folder.plan.write_text(json.dumps({**plan, "run": config.to_json()}))
    folder.script.write_text(script)
    command = [sys.executable, "-c", FRONT, str(config.run_dir)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_run_folder_that_cannot_be_read_is_looked_at_again(run_config: RunConfig) -> None:
    root = run_config.run_dir
    process = front(
        run_config,
        f"[ -e {root}/second ] && exit 0\ntouch {root}/second\nchmod 0 {root}\nexit 75\n",
    )
    assert process.stderr is not None
    said = process.stderr.readline()
    root.chmod(0o700)
    _, rest = process.communicate(timeout=120)
    assert "the run folder is waited for: [Errno 13]" in said, said + rest
    assert process.returncode == 0, "there was a second attempt"


def test_a_terminal_that_is_closed_stops_the_run_so_that_it_can_go_on(
    run_config: RunConfig,
) -> None:
    process = front(run_config, "kill -HUP $PPID\nexec sleep 60\n")
    process.communicate(timeout=120)
    assert process.returncode == 75
    assert not RunFolder(run_config.run_dir).cancelled.exists()
    resumed = CliRunner().invoke(relight, ["run", "--resume", str(run_config.run_dir)])
    assert "ran on the nodes of job 7" in str(resumed.exception), "not on this machine, unasked"


def test_an_interrupt_before_the_supervisor_has_begun_is_no_death_of_it(
    run_config: RunConfig,
) -> None:
    process = front(run_config, "kill -INT $PPID\nexec sleep 60\n")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "was killed by" not in said
    verdict = read_verdict(RunFolder(run_config.run_dir))
    assert verdict is not None
    assert verdict.state == "CANCELLED"


def test_a_full_disk_under_the_output_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text(f"command: [{sys.executable}]\n")
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path))
    monkeypatch.setattr(Front, "run", lambda _: 0)
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        monkeypatch.setattr(sys, "stderr", full)
        assert relight.main(["run", str(spec)], standalone_mode=False) == 0
        monkeypatch.undo()


def test_no_verdict_is_told_with_the_last_words_and_a_disk_that_refuses(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.attempts.mkdir(parents=True)
    assert no_verdict(folder, 1) == "the supervisor ended with 1 and left no verdict"
    (folder.attempts / "7.out").write_text("one\ntwo\n" + "last\n" * 5)
    said = no_verdict(folder, 1)
    assert said.splitlines()[:-1] == ["      | last"] * 5
    assert "cannot be written" not in said
    folder.root.rename(tmp_path / "away")
    assert no_verdict(folder, 1).endswith("run cannot be written: No such file or directory")


def test_a_lost_terminal_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path)
    ours, theirs = os.openpty()
    with open(theirs, "w") as terminal:  # noqa: PTH123 - it is open already
        monkeypatch.setattr(sys, "stderr", terminal)
        watching = watcher(folder, as_json=False)
        with watching:
            os.close(ours)
            journal = JournalWriter(folder.journal("1.0"))
            data = {"step": 1, "generation": 1, "bytes": 1, "seconds": 1.0, "slowest_rank": 0}
            journal.write([Entry(1.0, "event", "CheckpointCommitted", {**data, "stall_s": 0.0})])
            journal.close()
            watching.look()
            watching.say("nobody reads this")
        terminal.write("nor this")
        terminal.flush()
        assert not os.isatty(terminal.fileno()), "it was written, and went nowhere"
        monkeypatch.undo()
