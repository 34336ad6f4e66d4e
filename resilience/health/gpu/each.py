"""One question to every GPU of a node, and one answer for the node."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ...ledger.faults import Fault
from ..check import Candidate, Finding, not_judged
from ..result import Outcome
from .driver import open_driver
from .reading import Driver, DriverFault, Gpu, GpuLost, LibraryMissing, NoDriver, Reading

Answer = tuple[Outcome, str]  # of one GPU; the text says what was seen
Question = Callable[[Candidate, Gpu], Answer | None]  # None: this GPU does not have it
_GRAVITY: Final = (Outcome.PASS, Outcome.UNKNOWN, Outcome.WARN, Outcome.FAIL_JOB, Outcome.FAIL_NODE)


def on_each_gpu(
    question: Question, counted: Mapping[str, Reading] = MappingProxyType({})
) -> Callable[[Candidate], Finding]:
    """The check that asks each GPU; the gravest answer is the node's.

    ``counted`` names the readings whose sums over all GPUs the finding counts.

    Where no driver is, nothing is judged. A GPU that the driver has lost is bad whatever the
    question was.
    """

    @functools.wraps(question)
    def run(candidate: Candidate) -> Finding:
        return ask_driver(lambda driver: _ask_all(question, counted, candidate, driver))

    return run


def ask_driver(
    question: Callable[[Driver], Finding], no_library: Outcome = Outcome.PASS
) -> Finding:
    """The answer of the node's driver, or what its absence or fault means."""
    try:
        return question(open_driver())
    except LibraryMissing as error:
        return Finding(no_library, f"not judged: {error}")
    except NoDriver as error:
        return not_judged(str(error))
    except GpuLost as error:
        return Finding(Outcome.FAIL_NODE, str(error), fault=Fault.HARDWARE)
    except DriverFault as error:
        return Finding(Outcome.FAIL_NODE, str(error), fault=Fault.CONDITION)


def ask(gpu: Gpu, *readings: Reading) -> tuple[int, ...] | None:
    """Several numbers, or None when one of them is not to be had."""
    numbers = [gpu.read(reading) for reading in readings]
    known = tuple(number for number in numbers if number is not None)
    return known if len(known) == len(numbers) else None


def _ask_all(
    question: Question, counted: Mapping[str, Reading], candidate: Candidate, driver: Driver
) -> Finding:
    gpus = driver.gpus()
    answers = [(gpu.name, question(candidate, gpu)) for gpu in gpus]
    said = [(name, *answer) for name, answer in answers if answer is not None]
    if not said:
        return not_judged("no GPU here has it")
    worst = max((outcome for _, outcome, _ in said), key=_GRAVITY.index)
    texts: dict[str, list[str]] = {}
    for name, outcome, text in said:
        if outcome is worst:
            texts.setdefault(text, []).append(name)
    text = "; ".join(f"{', '.join(names)}: {x}" for x, names in texts.items())
    counts = {name: sum(gpu.read(of) or 0 for gpu in gpus) for name, of in counted.items()}
    return Finding(worst, text, counts=counts)
