"""The agent's part in a tier: it holds the folder, and lets a process copy what is saved there.

Standard library only, for the agent is light. One save is copied after the other, in their order;
the agent outlives the program, and so does the copying.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from relight.storage.tier import drop_overtaken
from relight.storage.tier_folder import hold, remove, sweep

from ..messages import Message, number, text
from .errand import Errand


class Drains:
    """What an agent does for the tier of its node; nothing before :meth:`lodge`.

    ``beside`` has the process that copies now, among others of the agent's own.
    """

    def __init__(self, beside: set[int]) -> None:
        self._beside = beside
        self._folder: Path | None = None
        self._held: int | None = None
        self._waiting: deque[tuple[int, Message]] = deque()
        self._under_way: tuple[int, Message] = 0, {}
        self._errand: Errand | None = None
        self._dropped = False
        self._owes_word = False
        self._how = ["0"]  # the last arguments of the process that copies

    def obey(self, env: Mapping[str, object]) -> None:
        """What the environment of a rank says of checkpoints holds for their copies too."""
        self._how = [str(env.get("RELIGHT_CHECKPOINT_REUSE", 0))]
        if env.get("RELIGHT_CHECKPOINT_COMPRESS") == "1":
            self._how.append("compress")

    def lodge(self, folder: Path) -> None:
        """Hold the folder of this run, and clear away what killed runs have left beside it."""
        if self._held is not None:
            return
        self._folder = folder
        # A tier that does not work is found, and told, by the rank that saves.
        with contextlib.suppress(OSError):
            self._held = hold(folder)
        _in_background(sweep, folder.parents[1])

    def add(self, generation: int, saved: Message) -> None:
        """Let what a program of this generation has saved be copied."""
        self._waiting.append((generation, saved))
        self._owes_word = True

    def look(self) -> tuple[int, Message] | None:
        """What came of a copy that has ended: its generation, and the word for the supervisor."""
        if self._errand is not None:
            return self._ended(self._errand)
        return self._begin(*self._waiting.popleft()) if self._waiting else None

    def done(self) -> bool:
        """True once, when all has been copied that there was."""
        if not self._owes_word or self._waiting or self._errand is not None:
            return False
        self._owes_word = False
        return True

    def overtaken(self, step: int) -> None:
        """A checkpoint of this step is there: nobody needs a copy of an older one any more."""
        self._waiting = deque(one for one in self._waiting if number(one[1], "step") >= step)
        if self._errand is not None and number(self._under_way[1], "step") < step:
            self._errand.kill()
            self._dropped = True
        if self._folder is not None:
            _in_background(drop_overtaken, self._folder, step)

    def end(self, *, keep: bool) -> None:
        """Nothing is copied any more; unless it is to be kept, the folder goes."""
        if self._errand is not None:
            self._errand.kill()
        if self._held is not None:
            os.close(self._held)  # the last one on this node can remove it
        if self._folder is not None and not keep:
            remove(self._folder)

    def _begin(self, generation: int, saved: Message) -> tuple[int, Message] | None:
        self._under_way = generation, saved
        arguments = [text(saved, "tier"), text(saved, "directory"), str(number(saved, "step"))]
        arguments += [text(saved, "writer"), str(number(saved, "rank")), *self._how]
        try:
            self._errand = Errand("relight.storage.drain", arguments)
        except OSError as error:
            return self._failed(f"no process can be started: {error}", error.errno)
        self._beside.add(self._errand.pid)
        return None

    def _ended(self, errand: Errand) -> tuple[int, Message] | None:
        answer = errand.look()
        if answer is None:
            return None
        self._errand = None
        self._beside.discard(errand.pid)
        if "uncompressed" in answer and "compress" in self._how:
            self._how.remove("compress")
            sys.stderr.write(f"relight: copied from the tier as it is: {answer['uncompressed']}\n")
        if self._dropped:
            self._dropped = False
            return None
        if "receipt" not in answer:
            return self._failed(answer["reason"], answer["errno"])
        saved = {"type": "saved", "receipt": answer["receipt"], "stall_s": None}
        return self._under_way[0], saved

    def _failed(self, reason: str, number_: int | None) -> tuple[int, Message]:
        generation, saved = self._under_way
        step = number(saved, "step")
        reason = f"step {step} is not copied from the tier of its node: {reason}"
        failed = {"type": "save_failed", "step": step, "reason": reason, "errno": number_}
        return generation, failed


def _in_background(clear: Callable[..., None], *arguments: object) -> None:
    """The agent must not fall silent while gigabytes go."""

    def act() -> None:
        with contextlib.suppress(OSError):  # what stays takes room; the rank tells when it lacks
            clear(*arguments)

    threading.Thread(target=act, name="relight-tier", daemon=True).start()
