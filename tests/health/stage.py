"""The five cases of a check, and the stage on which they are played."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from health.gpus import GOOD, FakeDriver, FakeGpu
from health.roots import make_root
from relight.resilience.config import RunConfig
from relight.resilience.health.check import Candidate
from relight.resilience.health.gpu import each
from relight.resilience.health.gpu.reading import Gpu, Reading


@dataclass
class Stage:
    """A node as one case wants it; what is set is set back after the case."""

    candidate: Candidate
    patch: pytest.MonkeyPatch
    commands: Path  # a folder in PATH

    def files(self, files: Mapping[str, str]) -> None:
        make_root(self.candidate.root, files)

    def health(self, **changes: object) -> None:
        health = dataclasses.replace(self.candidate.config.health, **changes)  # type: ignore[arg-type]
        config = dataclasses.replace(self.candidate.config, health=health)
        self.candidate = dataclasses.replace(self.candidate, config=config)

    def command(self, name: str, script: str) -> None:
        """Let a command be there that does what the shell's words say."""
        self.commands.mkdir(exist_ok=True)
        (self.commands / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.commands / name).chmod(0o755)
        self.patch.setenv("PATH", f"{self.commands}:{os.environ['PATH']}")

    def boards(self, gpus: Sequence[Gpu] | None = None, **changes: int) -> None:
        """Good boards, of which the last has other readings."""
        readings = {**GOOD, **{Reading(name): value for name, value in changes.items()}}
        gpus = [FakeGpu(), FakeGpu("GPU 1", "S1", readings)] if gpus is None else gpus
        self.patch.setattr(each, "open_driver", lambda: FakeDriver(gpus))

    def space(self, **changes: int) -> None:
        """Every filesystem says so of itself."""
        names = ("bsize", "frsize", "blocks", "bfree", "bavail", "files", "ffree", "favail")
        real = dict(zip(names, os.statvfs("/")[:8], strict=True)) | changes
        values = (*real.values(), 0, 255)
        self.patch.setattr(os, "statvfs", lambda _path: os.statvfs_result(values))

    def fails(self, target: object, name: str, error: BaseException) -> None:
        def fail(*_arguments: object, **_named: object) -> None:
            raise error

        self.patch.setattr(target, name, fail)


def stage_in(folder: Path, config: RunConfig, patch: pytest.MonkeyPatch) -> Stage:
    """A node of nothing, below a folder."""
    (folder / "root").mkdir(parents=True)
    saves = dataclasses.replace(config.checkpoint, directory=folder / "checkpoints")
    here = dataclasses.replace(config, checkpoint=saves)
    return Stage(Candidate("n1", here, 0.0, (), folder / "root"), patch, folder / "bin")


Arrange = Callable[[Stage], object]


@dataclass(frozen=True, kw_only=True)
class Cases:
    """How a node comes to be so; words where the case has no meaning say why.

    ``silent``: the check cannot be carried out. ``hangs``: None, for it must be seen to hang when
    nothing that it reads answers.
    """

    good: Arrange | str
    bad: Arrange | str
    silent: Arrange | str
    nonsense: Arrange | str
    hangs: str | None = None


def with_files(files: Mapping[str, str]) -> Arrange:
    return lambda stage: stage.files(files)


def nothing(_stage: Stage) -> None:
    """The node is as it is: an empty root."""
