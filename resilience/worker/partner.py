"""The agent's part in copies on a partner node: its own shards go there, and others' come here.

Standard library only, for the agent is light. Bytes go through processes of their own; what comes
of them is for the supervisor, and nobody waits for it.
"""

from __future__ import annotations

import select
import socket
import subprocess
from collections import deque

from ..messages import Message, decode, number, text
from .errand import Errand, start
from .lines import Lines


class Partner:
    """What one agent sends, and on the first of a node also what that node takes.

    ``token`` is what all nodes of an attempt know; ``beside`` has the processes of this agent.
    """

    def __init__(self, token: str, beside: set[int]) -> None:
        self._token = token
        self._beside = beside
        self._address: tuple[str, int] | None = None
        self._saved: Message | None = None  # the newest of ours; an older one is needless
        self._orders: deque[Message] = deque()
        self._under_way: Message = {}
        self._errand: Errand | None = None
        self._dropped = False
        self._depot: subprocess.Popen[bytes] | None = None
        self._port: int | None = None  # of the depot, once it listens
        self._lines: Lines | None = None
        self._words: deque[Message] = deque()  # for the supervisor

    def open(self, folder: str, share_bytes: int) -> None:
        """Let this node take copies; the supervisor gets to know where."""
        if self._depot is not None:
            if self._port is not None:
                self._words.append({"type": "depot", "port": self._port})
            return
        try:
            ours, its = socket.socketpair()
            with its:
                arguments = [folder, str(share_bytes)]
                self._depot = start("relight.storage.depot", arguments, its.fileno())
        except OSError as error:
            self._without_depot(f"no process can be started: {error}")
            return
        self._beside.add(self._depot.pid)
        ours.sendall(self._token.encode() + b"\n")
        self._lines = Lines(ours)

    def meet(self, host: str, port: int) -> None:
        """What this agent's program saves is copied there from now on."""
        if (host, port) != self._address:
            self._address = host, port
            self._put_off()

    def offer(self, saved: Message) -> None:
        """A shard of this agent's program is in the tier. Only the newest waits to be sent."""
        self._saved = saved

    def bring(self, order: Message) -> None:
        """Send a shard that this node has to another, which will need it."""
        self._orders.append(order)
        self._put_off()

    def bring_no_more(self) -> None:
        """Ranks have begun, and read what they have not got from the directory."""
        self._orders.clear()
        if "host" in self._under_way:
            self._drop()

    def overtaken(self, step: int) -> None:
        """A checkpoint of this step is there: nobody needs a copy of an older one any more."""
        if self._saved is not None and number(self._saved, "step") < step:
            self._saved = None
        if self._errand is not None and number(self._under_way, "step") < step:
            self._drop()

    def look(self) -> list[Message]:
        """What there is to tell the supervisor."""
        self._hear()
        if self._errand is None:
            self._begin()
        else:
            self._check(self._errand)
        words, self._words = list(self._words), deque()
        return words

    def end(self) -> None:
        """Nothing is sent or taken any more."""
        if self._errand is not None:
            self._errand.kill()
        if self._depot is not None:
            self._depot.kill()

    def _put_off(self) -> None:
        """What is sent of ours waits: its partner may be lost, and would be waited for."""
        if self._errand is not None and not self._dropped and "host" not in self._under_way:
            self._saved = self._saved or self._under_way
            self._drop()

    def _drop(self) -> None:
        if self._errand is not None:
            self._errand.kill()
            self._dropped = True

    def _begin(self) -> None:
        if self._orders:
            order = self._orders.popleft()
            address = text(order, "host"), number(order, "port")
        elif self._saved is not None and self._address is not None:
            order, self._saved = self._saved, None
            address = self._address
        else:
            return
        host, port = address
        arguments = [text(order, "tier"), str(number(order, "step")), text(order, "writer")]
        arguments += [str(number(order, "rank")), host, str(port)]
        self._under_way = order
        try:
            self._errand = Errand("relight.storage.send", arguments, self._token)
        except OSError as error:
            self._not_sent(f"no process can be started: {error}")
            return
        self._beside.add(self._errand.pid)

    def _check(self, errand: Errand) -> None:
        answer = errand.look()
        if answer is None:
            return
        self._errand = None
        self._beside.discard(errand.pid)
        if "reason" in answer and not self._dropped:
            self._not_sent(str(answer["reason"]))
        self._dropped = False

    def _not_sent(self, reason: str) -> None:
        order = self._under_way
        which = {name: order[name] for name in ("step", "writer", "rank")}
        self._words.append({"type": "not_sent", **which, "reason": reason})

    def _hear(self) -> None:
        if self._lines is None or not select.select([self._lines.connection], [], [], 0)[0]:
            return
        lines = self._lines.read()
        if lines is None:
            self._without_depot("the process that takes copies has ended")
            return
        for line in lines:
            word = decode(line)
            if word["type"] == "depot":
                self._port = number(word, "port")
            self._words.append(word)

    def _without_depot(self, reason: str) -> None:
        if self._lines is not None:
            self._lines.connection.close()
        if self._depot is not None:
            self._depot.kill()
            self._beside.discard(self._depot.pid)
        self._depot, self._port, self._lines = None, None, None
        self._words.append({"type": "depot", "port": None, "reason": reason})
