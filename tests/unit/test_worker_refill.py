"""What a program holds on to inside a container is what it goes on with after a restore."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relight.resilience.worker.refill import refill
from relight.storage.boxes import Part


@dataclass
class Pair:
    left: object
    right: object


@dataclass(frozen=True)
class Fixed:
    left: object


class Named(NamedTuple):
    left: object


@pytest.mark.parametrize(
    "around",
    [
        lambda one: {"w": one, 3: "x"},
        lambda one: [1, one],
        lambda one: {"deep": [{"w": one}]},
        lambda one: (1, one),
        lambda one: Named(one),
        lambda one: Pair(one, 1),
        lambda one: Fixed(one),
        lambda one: deque([one], 4),
        lambda one: OrderedDict(w=one),
        lambda one: defaultdict(list, w=one),
        lambda one: [Part(one, (9,), (2,))],
    ],
)
@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
def test_arrays_inside_are_filled(around: Callable[[Any], Any], make: Callable[..., Any]) -> None:
    mine, saved = make(3), make(3) + 7
    present = [around(mine)]
    whole = refill(present, [around(saved)])
    assert whole is present
    mine += 1
    assert (mine == 8).all()
    kept = present[0]
    assert any(mine is one or getattr(one, "array", None) is mine for one in members(kept))


def members(value: Any) -> list[Any]:
    if isinstance(value, Pair | Fixed):
        return list(vars(value).values())
    inside = list(value.values()) if isinstance(value, dict) else list(value)
    return [
        *inside,
        *(one for deep in inside if isinstance(deep, dict | list) for one in members(deep)),
    ]


def test_containers_inside_are_filled_in_the_order_that_was_saved() -> None:
    counts: dict[str, int] = {"a": 1, "gone": 2}
    seen, names = {1, 2}, [1]
    present = {"counts": counts, "seen": seen, "names": names}
    refill(present, {"names": [2, 3], "seen": {4}, "counts": {"z": 0, "a": 5}})
    assert (list(counts.items()), seen, names) == ([("z", 0), ("a", 5)], {4}, [2, 3])
    assert list(present) == ["names", "seen", "counts"]
    assert present["counts"] is counts


def test_a_parameter_keeps_its_gradient_its_layout_and_its_optimizer() -> None:
    weight = torch.zeros(2, 3, requires_grad=True)
    turned = torch.zeros(3, 2).t()
    optimizer = torch.optim.SGD([weight], lr=1.0)
    refill([weight, turned], [torch.full((2, 3), 5.0), torch.ones(2, 3)])
    weight.grad = torch.ones(2, 3)
    optimizer.step()
    assert (weight == 4).all()
    assert (turned.stride(), float(turned.sum())) == ((1, 2), 6.0)


@pytest.mark.parametrize(
    ("mine", "saved"),
    [
        (np.zeros(3), np.ones(4)),
        (np.zeros(3), np.ones(3, np.float32)),
        (torch.zeros(3), np.ones(3)),
        (torch.zeros(1).expand(3), torch.ones(3)),
        (np.broadcast_to(np.zeros(1), 3), np.ones(3)),
        (torch.zeros(3).to_sparse(), torch.ones(3)),
        (None, np.ones(3)),
        (np.zeros(3), [1]),
        (deque([1], 2), deque([2], 3)),
    ],
)
def test_what_cannot_become_what_was_saved_is_replaced(mine: object, saved: object) -> None:
    assert refill([mine], [saved]) == [saved]
    assert refill({"it": mine}, {"it": saved})["it"] is saved  # type: ignore[index]


def test_an_inference_tensor_is_replaced() -> None:
    with torch.inference_mode():
        mine = torch.zeros(3)
    saved = torch.ones(3)
    assert refill([mine], [saved])[0] is saved  # type: ignore[index]


def test_one_array_stays_one_and_two_stay_two() -> None:
    """A later change in place would go to none, or to both, of them otherwise."""
    tied, untied = np.zeros(3), np.zeros(3)
    present = [tied, tied, untied, np.zeros(3)]
    one, two, both = np.ones(3), np.full(3, 2.0), np.full(3, 3.0)
    refill(present, [one, two, both, both])
    assert [found[0] for found in present] == [1, 2, 3, 3]
    assert present[0] is tied
    assert present[1] is not tied
    assert present[2] is present[3] is untied


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), max_size=6))
def test_values_are_right_whatever_overlaps(pieces: list[tuple[int, int]]) -> None:
    for memory in (np.zeros(10), torch.zeros(10)):
        present: list[Any] = [memory[start : start + size] for start, size in pieces]
        saved = [np.full(size, float(at)) for at, (_, size) in enumerate(pieces)]
        if isinstance(memory, torch.Tensor):
            saved = [torch.from_numpy(one).float() for one in saved]  # type: ignore[misc]
        refill(present, list(saved))
        assert [one.tolist() for one in present] == [one.tolist() for one in saved]


@pytest.mark.parametrize(
    ("present", "saved"),
    [
        (lambda old: [old], lambda one: [one, one]),
        (lambda old: {"b": None, "a": old}, lambda one: {"b": {"w": [one]}, "a": one}),
        (lambda old: [deque([1], 2), old], lambda one: [deque([one], 3), one]),
        (lambda old: [(), old], lambda one: [(one,), one]),
        (lambda old: [None, old], lambda one: [Fixed(one), one]),
    ],
)
def test_what_is_new_has_the_arrays_that_were_filled(
    present: Callable[[object], object], saved: Callable[[object], object]
) -> None:
    mine = np.zeros(3)
    whole = refill(present(mine), saved(np.ones(3)))
    mine += 1
    assert repr(whole) == repr(saved(np.full(3, 2.0)))


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_windows_are_replaced(library: str) -> None:
    saved: Any = np.arange(9.0).reshape(3, 3)
    mine: Any = np.lib.stride_tricks.sliding_window_view(np.zeros(5), 3, writeable=True)
    if library == "torch":
        saved, mine = torch.from_numpy(saved), torch.zeros(5, dtype=torch.float64).unfold(0, 3, 1)
    found: Any = refill([mine], [saved])
    assert found[0] is saved
