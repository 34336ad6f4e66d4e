"""What a part hands back, and what it is told."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

Row = tuple[str, object, str]  # what, value, remark


def tell(rows: list[Row]) -> None:
    """The part's last line."""
    print(json.dumps({"rows": rows}), flush=True)


def small() -> bool:
    """Whether only the script itself is tried."""
    return bool(os.environ.get("RELIGHT_GPU_CHECK_SMALL"))


def folder() -> Path:
    """Where a part may write."""
    return Path(os.environ["RELIGHT_GPU_CHECK_FOLDER"])


def missing(*modules: str) -> list[str]:
    """Those that this Python does not have."""
    return [name for name in modules if find_spec(name) is None]
