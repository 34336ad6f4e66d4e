"""Objects of each kind give their state and take it back in place."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch

from relight.resilience.worker.errors import ProtectRefused, RestoreMismatch
from relight.resilience.worker.rng import restore_rng
from relight.resilience.worker.state import ProgramState


def copied(value: object) -> object:
    """What storage would give back: new objects of equal value."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return {key: copied(member) for key, member in value.items()}
    if isinstance(value, list | set):
        return type(value)(copied(member) for member in value)
    return value


def saved(**named: object) -> dict[str, object]:
    state = ProgramState(rng=True)
    for name, thing in named.items():
        state.add(name, thing)
    return {key: copied(value) for key, value in state.capture().items()}


def load_into(state: Mapping[str, object], **named: object) -> ProgramState:
    target = ProgramState(rng=True)
    for name, thing in named.items():
        target.add(name, thing)
    target.load(state)
    return target


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": [1, 2], 3: "x"}, {"b": 1}),
        ([1, 2, 3], [4]),
        ({1, 2}, {3}),
        (np.arange(4.0), np.zeros(4)),
        (torch.arange(4), torch.zeros(4, dtype=torch.int64)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_restored_in_place(before: object, after: object) -> None:
    expected = repr(before)
    load_into(saved(thing=before), thing=after)
    assert repr(after) == expected


def test_modules_and_optimizers_are_restored() -> None:
    model, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    other_optimizer = torch.optim.AdamW(other.parameters(), lr=0.5)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    load_into(saved(m=model, o=optimizer), m=other, o=other_optimizer)
    assert torch.equal(model.weight, other.weight)
    assert other_optimizer.param_groups[0]["lr"] == 0.1
    assert repr(other_optimizer.state_dict()) == repr(optimizer.state_dict())


def test_values_are_read_and_written_by_name() -> None:
    state = ProgramState(rng=True)
    state.add("best", 1e9)
    state.values["best"] = 0.5
    target = load_into(state.capture(), best=1e9)
    assert target.values["best"] == 0.5


@pytest.mark.parametrize("value", [[1], np.float64(1.0), object()])
def test_only_plain_values_are_taken(value: object) -> None:
    state = ProgramState(rng=True)
    state.add("best", None)
    with pytest.raises(ProtectRefused, match="best"):
        state.values["best"] = value
    with pytest.raises(ProtectRefused, match="protect"):
        state.values["bset"] = 1


@pytest.mark.parametrize(
    "draw",
    [random.random, lambda: float(np.random.rand()), lambda: float(torch.rand(1))],
    ids=["python", "numpy", "torch"],
)
def test_random_numbers_continue(draw: Callable[[], float]) -> None:
    state = saved()
    expected = draw()
    draw()
    load_into(state)
    assert draw() == expected


def test_generators_continue() -> None:
    one, other = np.random.default_rng(1), torch.Generator().manual_seed(1)
    state = saved(one=one, other=other)
    expected = one.random(), float(torch.rand(1, generator=other))
    load_into(state, one=one, other=other)
    assert (one.random(), float(torch.rand(1, generator=other))) == expected


def test_random_states_can_be_refused_but_not_forgotten() -> None:
    without = ProgramState(rng=False).capture()
    ProgramState(rng=False).load(without)
    with pytest.raises(RestoreMismatch, match="rng=False"):
        ProgramState(rng=True).load(without)


@pytest.mark.parametrize("thing", [object(), lambda: None, (1, [2]), np.float32(1)])
def test_what_cannot_be_saved_is_refused_by_name(thing: object) -> None:
    with pytest.raises(ProtectRefused, match="odd"):
        ProgramState(rng=True).add("odd", thing)


@pytest.mark.parametrize("folded", [False, True])
def test_a_tensor_that_nothing_can_be_copied_into_is_refused(folded: bool) -> None:
    """It would be saved all along, and no start could restore it."""
    with torch.inference_mode(not folded):
        tensor = torch.zeros(1).expand(3) if folded else torch.zeros(3)
    with pytest.raises(ProtectRefused, match=r"odd is an (expanded|inference) tensor"):
        ProgramState(rng=True).add("odd", tensor)


@pytest.mark.parametrize("later", [False, True])
def test_a_buffer_that_nothing_can_be_copied_into_is_refused_with_its_module(later: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model[0].register_buffer("mask", torch.zeros(4) if later else torch.zeros(1).expand(4))
    model[0].register_buffer("scratch", torch.zeros(1).expand(4), persistent=False)
    state = ProgramState(rng=False)
    refused = pytest.raises(ProtectRefused, match=r"model\.0\.mask is an expanded tensor")
    if not later:
        with refused:
            state.add("model", model)
        return
    state.add("model", model)
    state.capture()
    model[0].mask = torch.zeros(1).expand(4)
    with refused:
        state.capture()


def test_a_loader_is_refused_with_what_to_do() -> None:
    with pytest.raises(ProtectRefused, match=r"data is a .*BatchSampler, .* let the step say so"):
        ProgramState(rng=True).add(
            "data", torch.utils.data.BatchSampler([1, 2], 1, drop_last=False)
        )


def test_a_read_only_array_is_refused() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    with pytest.raises(ProtectRefused, match="read-only"):
        ProgramState(rng=True).add("field", array)


def test_a_name_is_given_once() -> None:
    state = ProgramState(rng=True)
    state.add("x", [])
    with pytest.raises(ProtectRefused, match="already"):
        state.add("x", 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (np.zeros(3), np.zeros(4)),
        (np.zeros(3), np.zeros(3, dtype=np.float32)),
        (torch.zeros(3), torch.zeros(4)),
        (torch.zeros(3), np.zeros(3)),
        ([1], {}),
        (1, []),
    ],
    ids=["shape", "dtype", "tensor shape", "library", "kind", "value"],
)
def test_another_object_does_not_fit(before: object, after: object) -> None:
    with pytest.raises(RestoreMismatch, match="field"):
        load_into(saved(field=before), field=after)


@pytest.mark.parametrize("saved_by", ["another layer", "another optimizer"])
def test_what_a_model_has_against_a_checkpoint_is_said_with_what_to_do(saved_by: str) -> None:
    def program(sizes: list[int], *, frozen: bool) -> dict[str, object]:
        layers = [torch.nn.Linear(size, size) for size in sizes]
        trained = [one for layer in layers for one in layer.parameters()][2 if frozen else 0 :]
        return {"model": torch.nn.ModuleList(layers), "optimizer": torch.optim.AdamW(trained)}

    state = saved(**program([3, 3, 3], frozen=saved_by == "another optimizer"))
    sizes = [4, 4, 4] if saved_by == "another layer" else [3, 3, 3]
    with pytest.raises(RestoreMismatch, match="use another directory") as found:
        load_into(state, **program(sizes, frozen=False))
    assert saved_by.split()[1].replace("layer", "size mismatch for 0.weight") in str(found.value)
    assert "\n" not in str(found.value), "its first words must be among the last lines of a rank"


def test_a_gpu_that_fails_while_it_loads_is_no_mismatch() -> None:
    class Full(torch.nn.Linear):
        def load_state_dict(self, *_: object, **__: object) -> None:
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        load_into(saved(model=torch.nn.Linear(2, 2)), model=Full(2, 2))


def test_other_names_do_not_fit() -> None:
    with pytest.raises(RestoreMismatch, match="field"):
        load_into(saved(field=[]), plate=[])


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("CUDA error: an illegal memory access was encountered", RuntimeError),
        ("RNG state is wrong size", RestoreMismatch),
    ],
)
def test_a_gpu_that_fails_is_no_checkpoint_that_does_not_fit(
    fault: str, told: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(state: torch.Tensor, device: int) -> None:
        raise RuntimeError(fault)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_rng_state", fail)
    with pytest.raises(told, match=fault) as raised:
        restore_rng({"cuda": [torch.zeros(16, dtype=torch.uint8)]})
    assert raised.type is told
