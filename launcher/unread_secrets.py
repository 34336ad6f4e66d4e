"""The files of ``secrets`` are read with the spec: one that is missing is a fault like others."""

from __future__ import annotations

import os
from collections.abc import Iterator

from relight.resilience.worker.secret_files import read_secrets

from .layers import Layer
from .spec_faults import Fault, nearest


def unread_secrets(layer: Layer) -> Iterator[Fault]:
    """What ranks could not read at their start; what is no name of a file is left to the spec."""
    secrets = layer.value.get("secrets")
    for name, secret in secrets.items() if isinstance(secrets, dict) else ():
        file = secret.get("file") if isinstance(secret, dict) else None
        if not isinstance(file, str):
            continue
        try:
            read_secrets({name: file})
        except OSError as error:
            fault = f"{file!r} cannot be read: {os.strerror(error.errno or 0)}"
        except (ValueError, RuntimeError) as error:  # of ~USER that nobody is, the latter
            fault = str(error)
        else:
            continue
        place = nearest(("secrets", name, "file"), layer.places)
        yield Fault(place, f"secrets.{name}.file: {fault}")
