"""Where everything of a checkpoint directory lies. Pure names, no disk access.

<directory>/<step>/MANIFEST.json                     the commit record
<directory>/<step>/<attempt>.g<generation>/          what one incarnation wrote
                    shard-<rank>.h5, receipt-<rank>.json
                    shard-<rank>.from-<step>.<attempt>.g<generation>.h5, an earlier one's bytes
<directory>/epochs/<n>.json                          who held the directory, in turn
<directory>/set-aside/<step>.<k>/                    damaged checkpoints, kept with the reason
<directory>/code/<sha256>.diff                       uncommitted changes of the code that saved
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

MANIFEST = "MANIFEST.json"
_ATTEMPT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_FOLDER = re.compile(r"(?P<attempt>[A-Za-z0-9_][A-Za-z0-9_.-]*)\.g(?P<generation>0|[1-9][0-9]*)")
_STEP = re.compile(r"[0-9]{12,}")
_EPOCH = re.compile(r"([0-9]{8,})\.json")
_RECEIPT = re.compile(r"receipt-([0-9]{5,})\.json")


@dataclass(frozen=True, slots=True, order=True)
class Incarnation:
    """One start of all ranks: no two incarnations ever write the same path."""

    attempt: str
    generation: int

    def __post_init__(self) -> None:
        if not _ATTEMPT.fullmatch(self.attempt):
            raise ValueError(f"attempt {self.attempt!r} is no plain file name")
        if self.generation < 0:
            raise ValueError(f"generation {self.generation} is negative")

    @property
    def folder(self) -> str:
        return f"{self.attempt}.g{self.generation}"

    @classmethod
    def parse(cls, folder: str) -> Incarnation:
        """The inverse of `folder`. Raises ValueError."""
        match = _FOLDER.fullmatch(folder)
        if not match:
            raise ValueError(f"{folder!r} is not <attempt>.g<generation>")
        return cls(match["attempt"], int(match["generation"]))


def step_name(step: int) -> str:
    """Zero padded, so that names sort as numbers do."""
    if step < 0:
        raise ValueError(f"step {step} is negative")
    return f"{step:012d}"


def step_of(name: str) -> int | None:
    """The step of a folder name, None for anything else that may lie in the directory."""
    if _STEP.fullmatch(name) and step_name(int(name)) == name:
        return int(name)
    return None


def epoch_of(name: str) -> int | None:
    match = _EPOCH.fullmatch(name)
    return int(match[1]) if match else None


def receipt_rank(name: str) -> int | None:
    match = _RECEIPT.fullmatch(name)
    return int(match[1]) if match else None


def step_dir(directory: Path, step: int) -> Path:
    return directory / step_name(step)


def incarnation_dir(directory: Path, step: int, incarnation: Incarnation) -> Path:
    return step_dir(directory, step) / incarnation.folder


def shard_path(directory: Path, step: int, incarnation: Incarnation, rank: int) -> Path:
    return incarnation_dir(directory, step, incarnation) / f"shard-{rank:05d}.h5"


def receipt_path(directory: Path, step: int, incarnation: Incarnation, rank: int) -> Path:
    return incarnation_dir(directory, step, incarnation) / f"receipt-{rank:05d}.json"


def shard_file(incarnation: Incarnation, rank: int) -> str:
    """The shard's path relative to its step folder, as receipts and manifests name it."""
    return f"{incarnation.folder}/shard-{rank:05d}.h5"


def base_name(rank: int, step: int, incarnation: Incarnation) -> str:
    """Beside a shard: an earlier shard of the same rank that holds some of its arrays."""
    return f"shard-{rank:05d}.from-{step_name(step)}.{incarnation.folder}.h5"


def manifest_path(directory: Path, step: int) -> Path:
    return step_dir(directory, step) / MANIFEST


def epoch_path(directory: Path, epoch: int) -> Path:
    return epochs_dir(directory) / f"{epoch:08d}.json"


def epochs_dir(directory: Path) -> Path:
    return directory / "epochs"


def set_aside_dir(directory: Path) -> Path:
    return directory / "set-aside"


def code_path(directory: Path, digest: str) -> Path:
    return directory / "code" / f"{digest}.diff"
