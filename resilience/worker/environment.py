"""What the rank agent, or a person, has told this process through its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .errors import JoinRefused
from .interval import AUTO, EverySeconds, EverySteps, Interval, parse_interval
from .world import World

_STAGING_BYTES: Final = 8 * 1024**3
SOCKETS: Final = "RELIGHT_AGENT_SOCKETS"  # "RANK=ADDRESS,...", of the ranks of a node
# What one rank is, only who starts it can say.
OF_A_RANK: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_NUMBERS: Final = {
    "RELIGHT_WORLD_SIZE": "how many ranks the launcher has started",
    "RELIGHT_CHECKPOINT_KEEP": "how many of the newest checkpoints stay, 1 or more",
    "RELIGHT_CHECKPOINT_STAGING": "a number of bytes, or 0 to save while the steps wait",
    "RELIGHT_CHECKPOINT_OVERLAP": "1 to copy while the next step computes, or 0",
    "RELIGHT_CHECKPOINT_TIER_SHARE": "how many bytes a rank may have in RELIGHT_CHECKPOINT_TIER",
    "RELIGHT_CHECKPOINT_REUSE": "for how many saves an array that does not change is left alone",
}


@dataclass(frozen=True, slots=True)
class TierPlace:
    """The folder of this run in the tier of its node, and how many bytes a rank may have there."""

    folder: Path
    share_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The variables named RELIGHT_*, with the arguments of ``join`` where they are not set.

    Attributes:
        agent_socket: None when no agent has started this program.
        below_starter: the agent has started something that started this rank, such as torchrun.
        staging_bytes: how large a state may be to be saved while steps go on; 0: none is.
        reuse: for how many saves in a row an array that does not change is left where it is.
        overlap: whether what only optimizers change is copied while the next step computes.
        keep_last: how many checkpoints stay where no supervisor deletes them.
        tier: the folder of this run on its node, where shards are saved first.
        started_ranks: how many ranks the launcher has started; None without one.
        restore: the manifest to restore from, "" to start from scratch, None when nobody chose.
    """

    agent_socket: str | None
    below_starter: bool
    attempt: str
    generation: int
    directory: Path | None
    interval: str
    staging_bytes: int
    reuse: int
    overlap: bool
    keep_last: int
    started_ranks: int | None
    restore: str | None
    tier: TierPlace | None


def read_environment(
    environ: Mapping[str, str], directory: str | Path | None, interval: str | None
) -> Environment:
    """The environment wins: whoever starts a program may overrule what is written in it.

    Raises:
        JoinRefused: the agent's variables are not whole, or one that has to be a number is none.
    """
    socket, listed = environ.get("RELIGHT_AGENT_SOCKET"), environ.get(SOCKETS)
    below_starter = bool(listed) and not socket
    if listed and not socket:
        socket = _socket_among(listed, environ.get("RANK"))
    folder = environ.get("RELIGHT_CHECKPOINT_DIR") or directory
    try:
        attempt = environ["RELIGHT_ATTEMPT"] if socket else ""
        generation = int(environ["RELIGHT_GENERATION"]) if socket else 0
    except (KeyError, ValueError) as error:
        raise JoinRefused(
            f"RELIGHT_AGENT_SOCKET or {SOCKETS} is set, but {error} is wrong among RELIGHT_ATTEMPT "
            "and RELIGHT_GENERATION: unset the socket to run without relight"
        ) from error
    return Environment(
        agent_socket=socket or None,
        below_starter=below_starter,
        attempt=attempt,
        generation=generation,
        directory=Path(folder).absolute() if folder else None,
        interval=environ.get("RELIGHT_CHECKPOINT_INTERVAL") or interval or AUTO,
        staging_bytes=_number(environ, "RELIGHT_CHECKPOINT_STAGING", _STAGING_BYTES),
        overlap=_number(environ, "RELIGHT_CHECKPOINT_OVERLAP", 0) > 0,
        reuse=_number(environ, "RELIGHT_CHECKPOINT_REUSE", 0),
        keep_last=_number(environ, "RELIGHT_CHECKPOINT_KEEP", 3, at_least=1),
        started_ranks=_number(environ, "RELIGHT_WORLD_SIZE", 0) or None if socket else None,
        restore=environ.get("RELIGHT_RESTORE"),
        tier=_tier(environ),
    )


def _socket_among(listed: str, rank: str | None) -> str:
    """That of this rank's agent, where one command has started all ranks of the node."""
    sockets = dict(each.partition("=")[::2] for each in listed.split(","))
    if rank in sockets:
        return sockets[rank]
    here = f"relight waits for {_ranks(sockets)} on this node"
    if rank is None:
        raise JoinRefused(
            f"RANK is not set, and {here}: command_per is node, so the command has to start "
            "them, as torchrun does; leave command_per out for a command that is one rank itself"
        )
    raise JoinRefused(
        f"this is rank {rank}, and {here}: let the command number the ranks of this node from "
        "NODE_RANK, MASTER_ADDR and MASTER_PORT, as torchrun does that is told neither nodes nor "
        "rendezvous"
    )


def _ranks(sockets: Mapping[str, str]) -> str:
    return f"rank {', '.join(sockets)}" if len(sockets) == 1 else f"ranks {', '.join(sockets)}"


def _tier(environ: Mapping[str, str]) -> TierPlace | None:
    folder = environ.get("RELIGHT_CHECKPOINT_TIER")
    if not folder:
        return None
    return TierPlace(Path(folder), _number(environ, "RELIGHT_CHECKPOINT_TIER_SHARE", 0))


def _number(environ: Mapping[str, str], name: str, otherwise: int, *, at_least: int = 0) -> int:
    text = environ.get(name, str(otherwise))
    if not text.isdecimal() or int(text) < at_least:
        raise JoinRefused(f"{name} is {text!r}: write {_NUMBERS[name]}")
    return int(text)


def require_own_ranks(environment: Environment, world: World) -> None:
    """Each rank has an agent. Raises JoinRefused when something in between has started others."""
    if environment.started_ranks in (None, world.size):
        return
    found = f"this is one of {world.size} ranks, and relight"
    if environment.below_starter:
        raise JoinRefused(
            f"{found} waits for {environment.started_ranks}: the command has to start "
            "resources.tasks_per_node ranks on each of resources.nodes"
        )
    raise JoinRefused(
        f"{found} has started {environment.started_ranks}: something in between has started ranks "
        "of its own, such as torchrun in a script. Write `command_per: node`, with its ranks of a "
        "node as resources.tasks_per_node, or let `command` start one rank, as in `python train.py`"
    )


def own_interval(environment: Environment, world: World) -> Interval | None:
    """What a rank decides by itself; the supervisor decides on everything that needs a clock.

    Raises:
        JoinRefused: the interval is misspelt, or needs a supervisor that is not there.
    """
    interval = parse_interval(environment.interval)
    if environment.directory is None:
        return None
    if environment.agent_socket is not None:
        return interval if isinstance(interval, EverySteps) else None
    if world.size > 1 and isinstance(interval, EverySeconds):
        raise JoinRefused(
            f"checkpoint interval {environment.interval!r} needs one clock for {world.size} ranks, "
            'which only relight\'s launcher has: write "20 steps", or start with `relight run`'
        )
    return interval
