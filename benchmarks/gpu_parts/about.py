"""The card, its driver, and which packages this Python has and lacks."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version

from rows import Row, tell

PACKAGES = (
    *("torch", "numpy", "h5py", "psutil", "nvidia-ml-py", "pydantic", "click"),
    *("rich", "PyYAML", "jinja2", "submitit", "pytest", "pytest-timeout", "hypothesis"),
)
CARD = "name,driver_version,memory.total,pcie.link.gen.max,pcie.link.width.max,power.limit,serial"


def main() -> None:
    tell([*card(), *by_torch(), *packages()])


def card() -> list[Row]:
    query = ["nvidia-smi", f"--query-gpu={CARD}", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return [("nvidia-smi", "not to be had", str(error))]
    return [(f"GPU {index}", line, CARD) for index, line in enumerate(said.splitlines())]


def by_torch() -> list[Row]:
    rows: list[Row] = [("Python", platform.python_version(), platform.platform())]
    try:
        import torch
    except ImportError as error:
        return [*rows, ("torch", "missing", str(error))]
    rows.append(("CUDA of torch", torch.version.cuda or "none", ""))
    rows.append(("GPUs that torch sees", torch.cuda.device_count(), ""))
    if torch.cuda.is_available():
        rows.append(("NCCL", ".".join(map(str, torch.cuda.nccl.version())), ""))
    return rows


def packages() -> list[Row]:
    rows: list[Row] = []
    for name in PACKAGES:
        try:
            rows.append((name, version(name), ""))
        except PackageNotFoundError:
            rows.append((name, "missing", "what needs it is left out"))
    return rows


if __name__ == "__main__":
    main()
