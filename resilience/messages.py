"""The words spoken between supervisor, rank agents and ranks: one JSON object per line.

Every message has a ``type``; the rest depends on it. A receiver ignores types it does not know, so
that an agent of one version can outlive a supervisor of another within a run.

Between agent and supervisor each message has a number ``n`` (but beats, and what the next one makes
void); ``got`` is the last that has come. What the other end has not got when a connection breaks is
said again over the next one, and heeded once (``numbered``).

agent → supervisor
    ``hello``      token, task, node, local_task, pid, address of its Unix socket, got: the first
                   line of a connection
    ``port``       port: the answer to ``need_port``
    ``gpus``       held: the answer to ``gpus``, empty when their memory is free
    ``started``    generation, pid
    ``exited``     generation, code or null, signal or null, tail (last lines), max_rss_bytes
    ``signalled``  signal: the agent itself was sent this signal
    ``rank``       generation, body: relayed from the program; got, as in ``beat``, without a number
    ``depot``      port: copies of other nodes' shards are taken there; null, reason: not any more
    ``took``       step, writer, rank: such a copy is in this node's tier, whole
    ``not_sent``   step, writer, rank, reason: what this node has was not copied to another
    ``beat``       got, if that has changed: the agent lives, and has said nothing else for a while

supervisor → agent
    ``welcome``    got: the answer to ``hello``
    ``beat``       got, if that has changed: the supervisor lives
    ``need_port``  nothing
    ``gpus``       limit_s, gpus: wait so long for the memory of GPUs to be free, then say what is
                   held; gpus: how many the run asks for on a node
    ``start``      generation, argv, cwd, env, secret_files, log, warm, watched: start the program;
                   with ``command_of_node`` (local_rank, others: the addresses of the node's other
                   agents) the first agent of the node does so, and each waits for its rank to join;
                   with tell_imports it passes on what the program says of them; with slurm its
                   Slurm variables are those, not of its step: the ranks run in several;
                   with log null it is a batch script, and does not find the variables
                   ``without_env``: it writes where the agent does, and signals reach it
    ``get_ready``  argv, env, modules: to one without a rank: keep a process ready that has imported
                   them, for a start of such a command
    ``signal``     signal: send it to the batch script's process, and to that only; unless_heard:
                   not if the agent was sent it, too, for then the script has it from Slurm
    ``stop``       generation, signal: send it to the program's process group
    ``stacks``     generation: let the programs print their stacks, and write what torch recorded
    ``rank``       body: to be relayed to the program
    ``depot``      tier, share_bytes: to the first agent of a node: take copies there
    ``partner``    host, port: copy there what the program saves in the tier
    ``bring``      host, port, tier, step, writer, rank: copy this shard there, which needs it
    ``drain``      generation, tier, directory, step, writer, rank: copy to the directory what a
                   lost node has saved, and say ``saved`` or ``save_failed``
    ``quit``       keep: end, after the program has ended; if ``keep``, leave what is in the tier

agent → program
    ``copied``     what the program has saved in the tier is in the directory, or will not be

agent → supervisor, as the body of a ``rank``, for a program that is watched
    ``active``     output_s, idle_s: seconds since it has last written, and used a CPU

agent → agent of the same node, over its Unix socket
    ``command_ended``  how: the command that starts the ranks of the node has ended; see ``exited``

program → agent (body of ``rank``; over the Unix socket in ``RELIGHT_AGENT_SOCKET``)
    ``joined``     rank, pid
    ``imported``   modules: for the agent, which keeps a process with them ready; passed on by one
                   that was told so
    ``failed``     nothing: for the agent only, an exception has ended the program
    ``stopped``    code: for the agent only, the program means this, and exits 0 to spare siblings
    ``restored``   step, near, seconds or null: training starts with this step; near: from the tier
                   of its node; seconds: how long it took to read and to put back what was saved
    ``restore_failed``  step, reason, file or null: the checkpoint is damaged, in this shard;
                   lacking: or a library is not there that reads it; the program exits
    ``beat``       step; step_s or null: the mean time of a step since the last beat, and own_s:
                   without what was waiting for others. With moving while a save goes on, or a
                   restore: what, step, done_bytes, total_bytes, and seconds since it began
    ``moving``     moving: as in ``beat``, of a rank that has not begun
    ``held``       ask, step: the answer to ``hold``
    ``entered``    section, limit_s or null: no steps for a while
    ``left``       section
    ``saved``      receipt, stall_s: a shard is durable; how long steps waited for that, behind_s:
                   of this for the save before; staged: bytes that were copied first. With tier,
                   directory, step, writer, rank: it is in the node's tier, and the agent lets it be
                   copied, after which it says ``saved`` or ``save_failed`` in the program's place
    ``tier_failed``  rank, reason: the node's tier is full, fails, or a copy in it was damaged
    ``save_failed``  step, reason, errno or null
    ``signalled``  signal: the program was sent this signal
    ``logged``     step, values
    ``finished``   step: all steps are done and saved

supervisor → program
    ``hold``       ask: report the number of steps done, d; wait before step d + 1 until told more
    ``save_at``    ask, step: save when ``step`` steps are done, then go on
    ``stop_at``    ask, step, reason: save when ``step`` steps are done, then exit 75
    ``release``    ask: forget the hold
    ``record``     nothing, from the agent: write torch's flight record, if there is one
    ``committed``  step
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

# Signals that a batch script may be sent, by Slurm or by its user (scancel --batch).
PASSED_ON: Final = (
    "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTERM", "SIGCONT", "SIGTSTP",
    "SIGURG", "SIGWINCH", "SIGXCPU",
)  # fmt: skip

Message = Mapping[str, object]

MAX_LINE_BYTES: Final = 4 * 1024**2


def encode(message: Message) -> bytes:
    """One line for the wire."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, object]:
    """One line from the wire.

    Raises:
        ValueError: the line is not a JSON object with a ``type``.
    """
    message = json.loads(line.decode())  # json would guess the encoding, for each of thousands
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ValueError(f"not a message: {line[:80]!r}")
    return message


def abstract(address: str) -> str:
    """A Unix address as the kernel wants it: "@name" is in the abstract namespace (unix(7))."""
    return "\0" + address[1:] if address.startswith("@") else address


def number(message: Message, key: str) -> int:
    """The integer under ``key``.

    Raises:
        ValueError: there is none.
    """
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{message.get('type')}: {key} is {value!r}, not an integer")
    return value


def text(message: Message, key: str) -> str:
    """The text under ``key``.

    Raises:
        ValueError: there is none.
    """
    value = message.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{message.get('type')}: {key} is {value!r}, not text")
    return value
