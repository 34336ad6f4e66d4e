"""What the rank agent, or a person, has told this process through its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import JoinRefused
from .interval import AUTO, EverySeconds, EverySteps, Interval, parse_interval
from .world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The variables named RELIGHT_*, with the arguments of ``join`` where they are not set.

    Attributes:
        agent_socket: None when no agent has started this program.
        restore: the manifest to restore from, "" to start from scratch, None when nobody chose.
    """

    agent_socket: str | None
    attempt: str
    generation: int
    directory: Path | None
    interval: str
    restore: str | None


def read_environment(
    environ: Mapping[str, str], directory: str | Path | None, interval: str | None
) -> Environment:
    """The environment wins: whoever starts a program may overrule what is written in it.

    Raises:
        JoinRefused: the agent's variables are not whole.
    """
    socket = environ.get("RELIGHT_AGENT_SOCKET")
    folder = environ.get("RELIGHT_CHECKPOINT_DIR") or directory
    try:
        attempt = environ["RELIGHT_ATTEMPT"] if socket else ""
        generation = int(environ["RELIGHT_GENERATION"]) if socket else 0
    except (KeyError, ValueError) as error:
        raise JoinRefused(
            f"RELIGHT_AGENT_SOCKET is set, but {error} is wrong among RELIGHT_ATTEMPT and "
            "RELIGHT_GENERATION: unset RELIGHT_AGENT_SOCKET to run without relight"
        ) from error
    return Environment(
        agent_socket=socket or None,
        attempt=attempt,
        generation=generation,
        directory=Path(folder).absolute() if folder else None,
        interval=environ.get("RELIGHT_CHECKPOINT_INTERVAL") or interval or AUTO,
        restore=environ.get("RELIGHT_RESTORE"),
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
