"""The kernel's log, with the age of each line.

Each read of /dev/kmsg gives one record: ``priority,sequence,microseconds since boot,flags;text``
(Documentation/ABI/testing/dev-kmsg). Where kernel.dmesg_restrict is set only root may read it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_RECORD: Final = re.compile(r"^\d+,\d+,(\d+),[^;]*;(.*)$")
_MOST_BYTES: Final = 16 * 1024**2


@dataclass(frozen=True, slots=True)
class KernelLine:
    """``age_s``: how long ago it was logged."""

    age_s: float
    text: str


def read_kernel_log(root: Path) -> list[KernelLine]:
    """Every line that the kernel still has, oldest first.

    Raises:
        PermissionError: this user may not read it.
        OSError: there is none.
    """
    uptime_s = float((root / "proc/uptime").read_text().split()[0])
    lines = []
    for record in _raw(root / "dev/kmsg").decode(errors="replace").splitlines():
        if match := _RECORD.match(record):
            lines.append(KernelLine(uptime_s - int(match[1]) / 1e6, match[2]))
    return lines


def _raw(device: Path) -> bytes:
    fd = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    said = bytearray()
    try:
        while len(said) < _MOST_BYTES:
            try:
                record = os.read(fd, 64 * 1024)
            except BlockingIOError:
                break  # that was the newest
            except BrokenPipeError:
                continue  # the oldest were overwritten while we read
            if not record:
                break
            said += record
        return bytes(said)
    finally:
        os.close(fd)
