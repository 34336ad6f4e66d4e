"""A sweep: its points, its arrays, and what each task makes its run from."""

from __future__ import annotations

import json
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from relight.errors import UsageError
from relight.launcher.array_task import folder_of
from relight.launcher.cli.main import relight
from relight.launcher.clusters.slurm.client import SlurmMissing
from relight.launcher.launch_plan import LaunchPlan, Submitter
from relight.launcher.run_creation import new_run_folder, write_sweep
from relight.launcher.spec import JobSpec
from relight.launcher.spec_faults import SpecError
from relight.launcher.spec_file import load_spec, parse_spec
from relight.launcher.stored_plan import read_plan
from relight.launcher.sweep_plan import SweepPlan, one_point, sweep_plan
from relight.launcher.sweep_tasks import tasks_of
from relight.resilience.supervise.standing import Verdict

GRID = "{lr: [0.1, 1e-3], seed: [1, 2, 3]}"


def spec(tmp_path: Path, text: str) -> JobSpec:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return load_spec(path, (), "0a1b2c")[0]


def planned(tmp_path: Path, job: JobSpec, most: int = 1001) -> SweepPlan:
    submitter = Submitter(
        run_id="lm-0a1b2c",
        runs_dir=tmp_path / "runs",
        working_dir=tmp_path,
        python="python",
        version="0",
        made_by="test",
    )
    return sweep_plan(job, job, submitter, (), most)


def test_a_grid_and_a_list_are_points() -> None:
    grid = parse_spec(f"command: a\nsweep: {GRID}", "job.yaml").sweep
    assert grid is not None
    assert (len(grid), grid[0], grid[5]) == (
        6,
        {"lr": "0.1", "seed": "1"},
        {"lr": "1e-3", "seed": "3"},
    )
    listed = parse_spec("command: a\nsweep: [{lr: x, on: true}, {lr: y, on: false}]", "j").sweep
    assert listed == [{"lr": "x", "on": "true"}, {"lr": "y", "on": "false"}]


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        ("sweep: {lr: 1}", "write the values as a list"),
        ("sweep: [{a: 1}, {b: 1}]", "must give the same names"),
        ("sweep: []", "0 points"),
        ("sweep: {a-b: [1]}", "is no name"),
        ("sweep: {a: [1]}\nenv: {X: '${sweep.b}'}", "is no value of the sweep; there is sweep.a"),
        ("sweep: {a: [1]}\nmpi: '${sweep.a}'", "cannot differ here"),
        ("env: {X: '${sweep.b}'}", "there is no sweep"),
        ("sweep: {a: [" + "1, " * 101 + "], b: [" + "1, " * 100 + "]}", "10100 points"),
    ],
)
def test_mistakes(tmp_path: Path, lines: str, part: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec(tmp_path, f"command: a\n{lines}")
    assert part in str(caught.value)


def test_arrays_are_split_where_the_site_wants_it(tmp_path: Path) -> None:
    job = spec(tmp_path, f"command: a\nsweep: {GRID}\nat_once: 2")
    sweep = planned(tmp_path, job, most=4)
    first, second = (plan.script.splitlines() for _, plan in sweep.arrays)
    assert "#SBATCH --array=0-2%2" in first
    assert "#SBATCH --array=0-2%2" in second
    assert first[-1].endswith("/runs/lm-0a1b2c 0")
    assert second[-1].endswith("/runs/lm-0a1b2c 3")
    assert [name for name, _ in sweep.arrays] == ["lm-0a1b2c", "lm-0a1b2c.3"]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path))


