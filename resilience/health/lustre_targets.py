"""Lustre's servers: the node is connected to every storage and metadata target.

The kernel keeps each connection's state in ``import`` (Lustre Operations Manual, "Monitoring Client
Activity"); where it shows that to root only, ``lfs check servers`` asks. FULL is connected, IDLE
let go for want of work. A connection that only this node has lost is the node's fault; one that all
have lost is a server's.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..ledger.faults import Fault
from .check import Candidate, Check, Finding, not_judged
from .lfs import run_lfs
from .mounts import mount_points
from .result import Outcome

TARGETS: Final = "lustre targets"  # the fact that is compared
AGAIN_S = 2.0  # a connection may be being made anew
_NOT_TO: Final = "not connected to "
_ROOTS: Final = ("sys/fs/lustre", "proc/fs/lustre", "sys/kernel/debug/lustre")
_SOUND: Final = frozenset({"FULL", "IDLE", "active"})
_LOST: Final = frozenset(
    {
        *("CLOSED", "NEW", "DISCONN", "CONNECTING", "EVICTED"),
        *("REPLAY", "REPLAY_LOCKS", "REPLAY_WAIT", "RECOVER", "silent"),
    }
)
_STATE: Final = re.compile(r"^[ \t]*state:[ \t]*(\w+)", re.MULTILINE)
_CHECKED: Final = re.compile(
    r"^(?:.*error: check ')?([^\s']+-(?:osc|mdc)-[^\s':]+)(.*)$", re.MULTILINE
)
_CLIENT: Final = re.compile(r"-(?:osc|mdc)-.*")  # the end of a name is the client's own
_REFUSED: Final = re.compile("Permission denied|Operation not permitted")


def check_lustre_targets(candidate: Candidate) -> Finding:
    """Look, and where one is not connected look once more."""
    if "lustre" not in mount_points(candidate.root).values():
        return not_judged("no Lustre is mounted")
    seen = connections(candidate.root)
    if seen is None:
        return not_judged("only root may ask for the state of Lustre's servers")
    if not set(seen.values()) <= _SOUND:
        time.sleep(AGAIN_S)
        seen = connections(candidate.root) or seen
    return judge_connections(seen)


def judge_connections(seen: Mapping[str, str]) -> Finding:
    """What the states mean (pure)."""
    strange = {state for state in seen.values() if state not in _SOUND | _LOST}
    if strange or not seen:
        return Finding(Outcome.UNKNOWN, f"states of Lustre's targets: {sorted(strange) or 'none'}")
    lost = {name: state for name, state in seen.items() if state in _LOST}
    if not lost:
        text = f"all of {len(seen)} are connected"  # how many differs with what is mounted
        facts = {TARGETS: "all connected"}
        return Finding(Outcome.PASS, text, float(len(seen)), "targets", facts=facts)
    text = ", ".join(f"{name} is {state}" for name, state in list(lost.items())[:5])
    facts = {TARGETS: _NOT_TO + ", ".join(lost)}
    return Finding(Outcome.WARN, text, float(len(seen) - len(lost)), "targets", facts=facts)


def lost_more(fact: str, usual: str) -> bool:
    """Whether a node has lost a server that most nodes have not (pure)."""
    return not _lost(fact) <= _lost(usual)


def _lost(fact: str) -> set[str]:
    return set(fact.removeprefix(_NOT_TO).split(", ")) if fact.startswith(_NOT_TO) else set()


def connections(root: Path) -> dict[str, str] | None:
    """Each target with the state of its connection; None where this user may not ask.

    Raises:
        OSError: nothing is there to ask.
    """
    files = [path for of in _ROOTS for path in sorted((root / of).glob("[om][sd]c/*/import"))]
    if files:
        states = {path.parent.name: _STATE.search(path.read_text()) for path in files}
        return {_target(name): state[1] if state else "" for name, state in states.items()}
    done = run_lfs("check", "servers")
    said = done.stdout + done.stderr
    return None if _REFUSED.search(said) else checked_servers(said)


def checked_servers(said: str) -> dict[str, str]:
    """What ``lfs check servers`` says of each target (pure)."""
    return {
        _target(name): "active" if rest.strip() in ("active", "active.") else "silent"
        for name, rest in _CHECKED.findall(said)
    }


def _target(name: str) -> str:
    return _CLIENT.sub("", name)


CHECK = Check(
    name="lustre_targets",
    reads="import of Lustre's osc and mdc below /sys or /proc, else lfs check servers",
    threshold="all connected, at the second look 2 s later; judged where most nodes agree",
    worst=Outcome.WARN,
    fault=Fault.NETWORK,
    typical_s=0.1,
    timeout_s=15.0,
    run=check_lustre_targets,
)
