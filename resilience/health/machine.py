"""The machine: what must be like on the other nodes; it is compared when all have answered."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .check import Candidate, Check, Finding, not_judged
from .meminfo import read_meminfo
from .result import Outcome

_FILES: Final = {
    "processors": "sys/devices/system/cpu/online",
    "cpu governor": "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "highest processor clock in kHz": "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq",
    "clock source": "sys/devices/system/clocksource/clocksource0/current_clocksource",
}
_GIB: Final = 1024**3


def read_machine(candidate: Candidate) -> Finding:
    facts = {name: (candidate.root / path).read_text().strip() for name, path in _there(candidate)}
    if (candidate.root / "proc/meminfo").exists():
        memory_gib = read_meminfo(candidate.root)["MemTotal"] / _GIB
        # Two digits: a module that is missing shows, what the firmware keeps for itself does not.
        facts["memory"] = f"about {float(f'{memory_gib:.2g}'):g} GiB"
    if _wants_peer_memory(candidate.root):
        facts["nvidia_peermem"] = _loaded(candidate.root / "sys/module/nvidia_peermem")
    if not facts:
        return not_judged("the kernel says nothing of it")
    return Finding(Outcome.PASS, ", ".join(f"{k} {v}" for k, v in facts.items()), facts=facts)


def _there(candidate: Candidate) -> list[tuple[str, str]]:
    return [(name, path) for name, path in _FILES.items() if (candidate.root / path).exists()]


def _wants_peer_memory(root: Path) -> bool:
    return (root / "sys/class/infiniband").exists() and (root / "proc/driver/nvidia").exists()


def _loaded(module: Path) -> str:
    return "loaded" if module.exists() else "not loaded"


CHECK = Check(
    name="machine",
    reads="processors online, their governor and highest clock, the clock source, MemTotal, "
    "nvidia_peermem",
    threshold="the same on all nodes; judged where most nodes agree",
    worst=Outcome.WARN,
    typical_s=0.01,
    timeout_s=5.0,
    run=read_machine,
)
