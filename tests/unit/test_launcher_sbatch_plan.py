"""What is sent in the place of a script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from relight.launcher.launch_plan import Submitter, run_name
from relight.launcher.layers import Layer
from relight.launcher.sbatch_options import parse_words
from relight.launcher.sbatch_plan import (
    SbatchPlan,
    default_config,
    default_restart,
    options_of,
    sbatch_plan,
)
from relight.launcher.sbatch_rules import config_of_lines
from relight.launcher.sbatch_script import Line
from relight.launcher.spec_faults import SpecError
from relight.resilience.config import RunConfig

FACTS = Submitter(
    run_id="job-0a1b2c",
    runs_dir=Path("/home/u/.relight/runs"),
    working_dir=Path("/home/u"),
    python="/opt/relight/bin/python",
    version="1.2.3",
    made_by="relight sbatch job.sh",
)
SCRIPT = "#!/bin/bash\n# a note\n#SBATCH -N2\n\necho $1\n"


def make(line: str = "job.sh", text: str = SCRIPT, **env: str) -> SbatchPlan:
    call = parse_words(line.split())
    options = options_of(call, text, env)
    return sbatch_plan(call, options, "job.sh", text, default_config(options, FACTS), FACTS)


def test_the_script_that_is_sent_holds_the_options_and_starts_the_supervisor() -> None:
    assert make().launch.script == (
        "#!/opt/relight/bin/python -E\n"
        "# -*- coding: latin-1 -*-\n"
        "#SBATCH -N2\n"
        "# Made by relight 1.2.3: relight sbatch job.sh\n"
        "from relight.launcher.supervise import exit_with, main\n"
        "\n"
        "exit_with(main(['/home/u/.relight/runs/job-0a1b2c']))\n"
    )


def test_the_users_script_is_run_with_its_arguments_where_the_job_starts() -> None:
    config = make("-t 5 job.sh a --b").launch.config
    assert config.command == ("/home/u/.relight/runs/job-0a1b2c/slurm_script", "a", "--b")
    assert config.program == "script"
    assert config.working_dir == Path()


def test_what_nobody_said_is_added_before_what_was_said() -> None:
    added = ("--job-name=job.sh", "--open-mode=append", "--requeue")
    assert make("-t5 job.sh").words == (*added, "-t5")


@pytest.mark.parametrize(
    ("plan", "absent"),
    [
        (make("-J a job.sh"), "--job-name=job.sh"),
        (make("job.sh", "#!/bin/sh\n#SBATCH -J a\n"), "--job-name=job.sh"),
        (make("job.sh", SBATCH_JOB_NAME="a"), "--job-name=job.sh"),
        (make("--open-mode=truncate job.sh"), "--open-mode=append"),
        (make("--no-requeue job.sh"), "--requeue"),
        (make("job.sh", SBATCH_NO_REQUEUE=""), "--requeue"),
    ],
)
def test_what_somebody_said_stands(plan: SbatchPlan, absent: str) -> None:
    assert absent not in plan.words


def test_the_command_line_has_the_last_word_about_requeue() -> None:
    text = "#!/bin/sh\n#SBATCH --no-requeue\n"
    assert make("--requeue job.sh", text).launch.config.restart.mode == "auto"
    assert make("job.sh", text).launch.config.restart.mode == "never"


def test_a_long_path_of_python_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / ("a long name " * 12)
    folder.mkdir()
    python = folder / "python"
    python.symlink_to(sys.executable)
    facts = Submitter(
        **{**{name: getattr(FACTS, name) for name in FACTS.__slots__}, "python": str(python)}
    )
    call = parse_words(["job.sh"])
    config = default_config({}, facts)
    text = sbatch_plan(call, {}, "job.sh", SCRIPT, config, facts).launch.script
    sent = tmp_path / "sent"
    sent.write_text(text.replace("exit_with(main(", "print('started', (").replace("from", "# "))
    sent.chmod(0o700)
    done = subprocess.run([sent], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("started"), done.stderr


def rules(*lines: str) -> RunConfig:
    numbered = [Line(number, line) for number, line in enumerate(lines, 2)]
    env = {"SCRATCH": "/scratch/me"}
    return config_of_lines(numbered, "job.sh", default_restart({}), FACTS, env)


def test_defaults_of_the_site_hold_for_health_and_notices_alone() -> None:
    site = {"health": {"site_command": "nhc", "on_unknown": "fail"}, "restart": {"failures": 3}}
    lines = [Line(2, "health.on_unknown: warn")]
    restart = default_restart({})
    config = config_of_lines(lines, "job.sh", restart, FACTS, {}, [Layer(site, {})])
    assert (config.health.site_command, config.health.on_unknown) == ("nhc", "warn")
    assert config.restart.failures == 0


def test_how_a_script_saves_and_resumes() -> None:
    config = rules(
        "resume: ./continue.sh --fast", "checkpoint.signal: usr1", "checkpoint.done: 'out/*.rst'"
    )
    assert config.resume == ("./continue.sh", "--fast")
    assert (config.checkpoint.signal, config.checkpoint.done) == ("SIGUSR1", "out/*.rst")


def test_relight_lines_are_a_part_of_the_spec() -> None:
    config = rules("restart.failures: 3", "health: {preflight: off}", "env.A_B: c")
    assert config.restart.failures == 3
    assert config.restart.no_progress == default_restart({}).no_progress
    assert not config.health.preflight
    assert config.env == {"A_B": "c"}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["checkpoint.interval: 10 steps"], "'checkpoint.interval' has no meaning for a script"),
        (["checkpoint: {signal: KILL}"], "job.sh:2: checkpoint.signal: 'KILL' is no signal"),
        (["resume: cd x && y"], "job.sh:2: resume: the command is not run by a shell"),
        (["restart.falures: 3"], "job.sh:2: unknown key 'restart.falures'; did you mean"),
        (["env.A: b", "restart.failures: x"], "job.sh:3: restart.failures: 'x' is not a whole"),
        (["resources: {nodes: 3}"], "job.sh:2: 'resources' cannot be given in a script"),
        (["nonsense"], "job.sh:2: 'nonsense' is not `key: value`"),
        (["restart: 3", "restart.failures: 3"], "job.sh:"),
    ],
)
def test_faults_of_relight_lines(lines: list[str], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        rules(*lines)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("job_name", "name"), [("a b/c", "a-b-c"), ("..", "job"), ("x" * 99, "x" * 40), ("ä", "job")]
)
def test_run_names(job_name: str, name: str) -> None:
    assert run_name(job_name) == name


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(SpecError) as told:
        rules("nonsense", "restart.failures: many", "resources: {nodes: 3}")
    assert [line.split(":")[1] for line in str(told.value).splitlines()] == ["2", "3", "4"]


def test_variables_in_own_lines() -> None:
    config = rules(
        "env: {OUT: '${SCRATCH}/${run.id}', RAW: '$${SCRATCH}'}", "resume: sh -c './on ${N}'"
    )
    assert config.env == {"OUT": "/scratch/me/job-0a1b2c", "RAW": "${SCRATCH}"}
    assert "${N}" in config.resume[-1], "a shell's own"
    with pytest.raises(SpecError, match="the variable NOWHERE is not set"):
        rules("run_dir: ${NOWHERE}/runs")
