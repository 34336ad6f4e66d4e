"""The mini cluster itself: another one beside it changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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

    eventually(lambda: state() == "RUNNING", 60, state)
    second = subprocess.run(
        [MINICLUSTER, "apart", "--", "bash", "-c", SECOND],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert second.returncode == 7, second.stderr
    assert {"n1", "n2"} <= set(second.stdout.split())
    assert state() == "RUNNING"
    generous.user("scancel", job)


APART = """
import sys
from pathlib import Path
sys.argv[0] = sys.argv[1]  # it starts itself again
from minicluster import apart
from minicluster.config import Layout
root, cache = map(Path, sys.argv[2:])
inside = f"test -d {root} && touch {root}/file && exit 7"
sys.exit(apart.run(["sh", "-c", inside], Layout(root=root, cache=cache)))
"""


def test_apart_leaves_no_folder_but_the_cache(tmp_path: Path) -> None:
    root, cache = tmp_path / "lib" / "cluster", tmp_path / "cache"
    root.parent.mkdir()
    call = [sys.executable, "-c", APART, str(MINICLUSTER), str(root), str(cache)]
    env = {"PYTHONPATH": str(Path(__file__).parents[1])}
    assert subprocess.run(call, env=env, timeout=60, check=False).returncode == 7
    assert {path.name for path in tmp_path.rglob("*")} == {"lib", "cache"}
