"""What is remembered between commands: settings, the user's id, the processes started."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .config import Layout, Settings
from .system import ClusterError, Process


@dataclass
class State:
    """The cluster as far as it has been built; saved after each step, so that it can be undone."""

    settings: Settings
    layout: Layout
    uid: int | None = None
    processes: dict[str, Process] = field(default_factory=dict)

    def alive(self, name: str) -> bool:
        process = self.processes.get(name)
        return process is not None and process.alive()

    def record(self, name: str, process: Process) -> None:
        self.processes[name] = process
        self.save()

    def forget(self, name: str) -> None:
        """Remember that something was ended on purpose: it is not a dead remain."""
        del self.processes[name]
        self.save()

    def save(self) -> None:
        path = _path(self.layout)
        data = {
            "settings": asdict(self.settings),
            "uid": self.uid,
            "processes": {name: asdict(process) for name, process in self.processes.items()},
        }
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(data, indent=1) + "\n")
        fresh.replace(path)


def load(layout: Layout) -> State | None:
    """The remembered cluster, or None."""
    try:
        data = json.loads(_path(layout).read_text())
    except FileNotFoundError:
        return None
    settings = data["settings"] | {"share": tuple(data["settings"]["share"])}
    processes = {name: Process(**value) for name, value in data["processes"].items()}
    return State(Settings(**settings), layout, data["uid"], processes)


def require(layout: Layout) -> State:
    """The remembered cluster; an error if there is none."""
    state = load(layout)
    if state is None:
        raise ClusterError("the cluster is not up")
    return state


@contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Let one command at a time change the cluster."""
    layout.cache.mkdir(parents=True, exist_ok=True)
    # The cache folder is locked because it outlives `down`: no lock file is left behind.
    folder = os.open(layout.cache, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _path(layout: Layout) -> Path:
    return layout.root / "state.json"
