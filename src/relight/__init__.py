"""relight: run a job on Slurm until it is done.

Programs use three names: :func:`join`, and the :class:`Run` it returns with ``protect`` and ``steps``.
:class:`Part`, :class:`Replicated` and :class:`PerRank` say how ranks share what they protect. All are
loaded when they are asked for, so that ``import relight`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relight.resilience.worker.join import Run, join
    from relight.resilience.worker.protected import PerRank
    from relight.storage.boxes import Part, Replicated

__all__ = ["Part", "PerRank", "Replicated", "Run", "__version__", "join"]
__version__ = "0.1.0"

_HOMES = {
    "Part": "relight.storage.boxes",
    "PerRank": "relight.resilience.worker.protected",
    "Replicated": "relight.storage.boxes",
    "Run": "relight.resilience.worker.join",
    "join": "relight.resilience.worker.join",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'relight' has no attribute {name!r}")
