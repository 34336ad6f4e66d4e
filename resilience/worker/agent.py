"""The small parent of every rank: ``python -m relight.resilience.worker.agent``.

Slurm starts it as the task. It is up in milliseconds, owns the signals before the program has
imported anything, starts the program in a process group of its own when the supervisor says so,
relays messages, and reports how the program ended. It outlives generations. Standard library only.
One thread speaks and acts; what may hang, or takes long, has one of its own: a look at a log, the
removal of what a program has left in shared memory, that of what killed runs have left in a tier.

Environment: ``RELIGHT_CHANNEL`` (host:port of the supervisor), ``RELIGHT_TOKEN_FILE``,
``RELIGHT_STEP``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Final, Unpack

from relight.storage.peer import peer

from ..messages import PASSED_ON, Message, abstract, decode, encode, number, text
from .activity import Activity
from .beats import SHORT_S, agent_beat_s
from .drains import Drains
from .echoes import Echoes
from .flight_recorder import recorder_variables
from .gpu_memory import GpuMemory, has_gpus
from .hello import first_words
from .joined import JoinedProgram
from .lines import Lines
from .node_command import NodeCommand, without_a_rank
from .partner import Partner
from .program import Program, Start
from .script_environment import script_environment
from .shared_memory import remove_leftovers
from .stacks import Stacks
from .supervisor_line import SupervisorLine
from .warm_start import WarmStart

# A supervisor that says nothing for so long is gone, or the network to it is: the ranks must not go
# on by themselves, since others may have been started in their place.
SILENCE_LIMIT_S: Final = 30.0
PAUSED_S: Final = 5.0
# At its exit a program may wait for ranks that still work: MPI_Finalize is a collective.
EXIT_PATIENCE_S: Final = 2.0
TERM_PATIENCE_S: Final = 12.0  # at the end of a job without a supervisor, for what should it stay
END_PATIENCE_S: Final = 5.0
_PASSING: Final = ("beat", "active", "moving")  # words of a program that its next one makes void
_REPORTED_SIGNALS: Final = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
_SCRIPT_SIGNALS: Final = tuple(signal.Signals[name] for name in PASSED_ON)


class Agent:
    """One task's agent: a loop over the supervisor, the program's sockets, and signals."""

    def __init__(
        self, supervisor: tuple[str, int], hello: Message, echoes: Echoes, *, leader: bool
    ) -> None:
        # In the abstract namespace of unix(7): nothing is left behind, however the agent ends.
        address = self._address = f"@relight-{os.getpid()}-{secrets.token_hex(8)}"
        self._selector = selectors.DefaultSelector()
        self._begun = time.time()
        self._echoes = echoes
        self._programs: list[Lines] = []
        self._program: Program | JoinedProgram | None = None
        self._command: NodeCommand | None = None  # that starts all ranks of this node
        self._warm = WarmStart()
        self._tells_imports = False
        self._activity: Activity | None = None
        self._stacks: Stacks | None = None
        self._give_up_at = float("inf")
        self._beaten = 0.0
        self._beat_s = agent_beat_s(os.environ, leader=leader)
        self._running = True
        self._beside: set[int] = set()  # children that the program has nothing to do with
        self._drains = Drains(self._beside)
        self._gpu_memory = GpuMemory(self._beside)
        self._partner = Partner(text(hello, "token"), self._beside)
        self._keep_tier = False
        self._reported: tuple[signal.Signals, ...] = _REPORTED_SIGNALS
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(abstract(address))
        self._door.listen()
        self._wakeup, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._wakeup_writer = writer
        self._selector.register(self._door, selectors.EVENT_READ, self._on_door)
        self._selector.register(self._wakeup, selectors.EVENT_READ, self._on_wakeup)
        self._supervisor = SupervisorLine(
            supervisor, {**hello, "address": address}, self._selector, self._obey
        )

    def run(self) -> None:
        """Serve until the supervisor says quit or is gone; the program does not outlive this."""
        while self._running and not self._supervisor.ended:
            turned = time.monotonic()
            for key, _ in self._selector.select(timeout=SHORT_S / 2):
                key.data()
            if time.monotonic() - turned > PAUSED_S:
                # The job was suspended: the silence was our own.
                self._supervisor.heard = time.monotonic()
            if self._command is not None:
                self._command.look()
            self._check_program()
            if (drained := self._drains.look()) is not None:
                self._tell_word(*drained)
            if self._drains.done():
                self._relay({"type": "copied"})
            if (held := self._gpu_memory.look()) is not None:
                self._tell({"type": "gpus", "held": held})
            for word in self._partner.look():
                self._tell(word)
            self._keep_time()
        self._warm.end()
        if self._program is not None:
            self._program.end(signal.SIGKILL)
            self._program.wait()
        self._end_command()
        remove_leftovers(self._begun, limit_s=END_PATIENCE_S)  # what nobody has had the time for
        self._partner.end()
        self._drains.end(keep=self._keep_tier)
        self._gpu_memory.end()

    # The supervisor

    def _tell(self, message: Message) -> None:
        self._beaten = time.monotonic()  # whatever is said, the agent lives
        self._supervisor.tell(message)

    def _obey(self, order: Message) -> None:
        match order["type"]:
            case "need_port":
                self._tell({"type": "port", "port": free_port()})
            case "gpus":
                limit_s, gpus = number(order, "limit_s"), number(order, "gpus")
                if not (has_gpus() and self._gpu_memory.ask(limit_s, gpus)):
                    self._tell({"type": "gpus", "held": ""})
            case "start":
                self._start(order)
            case "get_ready" if self._program is None:
                self._get_ready(order)
            case "stop":
                self._stop(order)
            case "stacks":
                self._show_stacks()
            case "signal":
                number_ = signal.Signals[text(order, "signal")]
                has_it = order.get("unless_heard") is True and self._echoes.take(number_)
                if self._program is not None and not has_it:
                    self._program.signal(number_)
            case "rank":
                self._relay(order["body"])
            case "drain":
                self._drains.add(number(order, "generation"), order)
            case "depot":
                self._drains.lodge(Path(text(order, "tier")))
                self._partner.open(text(order, "tier"), number(order, "share_bytes"))
            case "partner":
                self._partner.meet(text(order, "host"), number(order, "port"))
            case "bring":
                self._partner.bring(order)
            case "bring_no_more":
                self._partner.bring_no_more()
            case "quit":
                self._running = False
                self._keep_tier = order.get("keep") is True

    def _get_ready(self, order: Message) -> None:
        env, argv = order["env"], order["argv"]
        if not (isinstance(env, dict) and isinstance(argv, list)):
            raise ValueError("get_ready: argv or env has the wrong shape")
        self._warm.get_ready(argv, order["modules"], {**os.environ, **env})

    def _start(self, order: Message) -> None:
        env, argv, secret_files = order["env"], order["argv"], order["secret_files"]
        if not (
            isinstance(env, dict) and isinstance(argv, list) and isinstance(secret_files, dict)
        ):
            raise ValueError("start: argv, env or secret_files has the wrong shape")
        if self._program is not None:  # held for lost, and yet alive
            self._program.end(signal.SIGKILL)
            self._program.wait()
        self._end_command()
        if "RELIGHT_CHECKPOINT_TIER" in env:
            self._drains.obey(env)
            self._drains.lodge(Path(str(env["RELIGHT_CHECKPOINT_TIER"])))
        is_script = order["log"] is None
        if is_script:
            base = script_environment(order["without_env"])
            self._reported = _SCRIPT_SIGNALS
        else:
            base = {**os.environ, "RELIGHT_AGENT_SOCKET": self._address}
            if "command_of_node" in order:
                base = without_a_rank(base)
            base |= recorder_variables({**base, **env}, Path(text(order, "log")).parent)
            slurm = order.get("slurm")
            if isinstance(slurm, dict) and "SLURM_PROCID" in base:
                base |= slurm
        self._program = self._begin(
            order.get("command_of_node"),
            generation=number(order, "generation"),
            argv=[str(word) for word in argv],
            env={**base, **env},
            secret_files=secret_files,
            cwd=text(order, "cwd"),
            log=None if is_script else Path(text(order, "log")),
        )
        self._give_up_at = float("inf")
        self._warm.follow(argv if order["warm"] is True else None)
        self._tells_imports = order.get("tell_imports") is True
        started = {"generation": self._program.generation, "pid": self._program.pid}
        self._tell({"type": "started", **started})
        self._activity = None
        below = isinstance(self._program, JoinedProgram)
        if order.get("watched") is True and (below or self._program.pid is not None):
            log = Path(text(order, "log"))
            self._activity = Activity(self._program.pid, log, self._program.output)

    def _begin(self, of_node: object, **what: Unpack[Start]) -> Program | JoinedProgram:
        """The program, which is this agent's child; or the wait for the one that will join."""
        if not isinstance(of_node, dict):
            return Program(**what, standby=self._warm.take(), beside=self._beside)
        local_rank, others = of_node["local_rank"], of_node["others"]
        if local_rank == 0:
            self._command = NodeCommand(**what, beside=self._beside)
            self._command.others = others
        return JoinedProgram(
            what["generation"], what["env"], what["log"], self._command, local_rank, len(others) + 1
        )

    def _stop(self, order: Message) -> None:
        number_ = signal.Signals[text(order, "signal")]
        if self._program is not None and self._program.generation == order["generation"]:
            self._program.end(number_)
        elif self._command is not None and self._command.generation == order["generation"]:
            self._command.end_soon()  # its rank here has ended before

    def _end_command(self) -> None:
        """Nothing of the node's command stays."""
        if self._command is not None:
            self._command.end_all()
        self._command = None

    # The program

    def _on_door(self) -> None:
        connection, _ = self._door.accept()
        pid, uid = peer(connection)
        if uid != os.getuid():
            connection.close()
            return
        connection.settimeout(5)
        lines = Lines(connection, pid)
        self._programs.append(lines)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._on_program(lines))

    def _on_program(self, lines: Lines) -> None:
        new = lines.read()
        if new is None:
            self._selector.unregister(lines.connection)
            self._programs.remove(lines)
            lines.connection.close()
            if isinstance(self._program, JoinedProgram):
                self._program.parted(lines.peer_pid)
            return
        generation = self._program.generation if self._program is not None else 0
        for line in new:
            body = decode(line)
            below = self._program if isinstance(self._program, JoinedProgram) else None
            if below is not None and not below.heard(body, lines.peer_pid):
                continue
            if body["type"] == "imported":
                self._warm.learn(body["modules"])
                if not self._tells_imports:
                    continue
            if body["type"] == "failed":
                self._give_up_at = time.monotonic() + EXIT_PATIENCE_S
                continue
            if body["type"] == "saved" and "tier" in body:
                self._drains.add(generation, body)
                self._partner.offer(body)
            if body["type"] == "joined" and self._program is not None:
                self._program.joined.append(lines.peer_pid)
            self._tell_word(generation, body)

    def _tell_word(self, generation: int, body: Message) -> None:
        word = {"type": "rank", "generation": generation, "body": body}
        if body["type"] in _PASSING:
            self._beaten = time.monotonic()
            self._supervisor.mention(word)
        else:
            self._tell(word)

    def _show_stacks(self) -> None:
        """Before they are ended, programs say where they are, and with whom torch has spoken."""
        if self._program is None or self._program.pid is None:
            return
        self._relay({"type": "record"})
        self._stacks = Stacks(self._program.pid, self._program.joined, self._program.log)

    def _relay(self, body: object) -> None:
        if not isinstance(body, dict):
            return
        if body["type"] == "committed":
            self._drains.overtaken(number(body, "step"))
            self._partner.overtaken(number(body, "step"))
        if isinstance(self._program, JoinedProgram):
            self._program.told(body)
        for lines in self._programs:
            # A program that is gone is noticed by its end, not here.
            with contextlib.suppress(OSError):
                lines.connection.sendall(encode(body))

    def _check_program(self) -> None:
        if self._program is None:
            return
        end = self._program.poll()
        if end is None:
            return
        while self._programs:  # what the program said last comes before its end
            self._on_program(self._programs[0])
        if isinstance(self._program, JoinedProgram):
            end = self._program.poll()
            if end is None:
                return
        generation = self._program.generation
        self._program, self._stacks = None, None
        self._tell({"type": "exited", "generation": generation, **end})

    # Signals and time

    def _on_wakeup(self) -> None:
        for number_ in self._wakeup.recv(256):
            if number_ == signal.SIGTERM and self._supervisor.silence_s() > TERM_PATIENCE_S:
                self._running = False
            elif number_ in self._reported:
                self._tell({"type": "signalled", "signal": signal.Signals(number_).name})

    def _keep_time(self) -> None:
        now = time.monotonic()
        if now - self._beaten >= self._beat_s:
            self._beaten = now
            self._supervisor.beat()
        self._supervisor.keep()
        if self._program is not None and (pid := self._warm.look(self._program.env)):
            self._program.spare(pid)
        if self._program is not None and self._activity is not None and self._activity.due():
            generation, seen = self._program.generation, self._activity.look()
            self._tell_word(generation, seen)
        if self._stacks is not None and self._stacks.look():
            self._stacks = None
        if now > self._give_up_at and self._program is not None:
            self._give_up_at = float("inf")
            self._program.give_up()
        if self._supervisor.silence_s() > SILENCE_LIMIT_S:
            self._running = False


def free_port() -> int:
    """A TCP port that was free on this host a moment ago."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def _listen_to_signals(echoes: Echoes) -> None:
    """Signals only wake the loop; without a handler they would end the agent."""
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number_ in _SCRIPT_SIGNALS:
        signal.signal(number_, echoes.note)


def main() -> int:
    echoes = Echoes()
    _listen_to_signals(echoes)
    os.environ.pop("SLURM_HOSTFILE", None)  # of the agents' step: an srun of a rank would obey it
    hello = first_words()
    host, _, port = os.environ["RELIGHT_CHANNEL"].rpartition(":")
    try:
        agent = Agent((host, int(port)), hello, echoes, leader=hello["local_task"] == 0)
    except OSError as error:
        sys.stderr.write(
            f"relight agent {hello['task']} on {hello['node']}: no way to the supervisor: {error}\n"
        )
        return 1
    agent.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
