"""The command that starts all ranks of a node, under the agent of the first of them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Final

from ..messages import Message, abstract, encode
from .environment import OF_A_RANK
from .other_process import start_ranks
from .program import TAIL_LINES, Program

_SAY_LIMIT_S: Final = 0.1
# Each agent ends its own rank first: one that the end of the command took along would look killed.
_RANKS_FIRST_S: Final = 0.5
_EXEC_S: Final = 1.0  # in which what a shell has started last becomes another program
_FIRST_FAILED: Final = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) ")
_OF_TORCHRUN: Final = re.compile(r"torch/distributed/elastic/\S+ (Sending process|failed)")

End = dict[str, object]


class NodeCommand(Program):
    """The command of a node. Ranks may outlive it: a shell dies of a signal that they survive.

    So what it leaves behind is swept when ranks are to end, and its own end is only told to the
    agents at the addresses ``others``.
    """

    others: Sequence[str] = ()
    _how: End | None = None
    _sweep_at = float("inf")
    _decide_at: float | None = None

    def poll(self) -> End | None:
        """As of any program, but what it has started stays."""
        if self._how is None and self._process is not None:
            seen = os.waitid(
                os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT
            )  # not reaped: its number stays that of its process group
            if seen is None:
                return None
            exited = seen.si_code == os.CLD_EXITED
            left = self.left() if exited and seen.si_status == 0 else []
            if left and not self._is_settled():
                return None
            how = self._end(seen.si_status << 8 if exited else seen.si_status, 0)
            left_ranks = start_ranks(left, self._process.pid)
            self._how = {**how, **_first_failed(self.lines()), "left_ranks": left_ranks}
        elif self._how is None:
            self._how = self._end(127 << 8, 0)
        return self._how

    def _is_settled(self) -> bool:
        """Whether what it has left behind has had the time to show what it is."""
        now = time.monotonic()
        self._decide_at = self._decide_at or now + _EXEC_S
        return now >= self._decide_at

    def _tail(self) -> list[str]:
        """What ranks have written last: before torchrun tells of their ends."""
        lines = self.lines()
        own = next((at for at, line in enumerate(lines) if _OF_TORCHRUN.search(line)), len(lines))
        failed = [line for line in lines[own:] if _FIRST_FAILED.search(line)]
        return [*lines[:own][-TAIL_LINES:], *failed]

    def look(self) -> None:
        """Tell the others of its end, and sweep when it is time; to be called again and again."""
        if self.others and (how := self.poll()) is not None:
            for address in self.others:
                ended = {"type": "command_ended", "generation": self.generation, "how": how}
                _say(address, ended)
            self.others = ()
        if time.monotonic() > self._sweep_at:
            self.end_all()

    def end_soon(self) -> None:
        """The ranks are told to end; after that nothing of it stays."""
        self._sweep_at = min(self._sweep_at, time.monotonic() + _RANKS_FIRST_S)

    def end_all(self) -> None:
        """Kill it and all that it has started, and wait for that."""
        self._sweep_at, self.others = float("inf"), ()
        self._how = self.poll() or self._end(signal.SIGKILL, 0)
        self.end(signal.SIGKILL)
        self.wait()


def without_a_rank(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment from which nobody takes the command, or a rank of it, for another rank."""
    of_another = ("RELIGHT_AGENT_SOCKET", *OF_A_RANK)
    return {name: value for name, value in environ.items() if name not in of_another}


def _first_failed(lines: Sequence[str]) -> End:
    """The rank that torchrun blames, where it does, and with which code."""
    found = next((said for line in reversed(lines) if (said := _FIRST_FAILED.search(line))), None)
    return {} if found is None else {"first_failed": int(found[2]), "its_code": int(found[1])}


def _say(address: str, message: Message) -> None:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
        line.settimeout(_SAY_LIMIT_S)
        line.connect(abstract(address))
        line.sendall(encode(message))
