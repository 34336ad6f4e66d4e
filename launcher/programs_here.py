"""Whether this machine has the programs that a job starts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from relight.errors import UsageError
from relight.resilience.config import RunConfig

from .home import from_home
from .spec import JobSpec


def check_command(config: RunConfig, folder: Path) -> None:
    """Whether the program is on this machine, where nothing is to bring it; ranks start in
    ``folder``, or in a copy of it.

    Raises:
        UsageError: it is not.
    """
    program = config.command[0]
    path = folder / program
    if "/" in program and path.is_file() and not os.access(path, os.X_OK):
        raise UsageError(
            f"command: {path} is not executable: `chmod +x` it, or begin the command with what "
            "runs it, such as python"
        )
    found = shutil.which(program, path=config.env.get("PATH", os.environ.get("PATH")))
    if not path.is_file() if "/" in program else found is None:
        raise UsageError(
            f"command: {program!r} is no program here: no executable file has this name"
        )


def check_container(config: RunConfig) -> None:
    """Likewise for the image, and for apptainer itself.

    Raises:
        UsageError: one of them is not here.
    """
    if config.container is None or config.container.runtime != "apptainer":
        return
    image = config.container.image
    if "://" not in image and not Path(image).exists():
        raise UsageError(f"container.image: {image} is not there")
    if shutil.which("apptainer", path=config.env.get("PATH", os.environ.get("PATH"))) is None:
        raise UsageError("container: apptainer is not on this machine's PATH; setup may load it")


def command_warnings(spec: JobSpec, config: RunConfig, here: Path) -> list[str]:
    """What to tell who sends this job to other machines, where neither ``setup`` nor a container
    brings the program; ``here`` is what a relative ``working_dir`` begins at."""
    if spec.setup or spec.container is not None:
        return []
    try:
        check_command(config, here / from_home(spec.working_dir or ""))
    except UsageError as fault:
        return [f"{fault}; where the nodes lack it, too, the ranks do not start"]
    return []
