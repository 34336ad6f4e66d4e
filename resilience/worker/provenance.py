"""What a run is made of: its code, packages, job and container. Never an environment as a whole.

A process of its own finds it out, so that no step waits for git or for a list of packages:

    python -m relight.resilience.worker.provenance CHECKPOINTS FOLDER
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from relight.answer import give, given
from relight.storage.durable import make_dirs, publish
from relight.storage.layout import code_path
from relight.storage.sealed import Json

_FIRST_WAIT_S: Final = 5.0
_GIT_LIMIT_S: Final = 30.0
_MOST_DIFF_BYTES: Final = 16 * 1024**2
_MOST_SPEC_BYTES: Final = 64 * 1024
_SECRET: Final = ("secrets", "notify", "setup")  # setup lines may export anything
_SLURM: Final = (
    "CLUSTER_NAME", "JOB_ID", "ARRAY_JOB_ID", "ARRAY_TASK_ID", "RESTART_COUNT", "JOB_PARTITION",
    "JOB_NODELIST", "JOB_NUM_NODES", "NTASKS", "TASKS_PER_NODE", "CPUS_PER_TASK", "GPUS_ON_NODE",
    "TOPOLOGY_ADDR",
)  # fmt: skip
_CONTAINERS: Final = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "ENROOT_ROOTFS")


class Inquiry:
    """The process, from the side of the rank that has started it."""

    def __init__(self, directory: Path) -> None:
        self._found: dict[str, Json] | None = None
        self._wait_s = _FIRST_WAIT_S
        main = getattr(sys.modules["__main__"], "__file__", None)
        here = Path(main).absolute().parent if main else Path.cwd()
        command = [sys.executable, "-P", "-m", __name__, str(directory), str(here)]
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # signals to the program's group are not meant for it
            )
        except OSError:
            self._process = None

    def result(self) -> Mapping[str, Json]:
        """What is known by now; only the first call waits a little. Empty if nothing is."""
        if self._found is None and self._process is not None:
            wait_s, self._wait_s = self._wait_s, 0.0
            try:
                output, _ = self._process.communicate(timeout=wait_s)
            except subprocess.TimeoutExpired:
                return {}
            self._found = json.loads(given(output) or "{}")
        return self._found or {}

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def provenance(directory: Path, environ: Mapping[str, str], here: Path) -> dict[str, Json]:
    """All that is known of a program in the folder `here`, or of the current folder.

    A diff of uncommitted changes is stored in `directory`.
    """
    run = environ.get("RELIGHT_RUN_DIR")
    found: dict[str, Json] = {
        "run": environ.get("RELIGHT_RUN_ID"),
        "spec_sha256": _sha256_of(Path(run) / "spec.yaml") if run else None,
        "spec": _spec(Path(run) / "spec.yaml") if run else None,
        "code": _submitted_code(Path(run), here) if run else None,
        "python": platform.python_version(),
        "packages": packages(),
        "slurm": slurm_facts(environ),
        "container": next((environ[name] for name in _CONTAINERS if environ.get(name)), None),
    }
    found["code"] = found["code"] or _code(directory, here) or _code(directory, Path.cwd())
    return {name: value for name, value in found.items() if value}


def slurm_facts(environ: Mapping[str, str]) -> dict[str, Json]:
    """Some of Slurm's variables, by their names without SLURM_."""
    named = ((name.lower(), environ.get(f"SLURM_{name}")) for name in _SLURM)
    return {name: value for name, value in named if value}


def packages() -> list[Json]:
    """What is installed for this Python, as `pip freeze` spells it."""
    from importlib import metadata

    found = {(one.metadata["Name"], one.version) for one in metadata.distributions()}
    return [f"{name}=={version}" for name, version in sorted(found, key=str) if name]


def _spec(path: Path) -> Json:
    """What was asked for, which outlives the run folder so."""
    import yaml

    try:
        text = path.read_text()
        if len(text) > _MOST_SPEC_BYTES:
            return None
        return cast(
            Json, json.loads(json.dumps(_without_secrets(yaml.safe_load(text)), default=str))
        )
    except (OSError, ValueError, TypeError, yaml.YAMLError):
        return None


def _without_secrets(spec: object) -> object:
    """Values of variables are left out, and whatever else may hold a token."""
    if isinstance(spec, list):
        return [_without_secrets(one) for one in spec]
    if not isinstance(spec, dict):
        return spec
    kept = {name: one for name, one in spec.items() if name not in _SECRET}
    variables = kept.pop("env", None)
    names = {"env": sorted(map(str, variables))} if isinstance(variables, dict) else {}
    return {name: _without_secrets(one) for name, one in kept.items()} | names


def _submitted_code(run: Path, here: Path) -> Json:
    """Of a run that has a copy of its code, where that came from."""
    if not here.is_relative_to(run / "code"):
        return None
    try:
        facts = json.loads((run / "code.json").read_text())
    except (OSError, ValueError):
        return None
    return {name: facts.get(name) for name in ("commit", "dirty", "tree")} | {
        "copy": str(run / "code")
    }


def _code(directory: Path, here: Path) -> Json:
    """The commit of the work tree that this is in, and what was changed since."""
    commit = _git(here, "rev-parse", "HEAD")
    tree = _git(here, "rev-parse", "--show-toplevel")
    status = _git(here, "status", "--porcelain", "-z")
    if commit is None or tree is None or status is None:
        return None
    found: dict[str, Json] = {"commit": commit.decode().strip(), "dirty": bool(status)}
    found["tree"] = os.fsdecode(tree.removesuffix(b"\n"))
    untracked = sum(line.startswith(b"?? ") for line in status.split(b"\0"))
    diff = _git(here, "diff", "--no-ext-diff", "--no-textconv", "--binary", "HEAD")
    if untracked:
        found["untracked"] = untracked
    if diff:
        found["diff_sha256"] = digest = hashlib.sha256(diff).hexdigest()
        if len(diff) <= _MOST_DIFF_BYTES:
            path = code_path(directory, digest)
            make_dirs(path.parent)
            publish(path, diff)
    return cast(Json, found)


def _git(folder: Path, *words: str) -> bytes | None:
    """None when there is no git, or no work tree."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            env=os.environ | {"GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _sha256_of(path: Path) -> Json:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


if __name__ == "__main__":
    os.nice(5)
    give(json.dumps(provenance(Path(sys.argv[1]), os.environ, Path(sys.argv[2]))))
