"""Secret files are read with the spec: one that is missing is a fault like others."""

from __future__ import annotations

import os
from collections.abc import Iterator

from relight.resilience.worker.secret_files import read_secrets

from .layers import Layer
from .spec_faults import Fault, nearest
from .yaml_lines import Path


def unread_secrets(layer: Layer) -> Iterator[Fault]:
    """What could not be read when it is needed; what is no name of a file is left to the spec."""
    for path, secret in _asked(layer):
        file = secret.get("file") if isinstance(secret, dict) else None
        if not isinstance(file, str):
            continue
        try:
            read_secrets({str(path[-1]): file})
        except OSError as error:
            fault = f"{file!r} cannot be read: {os.strerror(error.errno or 0)}"
        except (ValueError, RuntimeError) as error:  # of ~USER that nobody is, the latter
            fault = str(error)
        else:
            continue
        place = nearest((*path, "file"), layer.places)
        yield Fault(place, f"{'.'.join(map(str, path))}.file: {fault}")


def _asked(layer: Layer) -> Iterator[tuple[Path, object]]:
    secrets, notify = layer.value.get("secrets"), layer.value.get("notify")
    for name, secret in secrets.items() if isinstance(secrets, dict) else ():
        yield ("secrets", name), secret
    if isinstance(notify, dict):
        yield ("notify", "webhook"), notify.get("webhook")
