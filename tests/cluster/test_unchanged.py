"""The examples of programs that cannot be changed: preempted, they go on with what they saved."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from stage.run import Run
from stage.site import RELIGHT, REPOSITORY, Site
from stage.whole import whole

EXAMPLES = REPOSITORY / "examples" / "unchanged"


@pytest.fixture
def site(generous: Site) -> Iterator[Site]:
    yield from whole(generous)


@pytest.fixture
def folder(site: Site, tmp_path: Path) -> Path:
    folder = site.shared / tmp_path.name
    site.user("mkdir", "-p", str(folder))
    for example in EXAMPLES.iterdir():
        shutil.copy(example, folder)
    return folder


def submit(site: Site, folder: Path, script: str, *env: str) -> Run:
    answer = site.user("env", f"--chdir={folder}", *env, str(RELIGHT), "sbatch", script)
    job_id = answer.split()[-1]
    status = json.loads(site.user(str(RELIGHT), "status", "--json", job_id))
    return Run(site, status["run_id"], job_id, Path(status["run_dir"]))


def output(folder: Path, name: str) -> str:
    path = folder / name
    return path.read_text() if path.exists() else ""


def test_a_shell_loop_is_told_to_save_in_the_grace_of_its_preemption(
    site: Site, folder: Path
) -> None:
    items = 500
    loop = folder / "loop.sh"
    fast = site.shared / "fast"
    work = 'sleep "${PAUSE:-1}"'
    assert work in loop.read_text()
    loop.write_text(loop.read_text().replace(work, f"[ -e {fast} ] || {work}"))
    run = submit(site, folder, "loop.sh", f"ITEMS={items}", "PAUSE=0.2")
    run.wait(lambda: "begins with item 0" in output(folder, "loop.out"))
    site.user(str(RELIGHT), "checkpoint", run.run_id)
    saved = int(output(folder, "loop.state").split()[0])
    # Slurm tells only steps of a preemption: the one that listens for the script has to be there.
    run.wait(lambda: f"{run.job_id}.0" in site.user("squeue", "-s", "-h", "-j", run.job_id))
    site.preempt(seconds=1)
    run.wait(lambda: output(folder, "loop.out").count("begins") == 2)
    fast.touch()
    assert run.finish()["state"] == "COMPLETED", run.story()
    said = output(folder, "loop.out").splitlines()
    assert said[-1] == f"total {sum(item * item for item in range(items))}", said
    (again,) = [int(line.split()[-1]) for line in said if line.startswith("begins")][1:]
    assert again > saved, "it was told once more, by the preemption"


def test_an_mpi_program_goes_on_from_its_restart_files(site: Site, folder: Path) -> None:
    compiler = ["mpicc", "-O2", "-o", str(folder / "waves"), str(folder / "waves.c"), "-lm"]
    subprocess.run(compiler, check=True)
    again = folder / "waves-continue.sh"
    again.write_text(again.read_text().replace("exec srun", "unset PAUSE_US\nexec srun"))
    run = submit(site, folder, "waves.sh", "STEPS=400", "PAUSE_US=200000")
    run.wait(lambda: "begins with step 0" in output(folder, "waves.out"))
    site.preempt(seconds=1)
    assert run.finish()["state"] == "COMPLETED", run.story()
    said = output(folder, "waves.out").splitlines()
    plain = site.user(
        "env", f"--chdir={folder}", "mpirun", "-n", "4", "--oversubscribe", "./waves", "400"
    )
    assert said[-1] == plain.splitlines()[-1]
    begins = [int(line.split()[-1]) for line in said if line.startswith("begins")]
    saves = [int(line.split()[-1]) for line in said if line.startswith("saved")]
    assert begins == [0, saves[-1]], said
    assert begins[1] > 0
