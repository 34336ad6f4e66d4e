"""When a fault makes a node one to avoid. Pure.

Evidence that names the node is enough at once. Weaker evidence marks it: a second time on the same
node speaks against the node, unless the same has been seen elsewhere, for then it is the program.
A mark never costs the allocation: without a node to take its place the marked one stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from .causes import FaultCause
from .classify import Fault
from .policy import Policy
from .rules import Blame
from .state import State

PREFLIGHT: Final = "preflight"  # as the cause of an exclusion
_ALIKE: Final = 3  # allocations in a row without one fit node
_CHECK: Final = re.compile(r"(?:^|; )([\w.-]+): ")  # as the verdict writes what checks found
_HARDWARE: Final = (FaultCause.GPU_HARDWARE, FaultCause.GPU_LOST)


def judge(state: State, policy: Policy) -> tuple[State, Mapping[str, str]]:
    """The state with the mark that the fault leaves, and the node it condemns, with evidence."""
    fault = state.fault
    if fault is None or fault.node is None or fault.cascade or fault.blame is Blame.NONE:
        return state, {}
    if fault.cause is FaultCause.FILESYSTEM and state.witnesses - {fault.node}:
        return state, {}  # what several nodes see is the file system's own fault
    if fault.blame is Blame.NODE:
        return state, {fault.node: fault.evidence}
    mark = (fault.node, fault.cause)
    if mark not in state.marks:
        return replace(state, marks=state.marks | {mark}), {}
    if _seen_elsewhere(state, fault) or len(state.healthy) <= policy.nodes:
        return state, {}
    return state, {fault.node: f"the second time there and nowhere else: {fault.evidence}"}


def untested(state: State) -> str | None:
    """The node on which hardware may have failed, unless it is avoided anyway."""
    fault = state.fault
    if fault is None or fault.cause not in _HARDWARE or fault.node in state.excluded_nodes:
        return None
    return fault.node


def not_the_nodes(state: State) -> str | None:
    """Why other nodes would not help: all that were looked at, several times, fail one check.

    Within one allocation the preflight finds that itself; a run of one node meets them one by one.
    """
    if state.healthy or state.node_failures < _ALIKE:
        return None
    accused = [exclusion for exclusion in state.excluded if exclusion.cause == PREFLIGHT]
    checks = [set(_CHECK.findall(e.evidence)) for e in accused]
    common = set.intersection(*checks) if checks else set()
    if not common:
        return None
    names = ", ".join(exclusion.node for exclusion in accused)
    told = f"{names} fail alike ({', '.join(sorted(common))}), so it is not the nodes"
    return f"{told}; last: {accused[-1].evidence}"


def _seen_elsewhere(state: State, fault: Fault) -> bool:
    return any(node != fault.node and cause is fault.cause for node, cause in state.marks)
