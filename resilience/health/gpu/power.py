"""Power limit: nobody has left the GPU capped."""

from __future__ import annotations

from ...ledger.faults import Fault
from ..check import Candidate, Check, Limit
from ..result import Outcome
from .each import Answer, ask, on_each_gpu
from .reading import DRIVERS, Gpu, Reading

POWER = Limit("gpu_power", "below_default_w", 10, "W under the board's default")


def judge(candidate: Candidate, gpu: Gpu) -> Answer | None:
    power = ask(gpu, Reading.POWER_LIMIT, Reading.POWER_DEFAULT)
    if power is None:
        return None
    limit_w, default_w = power
    most_w = candidate.limit(POWER)
    text = f"power limit {limit_w} W of {default_w} W, at most {most_w:g} W below"
    if (clock := gpu.read(Reading.CLOCK_MAX)) is not None:
        text += f", clock up to {clock} MHz"
    low = default_w - limit_w > most_w
    return (Outcome.WARN if low else Outcome.PASS), text


CHECK = Check(
    name="gpu_power",
    reads="NVML: power limit, default power limit, highest SM clock",
    threshold="the limit is within 10 W of the board's default",
    worst=Outcome.WARN,
    fault=Fault.SLOW,
    limits=(POWER,),
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=20.0,
    run=on_each_gpu(judge),
)
