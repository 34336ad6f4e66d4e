"""Two live runs in one checkpoint directory, and a run that ends while it is asked to wait."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from stage.local import wait_until

from relight.errors import UsageError
from relight.launcher.clusters.local_front import front_file
from relight.launcher.launch_plan import LaunchPlan
from relight.launcher.run_creation import new_run_folder, note_jobs
from relight.launcher.runs import find_run
from relight.launcher.sbatch_warnings import script_warnings
from relight.launcher.shared_directory import directory_warnings
from relight.launcher.steering import NotDone, hold
from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.standing import write_verdict

FAKE_BIN = Path(__file__).parents[1] / "data" / "slurm" / "fake" / "bin"

END = Finish(outcome=Outcome.COMPLETED, exit_code=0, cause="done", reason="all ended with 0")


@pytest.fixture(autouse=True)
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Slurm with one job, of the run ``old``."""
    monkeypatch.setenv("FAKE_SLURM", str(tmp_path))
    monkeypatch.setenv("PATH", f"{FAKE_BIN}:{os.environ['PATH']}")
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path / "home"))
    (tmp_path / "squeue.out").write_text("42|RUNNING|None|N/A|/there/job.sh\n")
    return tmp_path


def make(config: RunConfig, run_id: str, cluster: Literal["slurm", "local"]) -> RunFolder:
    """A run in ``checkpoints`` beside its folder."""
    root = Path(os.environ["RELIGHT_HOME"]) / "runs" / run_id
    own = replace(config, run_id=run_id, run_dir=root)
    with new_run_folder(LaunchPlan(cluster=cluster, config=own, script=""), "") as folder:
        note_jobs(folder, ["42", "43"] if cluster == "slurm" else [])
        return folder


@contextmanager
def alive(folder: RunFolder) -> Iterator[None]:
    with front_file(folder).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_a_run_in_the_directory_of_a_live_one_is_warned_of(run_config: RunConfig) -> None:
    old = make(run_config, "old", "slurm")
    (warning,) = directory_warnings(run_config)
    assert warning.startswith(f"run old (RUNNING) saves in {run_config.checkpoint.directory}, too")
    assert script_warnings({"partition": "low"}, run_config) == [warning]
    assert script_warnings({"dependency": "afterany:42"}, run_config) == [], "it may wait for it"
    own = replace(run_config.checkpoint, directory=run_config.run_dir / "checkpoints")
    assert directory_warnings(replace(run_config, checkpoint=own)) == []
    assert directory_warnings(replace(run_config, run_id="old")) == [], "of itself"
    write_verdict(old, END, 0.0)
    assert directory_warnings(run_config) == []


def test_a_directory_that_is_no_place_to_write_is_warned_of(run_config: RunConfig) -> None:
    def warnings(directory: Path) -> list[str]:
        own = replace(run_config.checkpoint, directory=directory)
        return directory_warnings(replace(run_config, checkpoint=own))

    place = run_config.checkpoint.directory.parent
    assert warnings(place / "new" / "newer") == []
    assert warnings(Path("/no-such-mount/checkpoints")) == [], "the nodes may have it"
    (place / "file").touch()
    (warning,) = warnings(place / "file" / "checkpoints")
    assert f"{place / 'file'} is no folder on this machine" in warning


def test_a_local_run_that_waits_for_a_person_is_not_alive(run_config: RunConfig) -> None:
    old = make(run_config, "old", "local")
    assert directory_warnings(run_config) == []
    with alive(old):
        assert len(directory_warnings(run_config)) == 1


def test_a_run_that_ends_before_it_is_held_is_not_said_to_be(run_config: RunConfig) -> None:
    folder = make(run_config, "old", "local")
    begun = threading.Event()

    def run() -> None:
        """It hears that it is to be held, and has come to its end."""
        with alive(folder):
            begun.set()
            wait_until(folder.held.exists)
            write_verdict(folder, END, 0.0)

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(10.0)
    with pytest.raises(NotDone, match=r"run old ended before it was held \(COMPLETED\)$"):
        hold(find_run("old"))
    thread.join()


def test_a_run_that_would_end_is_not_held(run_config: RunConfig, fake: Path) -> None:
    queue = "42|RUNNING|None|N/A|/there/job.sh\n43|PENDING|Priority|N/A|/there/job.sh\n"
    (fake / "squeue.out").write_text(queue)
    never = replace(run_config.restart, mode="never")
    folder = make(replace(run_config, restart=never), "old", "slurm")
    with pytest.raises(UsageError, match=r"restart\.mode is never"):
        hold(find_run("old"))
    assert not folder.held.exists()
    assert "\thold\t" not in (fake / "calls").read_text()
