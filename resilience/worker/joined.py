"""The program of an agent whose node has one command for all its ranks, such as torchrun.

The agent of the node's first rank starts the command; each agent, that one too, takes the process
that joins it for its program. It is no child of the agent's, so its end is seen in ``/proc``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..exit_codes import EXIT_FAILED
from ..messages import Message
from .memory import oom_kills
from .node_command import End, NodeCommand
from .other_process import OtherProcess
from .program import TAIL_LINES, full_disk, tail

# Between the end of a rank's connection and that of its process.
_PARTING_S: Final = 0.1
_GLANCE_S: Final = 0.001
_GONE_LIMIT_S: Final = 5.0
# torchrun ends ranks when another has failed; those that have joined only note its SIGTERM.
_TEAR_DOWN_S: Final = 2.0
_TORN_DOWN: Final = (-signal.SIGTERM, -signal.SIGKILL)
# A shell around a rank takes its status at once, and ends with it, if it has nothing else to do.
_SHELL_S: Final = 1.0
_BY_SIGNAL: Final = 128
# A signal that has ended the command may have come for all: ranks hear of it, and are told to save.
_ALONE_S: Final = 2.0


class JoinedProgram:
    """The rank of this agent: nobody at first, then the process that has joined.

    ``command`` is that of the node, where this agent has started it; ``log`` that of all its ranks.
    """

    def __init__(
        self,
        generation: int,
        env: Mapping[str, str],
        log: Path | None,
        command: NodeCommand | None,
        local_rank: int,
        local_size: int,
    ) -> None:
        self.generation = generation
        self.env = env
        self.log = log
        self.joined: list[int] = []
        self.output = command.output if command is not None else None
        self._command = command
        self._command_ended: End | None = None  # as the agent that has started it says
        self._process: OtherProcess | None = None
        self._outermost: OtherProcess | None = None  # the rank, or what was started to be the rank
        self._status: int | None = None  # as wait(2) would give it
        self._shell_until: float | None = None
        self._said: int | None = None  # the code with which the rank means to end
        self._failed = False  # by an exception, as it says itself
        self._local_rank = local_rank
        self._local_size = local_size
        self._told_to_stop = False
        self._torn_down_at: float | None = None
        self._signalled = False
        self._alone_since: float | None = None  # its command has failed, and it runs on
        self._was_left_alone = False
        self._given_up = False
        self._ended_by_us = False
        self._killed = False
        self._oom_kills = oom_kills()

    @property
    def pid(self) -> int | None:
        """The rank, or the command that may yet start it; None under the other agents."""
        if self._process is not None:
            return self._process.pid
        return self._command.pid if self._command is not None else None

    def spare(self, pid: int) -> None:
        """Nothing is swept here."""

    def heard(self, word: Message, pid: int) -> bool:
        """Take note of what the rank, or another agent, says; False when it is for us only."""
        match word["type"]:
            case "joined" if self._process is None:
                self._process = OtherProcess.of(pid)
                self._outermost = self._process.leader()
            case "failed":
                self._failed = True
            case "stopped":
                self._said = int(str(word["code"]))
                return False
            case "finished":
                self._said = 0
            case "command_ended":
                how = word["how"]
                if word["generation"] == self.generation and isinstance(how, dict):
                    self._command_ended = how
                return False
            case "signalled" if word["signal"] == "SIGTERM" and self._is_torn_down():
                self._torn_down_at = time.monotonic()
                return False
            case "signalled":
                self._signalled = True
        return True

    def told(self, word: Message) -> None:
        """Take note of what the rank is told; what must stop is to be let do so."""
        if word["type"] == "stop_at":
            self._told_to_stop, self._torn_down_at = True, None

    def parted(self, pid: int) -> None:
        """A connection has ended, which may be the process: look before its parent takes it."""
        if self._process is None or self._process.pid != pid:
            return
        give_up_at = time.monotonic() + _PARTING_S
        while time.monotonic() < give_up_at:
            if self._is_over() and not self._waits_for_a_shell():
                return
            time.sleep(_GLANCE_S)

    def poll(self) -> End | None:
        """How the rank ended, as :meth:`Program.poll` says it; None while it runs."""
        torn_s = time.monotonic() - self._torn_down_at if self._torn_down_at is not None else 0.0
        if torn_s > _TEAR_DOWN_S and not self._ended_by_us:
            self._signal_all(signal.SIGKILL)  # torchrun waits for it for half a minute
        command_ended = self._how_the_command_ended()
        if self._process is None:
            if self._killed:
                return self._end(-signal.SIGKILL)
            return _without_its_ranks(command_ended)
        if not self._is_over() and self._is_left_alone(command_ended):
            self._was_left_alone = True
            self._signal_all(signal.SIGKILL)  # nobody would count it as done
        if not self._is_over() or self._waits_for_a_shell():
            return None
        code = self._code()
        if not self._ended_by_us:
            if self._was_left_alone and command_ended is not None:
                return _before_its_ranks(command_ended)
            if self._torn_down_at is not None and code in _TORN_DOWN:
                return command_ended  # whose words name the rank that failed
            if code == 0 and self._said in (None, 0) and self._command is not None:
                return command_ended  # a script may have more to do
        return self._end(code)

    def end(self, number: signal.Signals) -> None:
        """Send a signal to the rank and its process group; to the command where none has joined."""
        self._ended_by_us = True
        self._killed = self._killed or number == signal.SIGKILL
        if self._command is not None and number == signal.SIGKILL:
            self._command.end_soon()
        elif self._command is not None and self._process is None:
            self._command.end(number)
        self._signal_all(number)

    def give_up(self) -> None:
        """Bring the end of a rank about that has failed and stays; it counts as its own."""
        self._given_up = True
        self._signal_all(signal.SIGKILL)

    def wait(self) -> None:
        """Wait for the end of a rank that was killed."""
        give_up_at = time.monotonic() + _GONE_LIMIT_S
        while self._process is not None and not self._is_over():
            if time.monotonic() > give_up_at:
                return
            time.sleep(_GLANCE_S)

    def _signal_all(self, number: signal.Signals) -> None:
        if self._process is not None and not self._is_over():
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(self._process.pid) == self._process.pid:
                    os.killpg(self._process.pid, number)
                else:  # that of others, too
                    os.kill(self._process.pid, number)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the rank alone."""
        if self._process is not None and not self._is_over():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def _is_over(self) -> bool:
        assert self._process is not None
        over, status = self._process.look()
        self._status = status if self._status is None else self._status
        return over

    def _is_torn_down(self) -> bool:
        """Whether torchrun has lost another rank: then SIGTERM comes from there.

        What Slurm sends comes to the agent too; and ranks that have saved end one by one.
        """
        if self._outermost is None or self._told_to_stop:
            return False
        with contextlib.suppress(OSError):  # its parent is gone
            return self._outermost.siblings() < self._local_size
        return False

    def _is_left_alone(self, command_ended: End | None) -> bool:
        """Whether the command has failed for long enough, and nobody has told the rank to stop."""
        if self._command is None or command_ended is None or command_ended["code"] == 0:
            return False
        if command_ended["stopped"] or self._told_to_stop or self._signalled:
            return False
        now = time.monotonic()
        self._alone_since = self._alone_since or now
        return now - self._alone_since >= _ALONE_S

    def _how_the_command_ended(self) -> End | None:
        how = self._command.poll() if self._command is not None else self._command_ended
        if how is None or "first_failed" not in how:
            return how
        if how["first_failed"] != self._local_rank:  # whose agent tells of it
            return {**how, "code": None, "signal": "SIGTERM", "stopped": True}
        code = int(str(how["its_code"]))
        return {**how, **_code_and_signal(code)}

    def _code(self) -> int:
        """Of the rank, negative for a signal; what it has said last where nobody saw its end."""
        if self._given_up:
            return EXIT_FAILED
        if self._status is not None:
            return os.waitstatus_to_exitcode(self._status)
        if self._said is not None:
            return self._said
        if self._failed:
            return EXIT_FAILED
        status = self._outermost.look()[1] if self._outermost is not None else None
        if status is None:
            return -signal.SIGKILL
        code = os.waitstatus_to_exitcode(status)
        return _BY_SIGNAL - code if code > _BY_SIGNAL else code

    def _waits_for_a_shell(self) -> bool:
        """Whether nobody has seen how the rank ended but a shell, which may yet say it."""
        known = self._status is not None or self._said is not None or self._failed
        if known or self._ended_by_us or self._outermost is None or self._outermost.look()[0]:
            return False
        now = time.monotonic()
        self._shell_until = self._shell_until or now + _SHELL_S
        return now < self._shell_until

    def _end(self, code: int) -> End:
        if code == 0 and self._said is not None:
            code = self._said
        # A rank that is killed says nothing of it; what is in the log, others have written.
        last = [] if code == -signal.SIGKILL else self._tail()
        if code != 0 and oom_kills() > self._oom_kills:
            last.append("relight: oom_kill: the kernel ended a process here for lack of memory")
        unseen = self.log if self.output is None else None  # another agent has taken it
        if code > 0 and not self._ended_by_us and unseen is not None:
            last += full_disk(unseen)
        return {
            **_code_and_signal(code),
            "stopped": self._ended_by_us,
            "tail": last,
            "max_rss_bytes": 0,
        }

    def _tail(self) -> list[str]:
        if self.output is not None:
            return self.output.lines()[-TAIL_LINES:]
        return [] if self.log is None else tail(self.log)


def _code_and_signal(code: int) -> End:
    return {
        "code": code if code >= 0 else None,
        "signal": signal.Signals(-code).name if code < 0 else None,
    }


def _without_its_ranks(how: End | None) -> End | None:
    """The end of a command of which no rank has joined: no success where they are yet to come."""
    if how is None or not how.get("left_ranks"):
        return how
    line = "relight: the command of this node ended with 0 before its ranks: it has not waited"
    return {**how, "code": EXIT_FAILED, "tail": [line]}


def _before_its_ranks(how: End) -> End:
    """The end of a command whose rank ran on; nothing that ranks have written led to a signal."""
    ended = f"by {how['signal']}" if how["signal"] else f"with code {how['code']}"
    words = [str(line) for line in how["tail"]] if isinstance(how["tail"], list) else []
    kept = [line for line in words if how["signal"] is None or line.startswith("relight: oom_kill")]
    line = f"relight: the command of this node ended {ended} while its ranks ran"
    return {**how, "tail": [*kept, line]}
