"""How a rank's program gets into the container that its spec names (pure).

With apptainer the agent stays outside, and the runtime stands between it and the program. With
pyxis srun itself puts the whole task, agent and program, into the container.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..config import RunConfig

Argv = tuple[str, ...]


def program_of(config: RunConfig, argv: Sequence[str]) -> Argv:
    """What the agent starts for the command ``argv``."""
    container = config.container
    if container is None or container.runtime != "apptainer":
        return tuple(argv)
    gpus = ("--nv",) if config.uses_gpus else ()
    binds = [f"--bind={mount}" for mount in _mounts(config)]
    where = (*gpus, *binds, f"--pwd={config.working_dir}", container.image)
    return ("apptainer", "exec", *where, *argv)


def step_options(config: RunConfig) -> Argv:
    """What srun is told, beside the rest, for a step of ranks."""
    container = config.container
    if container is None or container.runtime != "pyxis":
        return ()
    return (
        f"--container-image={container.image}",
        f"--container-mounts={','.join(_mounts(config))}",
        f"--container-workdir={config.working_dir}",
    )


def interpreter(config: RunConfig, outside: str) -> str:
    """The Python that runs the agents; inside an image its own is the only one that fits."""
    return "python3" if step_options(config) else outside


def _mounts(config: RunConfig) -> list[str]:
    """Source and target of each: what a rank needs, then what the spec asks for."""
    needed = [config.run_dir, config.checkpoint.directory, config.working_dir]
    if config.checkpoint.tier is not None:
        needed.append(Path(config.checkpoint.tier))
    own = [f"{path}:{path}" for path in needed if not _inside_another(path, needed)]
    asked = () if config.container is None else config.container.mounts
    return list(dict.fromkeys([*own, *(m if ":" in m else f"{m}:{m}" for m in asked)]))


def _inside_another(path: Path, others: Sequence[Path]) -> bool:
    return any(other in path.parents for other in others)
