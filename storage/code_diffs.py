"""The diffs of code that checkpoints name, and which of them nobody names any more."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from .layout import code_path
from .manifest import Manifest

_YOUNG_S = 86400.0  # a run writes its diff when it starts, and may commit its first step much later


def unnamed(directory: Path, manifests: Iterable[Manifest]) -> list[Path]:
    """Diffs older than a day that none of the manifests has in its provenance. Raises OSError."""
    named = {_diff(manifest) for manifest in manifests}
    before_s = time.time() - _YOUNG_S
    return [
        path
        for path in code_path(directory, "*").parent.glob("*.diff")
        if path.stem not in named and path.stat().st_mtime < before_s
    ]


def _diff(manifest: Manifest) -> object:
    code = manifest.provenance.get("code")
    return code.get("diff_sha256") if isinstance(code, dict) else None