def test_each_task_makes_a_run_of_its_own(tmp_path: Path) -> None:
    job = spec(
        tmp_path,
        f"command: [train, '--lr=${{sweep.lr}}', '${{x}}']\nsweep: {GRID}\n"
        "env: {SEED: '${sweep.seed}'}\ncheckpoint: {directory: /scratch/c}\n",
    )
    sweep = planned(tmp_path, job, most=4)
    launch: LaunchPlan = sweep.arrays[0][1]
    with new_run_folder(launch, "") as folder:
        write_sweep(folder, sweep.points, sweep.task)
    env = {"SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "1"}
    root = folder_of(folder.root, env, 4)
    assert root == folder.root / "tasks" / "5"
    config = read_plan(root).config
    assert config.command == ("train", "--lr=1e-3", "${x}")
    assert config.env == {"SEED": "3"}
    assert (config.run_id, config.run_dir) == ("lm-0a1b2c_5", root)
    assert config.checkpoint.directory == Path("/scratch/c/5")
    script = (root / "job.sh").read_text().splitlines()
    assert not any("--array" in line for line in script), "it goes on as a job of its own"
    assert "#SBATCH --job-name=lm-0a1b2c_5" in script
    assert script[-1].endswith(f"supervise {root}")
    assert (root / "attempts" / "9_1.out").readlink() == folder.root / "attempts" / "9_1.out"
    assert (tmp_path / "runs" / "lm-0a1b2c_5").resolve() == root
    folder.cancelled.touch()
    assert (folder_of(folder.root, env, 4) / "CANCELLED").exists()


def test_one_point_runs_without_arrays() -> None:
    text = "command: [train, '--lr=${sweep.lr}']\nenv: {SEED: '${sweep.seed}'}\n"
    with pytest.raises(UsageError, match=r"--set 'sweep=\[\{lr: 0.1, seed: 1\}\]'"):
        one_point(parse_spec(f"{text}sweep: {{lr: [0.1, 0.2], seed: [1]}}", "job.yaml"))
    one = one_point(parse_spec(f"{text}sweep: [{{lr: 0.1, seed: 1}}]", "job.yaml"))
    assert (one.command, one.env, one.sweep) == (["train", "--lr=0.1"], {"SEED": "1"}, None)


def test_a_plan_of_a_sweep_needs_no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    path = tmp_path / "job.yaml"
    path.write_text(f"command: a\nsweep: {GRID}")
    done = CliRunner().invoke(relight, ["plan", str(path)])
    assert done.exception is None
    assert "#SBATCH --array=0-5" in done.output
    assert isinstance(CliRunner().invoke(relight, ["submit", str(path)]).exception, SlurmMissing)


def test_a_run_folder_without_room_is_named_with_the_way_out(tmp_path: Path) -> None:
    """No byte of any file may be written: the system says so without a name, as of a full disk."""
    launch = planned(tmp_path, spec(tmp_path, f"command: a\nsweep: {GRID}")).arrays[0][1]
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
    try:
        with pytest.raises(UsageError, match="run_dir in the spec") as refused:  # noqa: SIM117
            with new_run_folder(launch, "command: a"):
                pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    assert f"cannot make the run folder {launch.folder.root}: File too large" in str(refused.value)
    assert not launch.folder.root.exists()


def test_a_sweep_is_done_when_all_its_tasks_are() -> None:
    done = Verdict(state="COMPLETED", exit_code=0, cause="", reason="", tail=(), time=1.0)
    failed = replace(done, state="FAILED", time=2.0)
    assert tasks_of([done, "STARTED"]).verdict is None
    assert tasks_of([done, "STARTED", "WAITING"]).counts == {
        "COMPLETED": 1,
        "STARTED": 1,
        "WAITING": 1,
    }
    whole = tasks_of([done, done]).verdict
    assert whole is not None
    assert whole.state == "COMPLETED"
    broken = tasks_of([done, failed, done]).verdict
    assert broken is not None
    assert (broken.state, broken.reason) == ("FAILED", "tasks 1 of 3 are not done")


def test_the_points_are_no_code(tmp_path: Path) -> None:
    job = spec(tmp_path, "command: [a, '${sweep.x}']\nsweep: {x: ['$(touch HIT)', 'a\"\\b']}")
    sweep = planned(tmp_path, job)
    with new_run_folder(sweep.arrays[0][1], "") as folder:
        write_sweep(folder, sweep.points, sweep.task)
    assert json.loads((folder.sweep / "points.json").read_text())[0] == {"x": "$(touch HIT)"}
    env = {"SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "0"}
    config = read_plan(folder_of(folder.root, env, 0)).config
    assert config.command == ("a", "$(touch HIT)")


@pytest.mark.parametrize(
    ("directory", "ends"),
    [
        ("ck/${sweep.lr}", ("ck/0.1/0", "ck/0.1/1", "ck/1e-3/3")),
        ("ck/${sweep.lr}-${sweep.seed}", ("ck/0.1-1", "ck/0.1-2", "ck/1e-3-1")),
        ("ck", ("ck/0", "ck/1", "ck/3")),
    ],
)
def test_no_two_points_share_a_checkpoint_directory(
    tmp_path: Path, directory: str, ends: tuple[str, ...]
) -> None:
    job = spec(
        tmp_path, f"command: a\nsweep: {GRID}\ncheckpoint: {{directory: '/s/{directory}'}}\n"
    )
    sweep = planned(tmp_path, job)
    with new_run_folder(sweep.arrays[0][1], "") as folder:
        write_sweep(folder, sweep.points, sweep.task)
    found = []
    for task in ("0", "1", "3"):
        env = {"SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": task}
        found.append(read_plan(folder_of(folder.root, env, 0)).config.checkpoint.directory)
    assert found == [Path("/s") / end for end in ends]
