"""The mini cluster itself: another one beside it changes nothing."""

from __future__ import annotations

import subprocess

from stage.site import MINICLUSTER, Site, eventually

SECOND = f"""
{MINICLUSTER} up --nodes 2 && {MINICLUSTER} run -- srun -N2 -n2 hostname && {MINICLUSTER} down
{MINICLUSTER} up --nodes 2 && exit 7
"""


def test_a_second_cluster_apart_leaves_the_first_alone(generous: Site) -> None:
    job = generous.user(
        "sbatch", "--parsable", "-N6", "--output=/dev/null", "--wrap", "srun sleep 600"
    ).strip()

    def state() -> str:
        return generous.user("squeue", "-h", "-o", "%T", "-j", job).strip()

    eventually(lambda: state() == "RUNNING", 20, state)
    second = subprocess.run(
        [MINICLUSTER, "apart", "--", "bash", "-c", SECOND],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert second.returncode == 7, second.stderr
    assert {"n1", "n2"} <= set(second.stdout.split())
    assert state() == "RUNNING"
    generous.user("scancel", job)
