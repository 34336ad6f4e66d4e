"""Makes the folder of a new run, and takes it away again when the submission fails."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time

from relight import __version__
from relight.errors import UsageError
from relight.resilience.config import RunConfig
from relight.resilience.run_folder import RunFolder

from .clusters.slurm.lookup import SubmissionUnknown
from .launch_plan import LaunchPlan, Submitter
from .runs import runs_dir, submitted_job
from .snapshot import take_snapshot
from .stored_plan import PLAN_VERSION
from .user_name import user_name


def new_token() -> str:
    """What makes the id of a new run unlike all others: it follows the run's name."""
    return secrets.token_hex(3)


def submitter(name: str, token: str | None = None) -> Submitter:
    """The facts of this process, with the run id for a new run called ``name``."""
    return Submitter(
        run_id=f"{name}-{token or new_token()}",
        runs_dir=runs_dir(),
        working_dir=Path.cwd(),
        python=sys.executable,
        version=__version__,
        made_by=shlex.join(["relight", *sys.argv[1:]]),
    )


@contextmanager
def new_run_folder(
    plan: LaunchPlan, spec_text: str, tree: Path | None = None
) -> Iterator[RunFolder]:
    """The folder of the plan's run, with a copy of a git work tree where one is given; an exception
    in the body removes it again, unless a job may exist that needs it.

    Raises:
        UsageError: it exists, or cannot be made.
    """
    folder = plan.folder
    root = folder.root
    link = runs_dir() / plan.config.run_id
    made = [place for place in (link.parent, link.parent.parent) if not place.exists()]
    try:
        link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700)
    except FileExistsError as error:
        raise _taken(root) from error
    except OSError as error:
        raise _no_folder(root, error) from error
    try:
        if link != root:  # so that a run with a run_dir of its own is found by its id
            link.symlink_to(root)
        folder.attempts.mkdir(mode=0o700)
        _write(folder.spec, spec_text)
        _write(folder.script, plan.script)
        _write(folder.plan, _plan_text(plan))
        if tree is not None:
            take_snapshot(tree, folder, _secret_files(plan.config))
        yield folder
    except BaseException as error:
        if isinstance(error, SubmissionUnknown) or submitted_job(folder).exists():
            raise
        shutil.rmtree(root, ignore_errors=True)
        if link.is_symlink():
            link.unlink()
        with suppress(OSError):  # others have runs there by now
            for place in made:
                place.rmdir()
        raise


def _secret_files(config: RunConfig) -> list[str]:
    hook = None if config.notify is None else config.notify.webhook_file
    return [*config.secret_files.values(), *([] if hook is None else [hook])]


def refuse_taken(folder: RunFolder) -> None:
    """For what makes no folder, and is to tell what would come of it.

    Raises:
        UsageError: the place of a new run is taken.
    """
    if os.path.lexists(folder.root):
        raise _taken(folder.root)


def _taken(root: Path) -> UsageError:
    what = "holds another run" if RunFolder(root).plan.exists() else "exists"
    return UsageError(f"run_dir: {root} {what}, and a new run makes its folder: give another one")


def _no_folder(root: Path, error: OSError) -> UsageError:
    return UsageError(
        f"cannot make the run folder {root}: {error.strerror}; run_dir in the spec names another "
        "place, RELIGHT_HOME one for all runs"
    )


def note_jobs(folder: RunFolder, job_ids: Sequence[str]) -> None:
    """From now on the folder stays, whatever happens. A full disk costs only the note: the job is
    found by its name, or by the path of its script."""
    with suppress(OSError):
        submitted_job(folder).write_text("".join(f"{job_id}\n" for job_id in job_ids))


def _plan_text(plan: LaunchPlan) -> str:
    content = {
        "version": PLAN_VERSION,
        "cluster": plan.cluster,
        "run": plan.config.to_json(),
        "submitted_by": user_name(),
        "created": time(),
    }
    return json.dumps(content, indent=1) + "\n"


def write_sweep(folder: RunFolder, points: Sequence[Mapping[str, str]], task: LaunchPlan) -> None:
    """Stores what each task of a sweep makes its run from."""
    folder.sweep.mkdir(mode=0o700)
    _write(folder.sweep / "points.json", json.dumps(points))
    _write(folder.sweep / "plan.json", _plan_text(task))
    _write(folder.sweep / "job.sh", task.script)


def write_user_script(folder: RunFolder, text: str) -> None:
    """Stores a batch script, to be run as it is."""
    _write(folder.user_script, text, mode=0o700)


def _write(path: Path, text: str, mode: int = 0o600) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
    except OSError as error:  # a full disk comes without a name
        raise _no_folder(path.parent, error) from error
