"""The agent's part in a tier: it holds the folder, and lets a process copy what is saved there.

Standard library only, for the agent is light. One save is copied after the other, in their order;
the agent outlives the program, and so does the copying.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any, BinaryIO, Final

from relight.storage.tier_folder import hold, remove, sweep

from ..messages import Message, number, text

# As for the writer of a program: what tells a job to stop is no reason to leave a save half copied.
_NOT_FOR_US: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Drains:
    """What an agent does for the tier of its node; nothing before :meth:`lodge`.

    Attributes:
        pids: the agent's children that its program has nothing to do with; the process that copies
            is one of them while there is one.
    """

    def __init__(self, pids: set[int]) -> None:
        self.pids = pids
        self._folder: Path | None = None
        self._held: int | None = None
        self._waiting: deque[tuple[int, Message]] = deque()
        self._under_way: tuple[int, Message] = 0, {}
        self._answer: BinaryIO = io.BytesIO()
        self._process: subprocess.Popen[bytes] | None = None
        self._dropped = False
        self._owes_word = False
        self._compress = False

    def lodge(self, folder: Path, *, compress: bool) -> None:
        """Hold the folder of this run, and clear away what killed runs have left beside it."""
        self._compress = compress
        if self._held is not None:
            return
        self._folder = folder
        # A tier that does not work is found, and told, by the rank that saves.
        with contextlib.suppress(OSError):
            self._held = hold(folder)
        # The agent must not fall silent while gigabytes go.
        threading.Thread(target=sweep, args=(folder.parents[1],), daemon=True).start()

    def add(self, generation: int, saved: Message) -> None:
        """Let what a program of this generation has saved be copied."""
        self._waiting.append((generation, saved))
        self._owes_word = True

    def look(self) -> tuple[int, Message] | None:
        """What came of a copy that has ended: its generation, and the word for the supervisor."""
        if self._process is not None:
            return self._ended(self._process)
        return self._begin(*self._waiting.popleft()) if self._waiting else None

    def done(self) -> bool:
        """True once, when all has been copied that there was."""
        if not self._owes_word or self._waiting or self._process is not None:
            return False
        self._owes_word = False
        return True

    def overtaken(self, step: int) -> None:
        """A checkpoint of this step is there: nobody needs a copy of an older one any more."""
        self._waiting = deque(one for one in self._waiting if number(one[1], "step") >= step)
        if self._process is not None and number(self._under_way[1], "step") < step:
            self._process.kill()
            self._dropped = True

    def end(self, *, keep: bool) -> None:
        """Nothing is copied any more; unless it is to be kept, the folder goes."""
        if self._process is not None:
            self._process.kill()  # not waited for: a file system that hangs may hold it
        if self._held is not None:
            os.close(self._held)  # the last one on this node can remove it
        if self._folder is not None and not keep:
            remove(self._folder)

    def _begin(self, generation: int, saved: Message) -> tuple[int, Message] | None:
        self._under_way = generation, saved
        # A pipe that nobody reads would hold a process with a long answer.
        try:
            self._answer = os.fdopen(os.memfd_create("relight-drain"), "rb")
            self._process = _start(saved, self._answer.fileno(), compress=self._compress)
        except OSError as error:
            return self._failed(f"no process can be started: {error}", error.errno)
        self.pids.add(self._process.pid)
        return None

    def _ended(self, process: subprocess.Popen[bytes]) -> tuple[int, Message] | None:
        if process.poll() is None:
            return None
        self._process = None
        self.pids.discard(process.pid)
        if self._dropped:
            self._dropped = False
            self._answer.close()
            return None
        if process.returncode:
            return self._failed(f"the process that copies ended with {process.returncode}", None)
        with self._answer as file:
            file.seek(0)
            answer = _read(file)
        if "receipt" not in answer:
            return self._failed(answer["reason"], answer["errno"])
        saved = {"type": "saved", "receipt": answer["receipt"], "stall_s": None}
        return self._under_way[0], saved

    def _failed(self, reason: str, number_: int | None) -> tuple[int, Message]:
        self._answer.close()
        generation, saved = self._under_way
        step = number(saved, "step")
        reason = f"step {step} is not copied from the tier of its node: {reason}"
        failed = {"type": "save_failed", "step": step, "reason": reason, "errno": number_}
        return generation, failed


def _read(file: BinaryIO) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.load(file)
    except ValueError:
        return {"reason": "the process that copies has said nothing", "errno": None}
    return answer


def _start(saved: Message, answer_fd: int, *, compress: bool) -> subprocess.Popen[bytes]:
    arguments = [text(saved, "tier"), text(saved, "directory"), str(number(saved, "step"))]
    arguments += [text(saved, "writer"), str(number(saved, "rank"))]
    arguments += ["compress"] if compress else []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_US)  # the child inherits it
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "relight.storage.drain", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=answer_fd,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
