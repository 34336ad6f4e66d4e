"""A conversation that outlives its connections: nothing in it is lost, and nothing is heard twice.

Both ends of the line between supervisor and agent keep what they have said until the other end has
confirmed it, and say it again over the next connection. Pure; standard library only.
"""

from __future__ import annotations

from collections import deque

from .messages import Message, encode, number

BEAT = encode({"type": "beat"})


class Numbered:
    """One end of the conversation; ``heard`` is the number of the last message that has come."""

    __slots__ = ("_confirmed", "_kept", "_said", "heard")

    def __init__(self) -> None:
        self.heard = 0
        self._confirmed = 0
        self._said = 0
        self._kept: deque[bytes] = deque()

    def say(self, line: bytes) -> bytes:
        """An encoded message with its number, which is kept until the other end has it."""
        self._said += 1
        numbered = b'%b,"n":%d}\n' % (line[:-2], self._said)
        self._kept.append(numbered)
        return numbered

    def beat(self) -> bytes:
        """A sign of life, which confirms what has come since the last one."""
        confirmation = self.confirmation()
        return encode({"type": "beat", **confirmation}) if confirmation else BEAT

    def confirmation(self) -> Message:
        """What a message without a number says of those that have come since the last time."""
        if self._confirmed == self.heard:
            return {}
        self._confirmed = self.heard
        return {"got": self.heard}

    def is_new(self, message: Message) -> bool:
        """Whether a message is to be heeded: one that was said again may have come before."""
        if "got" in message:
            self._forget(number(message, "got"))
        if "n" not in message:
            return True
        if number(message, "n") <= self.heard:
            return False
        self.heard = number(message, "n")
        return True

    def missed(self) -> bytes:
        """What the other end has not confirmed, to be said again."""
        return b"".join(self._kept)

    def _forget(self, confirmed: int) -> None:
        while self._kept and self._said - len(self._kept) < confirmed:
            self._kept.popleft()
