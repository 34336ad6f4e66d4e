"""relight: run a job on Slurm until it is done.

Programs use three names: :func:`join`, and the :class:`Run` it returns with ``protect`` and ``steps``.
They are loaded when they are asked for, so that ``import relight`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relight.resilience.worker.join import Run, join

__all__ = ["Run", "__version__", "join"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name in ("Run", "join"):
        from relight.resilience.worker import join as module

        return getattr(module, name)
    raise AttributeError(f"module 'relight' has no attribute {name!r}")
