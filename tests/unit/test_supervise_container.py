"""The command lines of container runtimes."""

from __future__ import annotations

from pathlib import Path

import pytest

from relight.errors import UsageError
from relight.launcher.clusters.slurm import commands
from relight.launcher.launch_plan import Submitter
from relight.launcher.plan import plan
from relight.launcher.spec_file import parse_spec
from relight.resilience.config import RunConfig
from relight.resilience.supervise.cluster import StepRequest
from relight.resilience.supervise.container import interpreter, program_of, step_options

FOLDERS = "run_dir: /r\nworking_dir: /w\ncheckpoint: {directory: /r/checkpoints}\n"


def config_of(container: str, more: str = FOLDERS) -> RunConfig:
    submitter = Submitter(
        run_id="lm-0a1b2c",
        runs_dir=Path("/runs"),
        working_dir=Path("/here"),
        python="/venv/bin/python",
        version="0.1.0",
        made_by="relight plan job.yaml",
    )
    spec = parse_spec(f"command: a\n{more}container: {container}", "job.yaml")
    config = plan(spec, submitter, "slurm").config
    assert RunConfig.from_json(config.to_json()) == config
    return config


def test_apptainer_stands_between_the_agent_and_the_program() -> None:
    config = config_of("{image: train.sif, mounts: [/data, '/a b:/mnt:ro']}")
    assert program_of(config, ("python", "x y")) == (
        "apptainer",
        "exec",
        "--bind=/r:/r",
        "--bind=/w:/w",
        "--bind=/data:/data",
        "--bind=/a b:/mnt:ro",
        "--pwd=/w",
        "/here/train.sif",
        "python",
        "x y",
    )
    assert step_options(config) == ()
    assert interpreter(config, "/venv/bin/python") == "/venv/bin/python"


def test_gpus_are_seen_inside() -> None:
    config = config_of("{image: docker://a:1}", FOLDERS + "resources: {gpus_per_node: 1}\n")
    assert "--nv" in program_of(config, ("a",))
    assert program_of(config, ("a",))[-2:] == ("docker://a:1", "a")


def test_pyxis_is_told_by_srun() -> None:
    config = config_of("{image: nvcr.io#nvidia/pytorch:24.01, runtime: pyxis, mounts: [/data]}")
    assert program_of(config, ("a",)) == ("a",)
    request = StepRequest(
        name="ranks",
        nodes=("n1",),
        tasks_per_node=1,
        cpus_per_task=1,
        argv=(interpreter(config, "/venv/bin/python"), "-m", "agent"),
        env={},
        options=step_options(config),
    )
    words = commands.step(request, None)
    end = words.index("--")
    assert words[end - 3 : end] == (
        "--container-image=nvcr.io#nvidia/pytorch:24.01",
        "--container-mounts=/r:/r,/w:/w,/data:/data",
        "--container-workdir=/w",
    )
    assert words[end + 1 :] == ("python3", "-m", "agent")


def test_a_folder_that_no_runtime_can_mount_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be mounted"):
        config_of("{image: x.sif}", "run_dir: '/a:b'\n")
