"""Values beyond plain ones: collections, sparse and quantised tensors, registered types."""

from __future__ import annotations

import enum
import json
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from storage_roundtrip import exact, through

from relight.storage import registered
from relight.storage.errors import StateRefused, TypeNotRegistered, UnfitType
from relight.storage.rebuild import rebuild
from relight.storage.state import Encoder


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int


@dataclass
class Box:
    x: object


@pytest.mark.parametrize(
    "value",
    [
        defaultdict(list, {"a": [1, 2.5]}),
        defaultdict(None, {3: "x"}),
        Counter("abracadabra"),
        deque([1, {"a": 2}], maxlen=7),
        deque(),
        bytearray(b"ab\0"),
        bytearray(1000),
        torch.Size([2, 3]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_collections_come_back(value: object) -> None:
    (restored,) = through({"value": value}).values()
    assert type(restored) is type(value)
    assert restored == value
    for name in ("maxlen", "default_factory"):
        assert getattr(restored, name, None) == getattr(value, name, None)


SPARSE = torch.eye(4, dtype=torch.float64) * torch.tensor([1.5, 0, -0.0, torch.nan])


def sparse_tensors() -> list[torch.Tensor]:
    return [
        SPARSE.to_sparse(),
        torch.sparse_coo_tensor(
            torch.tensor([[1, 1]]), torch.tensor([2.0, 3.0]), (5,), check_invariants=True
        ),
        torch.sparse_coo_tensor(
            torch.tensor([[0, 2]]),
            torch.ones(2, 3, requires_grad=True),
            (3, 3),
            check_invariants=True,
        ),
        SPARSE.to_sparse_csr(),
        SPARSE.to_sparse_csc(),
        SPARSE.to_sparse_bsr((2, 2)),
        SPARSE.to_sparse_bsc((2, 1)),
        torch.empty(0, 3).to_sparse(),
    ]


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("number", range(8))
def test_sparse_tensors_come_back(number: int) -> None:
    tensor = sparse_tensors()[number]
    restored = through({"value": tensor})["value"]
    assert isinstance(restored, torch.Tensor)
    assert (restored.layout, restored.dtype, restored.shape) == (
        tensor.layout, tensor.dtype, tensor.shape,
    )  # fmt: skip
    if tensor.layout is torch.sparse_coo:
        assert restored.is_coalesced() == tensor.is_coalesced()
        assert exact(restored._indices()) == exact(tensor._indices())
        assert exact(restored._values()) == exact(tensor._values())
    else:
        assert exact(restored.values()) == exact(tensor.values())
        assert exact(restored.to_dense()) == exact(tensor.to_dense())


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation")
@pytest.mark.filterwarnings("ignore:.*quantized:DeprecationWarning")
def test_quantised_tensors_keep_scale_and_zero_point() -> None:
    values = torch.randn(3, 4)
    scales, zeros = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64), torch.tensor([0, 1, 2])
    for dtype in (torch.qint8, torch.quint8, torch.qint32):
        for tensor in (
            torch.quantize_per_tensor(values, 0.1, 3, dtype),
            torch.quantize_per_channel(values, scales, zeros, 0, dtype),
        ):
            restored = through({"q": tensor})["q"]
            assert isinstance(restored, torch.Tensor)
            assert restored.dtype is dtype
            assert restored.qscheme() == tensor.qscheme()
            assert torch.equal(restored.int_repr(), tensor.int_repr())
            assert torch.equal(restored.dequantize(), tensor.dequantize())


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation")
@pytest.mark.filterwarnings("ignore:.*quantized:DeprecationWarning")
def test_tied_ones_are_stored_once_and_tied_again() -> None:
    quantised = torch.quantize_per_tensor(torch.randn(3, 4), 0.1, 3, torch.qint8)
    sparse = SPARSE.to_sparse()
    state = {"q": [quantised, quantised], "s": [sparse, sparse], "other": SPARSE.to_sparse()}
    assert len(Encoder(state).arrays.leaves) == 5
    restored: Any = through(state)
    assert restored["q"][0] is restored["q"][1]
    assert restored["s"][0] is restored["s"][1] is not restored["other"]


def test_registered_types_come_back_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered, "_TYPES", {})
    state: dict[str, object] = {"c": Colour.RED, "l": Level.LOW, "p": Point(1), "b": Box([Box(2)])}
    for kind in (Colour, Level, Point):
        registered.register(kind)
    with pytest.raises(StateRefused, match=r"Cannot save b: values of type .*Box .*register"):
        Encoder(state)
    assert registered.register(Box) is Box
    restored = through(state)
    assert restored == state
    assert [type(value) for value in restored.values()] == [Colour, Level, Point, Box]
    assert restored["c"] is Colour.RED
    tree = Encoder(state).tree
    monkeypatch.setattr(registered, "_TYPES", {})
    with pytest.raises(TypeNotRegistered, match=r"test_storage_values:Colour.* is not registered"):
        rebuild(tree, [])


def test_a_registered_type_that_has_changed_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered, "_TYPES", {})
    for kind in (Colour, Point, Box):
        registered.register(kind)
    for state in ({"c": Colour.RED}, {"p": Point(1)}, {"b": Box(2)}):
        text = json.dumps(Encoder(state).tree)
        for known, changed in (('"RED"', '"BLUE"'), ("[1]", "[1, 2]"), ('"x"', '"y"')):
            if known in text:
                with pytest.raises(TypeNotRegistered):
                    rebuild(json.loads(text.replace(known, changed)), [])


def test_only_types_of_known_content_are_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered, "_TYPES", {})
    for kind in (int, type("Own", (), {}), dict):
        with pytest.raises(UnfitType, match="cannot be registered"):
            registered.register(kind)
    registered.register(Box)
    box = Box(1)
    box.more = 2  # type: ignore[attr-defined]
    with pytest.raises(StateRefused, match="no fields"):
        Encoder({"box": box})
