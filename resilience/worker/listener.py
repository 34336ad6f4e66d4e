"""The thread that talks with the agent while the main thread trains."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from typing import Final

from relight.counted import counted

from ..messages import Message, number
from .beats import LONG_S, beat_s
from .boundary import Boundary
from .flight_recorder import write_record
from .line import Line
from .own_time import OwnTime
from .signals import StopSignals

_TURN_S: Final = 1.0


class Listener(threading.Thread):
    """Answers holds, passes orders to the boundary, reports signals, beats.

    ``changed`` guards the boundary and the time; the main thread waits on it for orders.
    """

    def __init__(
        self,
        line: Line,
        boundary: Boundary,
        own_time: OwnTime,
        changed: threading.Condition,
        signals: StopSignals,
        rank: int,
        *,
        ends_with_agent: bool = False,
    ) -> None:
        super().__init__(name="relight-listener", daemon=True)
        self._line = line
        self._boundary = boundary
        self._own_time = own_time
        self._changed = changed
        self._signals = signals
        self._rank = rank
        self._ends_with_agent = ends_with_agent
        self._beaten_step = -1
        self._beaten_at_s = 0.0
        self._beat_s = beat_s(os.environ)

    def run(self) -> None:
        try:
            while not self._line.lost:
                self._turn()
        finally:
            self._end_with_agent()
            # Nobody will end a hold any more: the main thread must not wait for ever.
            self._line.hurry()
            with self._changed:
                self._boundary.release_all()
                self._changed.notify_all()
        if self._ends_with_agent:  # which has not listened for a while, or has ended just now
            self._line.await_hang_up()
            self._end_with_agent()

    def _end_with_agent(self) -> None:
        """A child of the agent is ended by the kernel: others may take its place."""
        if self._ends_with_agent and self._line.hung_up:
            os.kill(os.getpid(), signal.SIGKILL)

    def answer(self, ask: int) -> None:
        with self._changed:
            done = self._boundary.hold(ask)
        if done is not None:
            self._line.send({"type": "held", "ask": ask, "step": done})

    def _turn(self) -> None:
        line, signals = self._line.fileno(), self._signals.fd
        ready, _, _ = select.select([line, signals], [], [], _TURN_S)
        if signals in ready:
            for number_ in self._signals.read():
                self._line.send({"type": "signalled", "signal": number_.name})
        if line in ready:
            for message in self._line.receive():
                self._obey(message)
        self._beat(time.monotonic())

    def _obey(self, message: dict[str, object]) -> None:
        match message["type"]:
            case "hold":
                self.answer(number(message, "ask"))
            case "release":
                with self._changed:
                    self._boundary.release(number(message, "ask"))
                    self._changed.notify_all()
            case "save_at" | "stop_at":
                if message["type"] == "stop_at":  # there is no time to wait for a slow disk
                    self._line.hurry()
                self._order(message)
            case "record":
                write_record(self._rank)
            case "copied":
                self._line.copied.set()

    def _order(self, message: dict[str, object]) -> None:
        ask, step = number(message, "ask"), number(message, "step")
        with self._changed:
            order = (
                self._boundary.save_at if message["type"] == "save_at" else self._boundary.stop_at
            )
            accepted, done = order(ask, step), self._boundary.done
            self._changed.notify_all()
        if not accepted:
            reason = f"step {step} has passed: {counted(done, 'step')} done"
            self._line.send({"type": "save_failed", "step": step, "reason": reason, "errno": None})

    def _beat(self, now_s: float) -> None:
        with self._changed:
            step, begun = self._boundary.done, self._boundary.begun
        with self._line.transfer.news(now_s) as moving:
            wait_s = self._beat_s if moving or step != self._beaten_step else LONG_S
            if not (begun or moving) or now_s - self._beaten_at_s < wait_s:
                return
            word = self._beat_of(step) if begun else {"type": "moving"}
            self._line.send({**word, "moving": moving} if moving else word)
        self._beaten_step, self._beaten_at_s = step if begun else -1, now_s

    def _beat_of(self, step: int) -> Message:
        with self._changed:
            own_s, step_s = self._own_time.take() or (None, None)
        return {"type": "beat", "step": step, "own_s": own_s, "step_s": step_s}
