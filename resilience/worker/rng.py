"""The random states of a process: Python's, numpy's legacy one, torch's on CPU and GPUs."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Final

from .errors import RestoreMismatch


def capture_rng() -> dict[str, object]:
    """The state of every generator that the program has loaded."""
    state: dict[str, object] = {"python": random.getstate()}
    if "numpy" in sys.modules:
        import numpy as np

        state["numpy"] = np.random.get_state(legacy=False)
    if "torch" in sys.modules:
        import torch

        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch's own omission
            state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_rng(state: Mapping[str, object]) -> None:
    """Sets what was captured, loading a library that the program has not loaded yet.

    Raises:
        RestoreMismatch: the state was captured by another version of a library.
        and RuntimeError by CUDA, of a GPU that fails.
    """
    name = ""
    try:
        for name, value in state.items():
            _RESTORE[name](value)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        if name == "cuda" and isinstance(error, RuntimeError) and "RNG state" not in str(error):
            raise
        raise RestoreMismatch(
            f"the random state of the checkpoint does not fit ({error}); restore it with the "
            "library versions that saved it, or use relight.join(rng=False)"
        ) from error


def _restore_python(value: object) -> None:
    if not isinstance(value, tuple):
        raise TypeError(f"Python's random state is a {type(value).__name__}")
    random.setstate(value)


def _restore_numpy(value: object) -> None:
    import numpy as np

    if not isinstance(value, dict):
        raise TypeError(f"numpy's random state is a {type(value).__name__}")
    np.random.set_state(value)


def _restore_torch(value: object) -> None:
    import torch

    if not isinstance(value, torch.Tensor):
        raise TypeError(f"torch's random state is a {type(value).__name__}")
    torch.set_rng_state(value)


def _restore_cuda(value: object) -> None:
    import torch

    if not isinstance(value, list):
        raise TypeError(f"the GPUs' random states are a {type(value).__name__}")
    for device, one in enumerate(value[: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(one.cpu(), device)


_RESTORE = {
    "python": _restore_python,
    "numpy": _restore_numpy,
    "torch": _restore_torch,
    "cuda": _restore_cuda,
}
RNG_NAMES: Final = frozenset(_RESTORE)
