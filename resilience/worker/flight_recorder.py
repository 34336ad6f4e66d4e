"""torch's flight recorder: the last collectives of a rank, when its user has it kept.

It is on when ``TORCH_FR_BUFFER_SIZE`` says how many (before torch 2.9
``TORCH_NCCL_TRACE_BUFFER_SIZE``). Its format is torch's own pickle, which is
never loaded here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

_SIZES: Final = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_FILES: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_NAME: Final = "flight-"  # torch adds the rank


def recorder_variables(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Where records go, torch's own at a timeout too; none while it is off or the user says."""
    on = any(env.get(name, "0") != "0" for name in _SIZES)
    if not on or any(name in env for name in _FILES):
        return {}
    return dict.fromkeys(_FILES, str(folder / _NAME))


def write_record(rank: int, env: Mapping[str, str] = os.environ) -> None:
    """Writes what this rank has recorded, if it has; what goes wrong is said on stderr."""
    begin = next((env[name] for name in _FILES if name in env), None)
    if begin is None:
        return
    try:
        if (dump := _dump()) is not None:
            Path(f"{begin}{rank}").write_bytes(dump())
    except Exception as error:  # torch's own, whatever they are: the thread that calls has to go on
        sys.stderr.write(f"relight: no flight record of rank {rank}: {error}\n")


def _dump() -> Callable[[], bytes] | None:
    """torch's own function for it; None where nothing is recorded."""
    distributed = sys.modules.get("torch.distributed")
    inner = sys.modules.get("torch._C._distributed_c10d")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    nccl = "nccl" in str(distributed.get_backend_config())
    found: Callable[[], bytes] | None = getattr(
        inner, "_dump_nccl_trace" if nccl else "_dump_fr_trace", None
    )
    return found
