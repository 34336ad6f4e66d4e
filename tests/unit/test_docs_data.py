"""The loader of docs/python-api.md goes on in the data where the step says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
from torch.utils.data import DataLoader

DOCUMENT = Path(__file__).parents[2] / "docs" / "python-api.md"
SAMPLES, STEPS = 2 * 32 * 3 + 5, 10  # three steps in an epoch, and some samples left over


@dataclass
class Life:
    """What the program asks of a run, from a step on."""

    rank: int
    first: int
    world_size: int = 2

    def steps(self, _: int) -> Iterator[int]:
        yield from range(self.first, STEPS)


def batches(rank: int, first: int = 0) -> list[list[int]]:
    """The samples that the documented program sees, step by step."""
    section = DOCUMENT.read_text().split("## Data\n")[1].split("\n## ")[0]
    (program,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    seen: list[list[int]] = []
    data = [(number, number) for number in range(SAMPLES)]
    names = {"torch": torch, "DataLoader": DataLoader, "data": data, "run": Life(rank, first)}
    exec(program + "    seen.append(inputs.tolist())\n", {**names, "seen": seen})
    return seen


def test_a_program_that_begins_at_a_step_sees_what_it_would_have_seen() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    whole = [batches(rank) for rank in (0, 1)]
    assert torch.equal(torch.get_rng_state(), before), "dropout goes on as if nothing had been read"
    for first in (1, 3, 5):
        assert [batches(rank, first) for rank in (0, 1)] == [one[first:] for one in whole]
    epochs = [sorted(chain(*whole[0][at : at + 3], *whole[1][at : at + 3])) for at in (0, 3)]
    assert all(len(set(epoch)) == len(epoch) == 2 * 32 * 3 for epoch in epochs)
    assert whole[0][0] != whole[0][3], "each epoch has an order of its own"
