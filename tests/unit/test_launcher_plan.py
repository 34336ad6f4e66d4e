"""Spec to script: the whole script, and that no value can become shell syntax."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from relight.errors import UsageError
from relight.launcher.asked import read_asked
from relight.launcher.launch_plan import LaunchPlan, Submitter
from relight.launcher.plan import plan
from relight.launcher.render import SbatchOption, ScriptValues, render_script
from relight.launcher.spec_faults import SpecError
from relight.launcher.spec_file import parse_spec
from relight.resilience.config import RunConfig
from relight.resilience.worker.environment import read_environment
from relight.storage.retention import Best, Keep

GOLDEN = Path(__file__).parents[1] / "data" / "slurm" / "golden-job.sh"

SPEC = """\
name: lm
command: python train.py --steps 500
resources: {nodes: 4, spares: 1, tasks_per_node: 2, cpus_per_task: 2, gpus_per_node: 2,
            memory: 8GB, time: 4:00:00, partition: low}
sbatch: {account: abc, constraint: "h100&ib", exclusive: true}
setup: [module load cuda, source venv/bin/activate]
env: {OMP_NUM_THREADS: "2"}
secrets: {WANDB_KEY: {file: ~/.wandb}}
mpi: pmix
checkpoint: {interval: 20 steps, keep: {last: 2, every: 6h, best: {metric: loss, mode: max, n: 2}}}
restart: {mode: requeue, walltime: 7d}
health: {preflight: off, budget: 10s}
"""


def make(text: str, cluster: str = "slurm") -> LaunchPlan:
    submitter = Submitter(
        run_id="lm-0a1b2c",
        runs_dir=Path("/home/u/.relight/runs"),
        working_dir=Path("/home/u/work"),
        python="/opt/venv/bin/python",
        version="0.1.0",
        made_by="relight plan job.yaml",
    )
    return plan(parse_spec(text, "job.yaml"), submitter, "local" if cluster == "local" else "slurm")


def test_the_whole_script() -> None:
    assert make(SPEC).script == GOLDEN.read_text()


def test_the_supervisors_configuration() -> None:
    config = make(SPEC).config
    assert config.run_dir == Path("/home/u/.relight/runs/lm-0a1b2c")
    assert config.checkpoint.directory == config.run_dir / "checkpoints"
    assert config.working_dir == Path("/home/u/work")
    assert config.secret_files == {"WANDB_KEY": str(Path.home() / ".wandb")}
    assert (config.world_size, config.spares, config.mpi) == (8, 1, "pmix")
    assert config.checkpoint.interval == "20 steps"
    best = Best(metric="loss", mode="max", n=2)
    assert config.checkpoint.keep == Keep(last=2, every_s=21600, best=best)
    assert (config.restart.mode, config.restart.walltime_s) == ("requeue", 604800)
    assert (config.health.preflight, config.health.budget_s) == (False, 10)
    assert RunConfig.from_json(config.to_json()) == config


def test_relative_paths_are_seen_from_where_the_command_was_given() -> None:
    config = make(
        "command: a\nrun_dir: out\nworking_dir: src\ncheckpoint: {directory: /scratch/c}"
    ).config
    assert config.run_dir == Path("/home/u/work/out")
    assert config.working_dir == Path("/home/u/work/src")
    assert config.checkpoint.directory == Path("/scratch/c")


def test_a_local_script_has_no_sbatch_lines() -> None:
    script = make(SPEC, "local").script
    assert "#SBATCH" not in script
    assert script.endswith(
        "exec /opt/venv/bin/python -P -m relight.launcher.supervise "
        "/home/u/.relight/runs/lm-0a1b2c\n"
    )


def test_an_attempt_that_may_be_shorter_saves_in_time() -> None:
    made = make("command: a\nresources: {time: 4:00:00, time_min: 2min}")
    assert "#SBATCH --time-min=00:02:00" in made.script.splitlines()
    assert made.config.checkpoint.lead_s == 30


def test_never_means_that_slurm_does_not_requeue_either() -> None:
    script = make("command: a\nrestart: {mode: never}").script
    assert "#SBATCH --no-requeue" in script.splitlines()
    assert "#SBATCH --requeue" not in script.splitlines()


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ("nodes: 3", ["ntasks-per-node=2", "cpus-per-task=3"]),
        ("nodes: 3, spares: 1", ["cpus-per-task=6"]),
        ("nodes: {min: 1, max: 3}", ["cpus-per-task=6"]),
    ],
)
def test_who_may_have_more_nodes_does_not_say_how_many_tasks_a_node_has(
    nodes: str, said: list[str]
) -> None:
    """Slurm 22.05 gives --nodes=1-3 --ntasks-per-node=2 two nodes, and three without the latter."""
    script = make(f"command: a\nresources: {{{nodes}, tasks_per_node: 2, cpus_per_task: 3}}").script
    assert [line[10:] for line in script.splitlines() if "task" in line] == said


def test_percent_in_the_output_path_is_not_a_slurm_pattern() -> None:
    assert "--output=/home/u/work/100%%/attempts/%j.out" in make("command: a\nrun_dir: 100%").script


HOSTILE = [
    "it's",
    '"',
    "$(touch HIT)",
    "`touch HIT`",
    "; touch HIT",
    "a b",
    "&& touch HIT",
    "\\",
    "*",
]


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_stay_values(tmp_path: Path, value: str) -> None:
    """bash runs the script with an interpreter that shows its arguments."""
    show = tmp_path / f"show {value.replace('/', '')}"
    show.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    show.chmod(0o755)
    script = render_script(
        ScriptValues(
            version="0",
            made_by=value,
            options=(),
            passthrough=(),
            setup=("true",),
            python=str(show),
            run_dir=Path("/x") / value,
        )
    )
    result = subprocess.run(
        ["bash"], input=script, capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert result.stdout.splitlines() == ["-P", "-m", "relight.launcher.supervise", f"/x/{value}"]
    assert not (tmp_path / "HIT").exists()


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_sbatch_values_are_quoted(value: str) -> None:
    script = make(f"command: a\nsbatch:\n  comment: {json.dumps(value)}").script
    (line,) = [row for row in script.splitlines() if row.startswith("#SBATCH --comment=")]
    assert shlex.split(line.removeprefix("#SBATCH --comment=")) == [value]


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\x00b", "a\x1bb"])
def test_a_line_stays_a_line(value: str) -> None:
    values = ScriptValues(
        version="0",
        made_by="relight",
        options=(),
        passthrough=(SbatchOption(name="comment", value=value),),
        setup=(),
        python="python",
        run_dir=Path("/x"),
    )
    with pytest.raises(UsageError, match="one line"):
        render_script(values)


def test_the_header_comment_cannot_be_left() -> None:
    values = ScriptValues(
        version="0",
        made_by="relight plan 'a\ntouch HIT'",
        options=(),
        passthrough=(),
        setup=(),
        python="python",
        run_dir=Path("/x"),
    )
    assert "touch HIT" in render_script(values).splitlines()[1]


@pytest.mark.parametrize(
    ("setup", "line", "code"),
    [(["true", "false"], 2, 1), (["(exit 7)"], 1, 7), (["no-such-command-here"], 1, 127)],
)
def test_a_failing_setup_line_ends_the_run(
    tmp_path: Path, setup: list[str], line: int, code: int
) -> None:
    script = render_script(
        ScriptValues(
            version="0",
            made_by="relight",
            options=(),
            passthrough=(),
            setup=tuple(setup),
            python="/bin/echo",
            run_dir=tmp_path,
        )
    )
    result = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert f"line {line} of setup failed with exit code {code}" in result.stderr
    assert result.stdout == f"-P -m relight.launcher.leave {tmp_path} failure 0\n"
    verdict = (tmp_path / "verdict.json").read_text()
    assert '"state": "FAILED"' in verdict
    assert f"line {line}" in verdict


@pytest.mark.parametrize("name", ["TERM", "INT"])
@pytest.mark.parametrize(
    ("leave_code", "called"),
    [(0, ["leave", "leave", "supervise"]), (75, ["leave"]), (93, ["leave"])],
)
def test_a_signal_during_setup(
    tmp_path: Path, name: str, leave_code: int, called: list[str]
) -> None:
    """What `leave` answers decides whether setup goes on; a second signal does not end it."""
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/bash\necho "$3 $5"\n[[ $3 = *.supervise ]] && exit 0\n'
        f"kill -{name} $$\nexit {leave_code}\n"
    )
    python.chmod(0o755)
    script = render_script(
        ScriptValues(
            version="0",
            made_by="relight",
            options=(),
            passthrough=(),
            setup=(f"kill -{name} $$", f"sh -c 'kill -{name} '$$"),
            python=str(python),
            run_dir=tmp_path,
        )
    )
    result = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=False)
    lines = [line.split() for line in result.stdout.splitlines()]
    assert result.returncode == leave_code, result.stderr
    assert [words[0].rpartition(".")[2] for words in lines] == called
    assert {words[1] for words in lines if words[0].endswith("leave")} == {f"SIG{name}"}


@pytest.mark.parametrize(
    ("keys", "staging_bytes"),
    [("{}", 8 * 1024**3), ("{staging: 512MB}", 512 * 1024**2), ("{async: false}", 0)],
)
def test_steps_wait_for_a_save_only_where_that_is_asked_for(keys: str, staging_bytes: int) -> None:
    assert make(f"command: a\ncheckpoint: {keys}").config.checkpoint.staging_bytes == staging_bytes


def test_pretend_nodes_are_not_looked_up_by_name() -> None:
    assert make(SPEC, "local").config.health.skip == ("names",)
    assert make(SPEC).config.health.skip == ()


def test_what_a_spec_says_of_saves_reaches_the_ranks() -> None:
    assert make("command: a\ncheckpoint: {overlap: true}").config.checkpoint.overlap
    assert read_environment({"RELIGHT_CHECKPOINT_OVERLAP": "1"}, None, None).overlap
    assert make("command: a\ncheckpoint: {reuse: 4}").config.checkpoint.reuse == 4
    assert read_environment({"RELIGHT_CHECKPOINT_REUSE": "4"}, None, None).reuse == 4
    tiers = "command: a\ncheckpoint: {tiers: {node: /dev/shm}, compress: true, reuse: 2}"
    assert make(tiers).config.checkpoint.compress
    with pytest.raises(SpecError, match=r"checkpoint\.compress: .* there is no checkpoint\.tiers"):
        make("command: a\ncheckpoint: {compress: true}")


def test_what_compresses_must_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text("command: a\ncheckpoint: {tiers: {node: /dev/shm}, compress: true}")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(
        UsageError,
        match=rf"job.yaml: checkpoint.compress: .* {sys.executable} .*relight\[compress\]",
    ):
        read_asked(spec, [])
