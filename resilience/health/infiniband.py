"""InfiniBand and RoCE ports: those with a link are active, and have not gone down often.

How many are active and how fast is a fact that the nodes of a run have in common: a port that is
down here and up elsewhere shows there. Files: Documentation/ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from relight.counted import counted

from ..ledger.faults import Fault
from .check import Candidate, Check, Finding, Limit, not_judged
from .result import Outcome
from .trends import LINK_DOWNS

PORTS: Final = "infiniband ports"  # the fact that is compared
FLAP_COUNTERS = ("link_downed", "link_error_recovery")
FLAPS = Limit("infiniband", "link_downed", 5, "times since the counters were reset")


def check_infiniband(candidate: Candidate) -> Finding:
    ports = sorted((candidate.root / "sys/class/infiniband").glob("*/ports/*"))
    if not ports:
        return not_judged("no InfiniBand here")
    bad, odd, active, downs = [], [], [], 0
    most = candidate.limit(FLAPS)
    for port in ports:
        name = f"{port.parent.parent.name}/{port.name}"
        state, link, rate = (_text(port / file) for file in ("state", "phys_state", "rate"))
        if "ACTIVE" in state:
            active.append(rate)
        elif "LinkUp" in link:
            bad.append(f"{name} has a link and is {state}")
        flaps = sum(_count(port / "counters" / counter) for counter in FLAP_COUNTERS)
        downs += flaps
        if flaps >= most:
            odd.append(f"{name} went down {counted(flaps, 'time')}, a warning from {most:g} on")
    firmware = sorted({_text(port.parents[1] / "fw_ver") for port in ports})
    facts = {
        PORTS: f"{len(active)} active, {', '.join(sorted(set(active)))}",
        "infiniband firmware": ", ".join(firmware),
    }
    if slots := {_slot(port.parents[1] / "device") for port in ports} - {""}:
        facts["infiniband slots"] = ", ".join(sorted(slots))
    outcome = Outcome.FAIL_NODE if bad else Outcome.WARN if odd else Outcome.PASS
    text = "; ".join([*bad, *odd]) or facts[PORTS]
    counts = {LINK_DOWNS: downs}
    return Finding(outcome, text, float(len(active)), "ports", facts=facts, counts=counts)


def fewer_or_slower(fact: str, usual: str) -> bool:
    """Whether ports are fewer than usual, or as many and slower (pure)."""
    count, rates = _ports(fact)
    usual_count, usual_rates = _ports(usual)
    return count < usual_count or (count == usual_count and rates < usual_rates)


def _ports(fact: str) -> tuple[int, list[float]]:
    """How many are active, and at which rates, the slowest first."""
    count = re.match(r"(\d+) active", fact)
    rates = sorted(float(rate) for rate in re.findall(r"(\d+(?:\.\d+)?) Gb/sec", fact))
    return int(count[1]) if count else 0, rates


def _slot(device: Path) -> str:
    """How its adapter sits on the bus; one in a worse slot than on other nodes is slow."""
    width, speed = _text(device / "current_link_width"), _text(device / "current_link_speed")
    return f"{width} PCIe lanes of {speed}" if width else ""


def _count(path: Path) -> int:
    """0 where the port does not count, and says so in words."""
    text = _text(path)
    return int(text) if text.isdecimal() else 0


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


CHECK = Check(
    name="infiniband",
    reads="/sys/class/infiniband/*: fw_ver, the PCIe slot, ports/*/{state,phys_state,rate}, and in "
    "counters link_downed and link_error_recovery",
    threshold="every port with a link is ACTIVE; warns when one went down 5 times",
    worst=Outcome.FAIL_NODE,
    fault=Fault.NETWORK,
    limits=(FLAPS,),
    typical_s=0.05,
    needs=("sys/class/infiniband",),
    timeout_s=10.0,
    run=check_infiniband,
    repeated=True,
)
