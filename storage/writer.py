"""The process that writes a program's snapshots: ``python -m relight.storage.writer``.

It knows neither torch nor the program, only the memory they share. It ends with the program: by
PR_SET_PDEATHSIG when that is killed in the middle of a write, by the end of the channel otherwise.
Signals that mean "stop" are for the program: they are blocked here from before the start.

Arguments: file descriptors of staging area and channel, and the program's process id. On the
channel, JSON lines: the directory, and where a snapshot lies; in return the receipt, or why there
is none.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

from .checkpointer import SaveFailed, save_source
from .child import end_with_parent
from .sealed import Json
from .snapshot import Snapshot, read
from .staging import Staging


def main() -> None:
    staging_fd, channel_fd, program = map(int, sys.argv[1:])
    end_with_parent()
    if os.getppid() != program:  # it ended before it could be watched
        return
    staging = Staging(staging_fd)
    with socket.socket(fileno=channel_fd) as channel, channel.makefile("rwb") as lines:
        for line in lines:
            lines.write(json.dumps(_answer(staging, line)).encode() + b"\n")
            lines.flush()


def _answer(staging: Staging, line: bytes) -> dict[str, Json]:
    directory, *place = json.loads(line)
    order = read(staging, Snapshot(*place))
    try:
        receipt = save_source(Path(directory), order.source, order.started_s)
    except SaveFailed as error:
        return {"path": error.path, "errno": error.errno, "reason": str(error.__cause__)}
    return {"receipt": receipt.to_json()}


if __name__ == "__main__":
    main()
