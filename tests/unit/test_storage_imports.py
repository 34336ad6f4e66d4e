"""The supervisor is a light process: what it imports of storage must not bring heavy packages."""

from __future__ import annotations

import subprocess
import sys

LIGHT = "layout receipt manifest epoch commit condition choose set_aside retention prune verify"


def test_light_modules_load_no_heavy_package() -> None:
    names = ", ".join(f"relight.storage.{name}" for name in LIGHT.split())
    heavy = "sorted({'numpy', 'h5py', 'torch'} & set(sys.modules))"
    code = f"import sys, {names}; print({heavy})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_saving_arrays_does_not_load_torch() -> None:
    code = (
        "import sys, numpy, relight.storage.checkpointer;"
        "from relight.storage.state import Encoder;"
        "Encoder({'a': numpy.ones(3)}); print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
