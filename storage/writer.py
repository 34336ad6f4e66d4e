"""The process that writes a program's snapshots: ``python -m relight.storage.writer``.

It knows neither torch nor the program, only the memory they share. It ends with the program: by
PR_SET_PDEATHSIG when that is killed in the middle of a write, by the end of the channel otherwise.
Signals that mean "stop" are for the program: they are blocked here from before the start.

Arguments: file descriptors of staging area and channel, and the program's process id. On the
channel, JSON lines: the directory, and where a snapshot lies; in return the receipt, or why there
is none. Before that, now and then, how many bytes were written since the last such line; their
total comes first.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from .checkpointer import SaveFailed, save_source
from .child import end_with_parent
from .progress import Advance
from .sealed import Json
from .snapshot import Snapshot, read
from .staging import Staging

_TELL_S: Final = 1.0
Say = Callable[[dict[str, Json]], None]


def main() -> None:
    staging_fd, channel_fd, program = map(int, sys.argv[1:])
    end_with_parent()
    if os.getppid() != program:  # it ended before it could be watched
        return
    staging = Staging(staging_fd)
    with socket.socket(fileno=channel_fd) as channel, channel.makefile("rwb") as lines:

        def say(word: dict[str, Json]) -> None:
            lines.write(json.dumps(word).encode() + b"\n")
            lines.flush()

        for line in lines:
            say(_answer(staging, line, say))


def _answer(staging: Staging, line: bytes, say: Say) -> dict[str, Json]:
    directory, *place = json.loads(line)
    order = read(staging, Snapshot(*place))
    try:
        receipt = save_source(Path(directory), order.source, order.started_s, partial(_told, say))
    except SaveFailed as error:
        cause = error.__cause__
        file = cause.filename if isinstance(cause, OSError) else None
        return {"path": error.path, "errno": error.errno, "reason": str(cause), "file": file}
    return {"receipt": receipt.to_json()}


@contextmanager
def _told(say: Say, total_bytes: int) -> Iterator[Advance]:
    """Any thread may count; what is said is said by one at a time."""
    lock = threading.Lock()
    done = told = 0
    told_s = time.monotonic()

    def advance(size_bytes: int) -> None:
        nonlocal done, told, told_s
        with lock:
            done += size_bytes
            if done == total_bytes or time.monotonic() - told_s >= _TELL_S:
                say({"wrote": done - told})
                told, told_s = done, time.monotonic()

    say({"total": total_bytes})
    yield advance


if __name__ == "__main__":
    main()
