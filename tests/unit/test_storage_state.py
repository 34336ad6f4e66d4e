"""Python state to a JSON tree and arrays, and back, bit for bit. No files.

Its length is the number of kinds of values.
"""

from __future__ import annotations

import enum
import math
import struct
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from storage_roundtrip import exact, through

from relight.storage import torch_state
from relight.storage.errors import StateRefused
from relight.storage.keys import array_key
from relight.storage.state import Encoder

TEXT = st.text(st.characters(exclude_categories=())) | st.just("\ud800\udc00")
FLOATS = st.floats() | st.integers(0, 2**64 - 1).map(
    lambda bits: struct.unpack(">d", bits.to_bytes(8, "big"))[0]
)
SIMPLE = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | FLOATS
    | st.builds(complex, FLOATS, FLOATS)
    | TEXT
    | st.binary()
    | st.binary(min_size=250, max_size=300)
)
KEYS = SIMPLE | st.tuples(SIMPLE, SIMPLE) | st.frozensets(SIMPLE, max_size=3)
STATES = st.recursive(
    SIMPLE,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(KEYS, max_size=4)
        | st.frozensets(KEYS, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(TEXT, inner, max_size=4).map(OrderedDict)
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(STATES)
def test_plain_state_comes_back(value: object) -> None:
    assert exact(through({"value": value})) == exact({"value": value})


@settings(deadline=None)
@given(
    hnp.arrays(
        hnp.scalar_dtypes()
        | hnp.byte_string_dtypes(min_len=1)
        | hnp.unicode_string_dtypes(min_len=1)
        | hnp.array_dtypes(allow_subarrays=True),
        hnp.array_shapes(min_dims=0, min_side=0),
    )
)
def test_numpy_arrays_come_back(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
    assert exact(through({"a": array})) == exact({"a": array})
    if array.size:
        element = array.reshape(-1)[0]
        assert exact(through({"a": element})) == exact({"a": element})


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=">i4").reshape(3, 4).T,
        np.arange(100)[::-7],
        np.broadcast_to(np.float32(3), (4, 5)),
        np.array([1.1, -0.0, np.inf, np.nan], np.longdouble),
        np.array(b"ab\0\0", "S4"),
        np.array("x\0", "U3"),
        np.array(["2026-01-01", "NaT"], "M8[25us]"),
        np.zeros((0, 3), ">f8"),
        np.array(7),
        np.zeros(3, np.dtype({"names": ["a", "b"], "formats": ["u1", ">f8"], "itemsize": 24})),
        np.zeros(2, [("n", [("x", "<f4", (2, 2)), ("y", "S3")]), (("title", "t"), "m8[s]")]),
        np.asfortranarray(np.random.default_rng(0).normal(size=(5, 6))),
        np.array([0x7F800001, 0xFFC00001], "u4").view("f4"),
    ],
    ids=lambda array: str(array.dtype)[:30],
)
def test_odd_arrays_come_back(
    array: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
) -> None:
    assert exact(through({"a": array})) == exact({"a": array})


@pytest.mark.parametrize(
    "scalar",
    [
        np.float32("nan"),
        np.int8(-3),
        np.longdouble("1.1"),
        np.bytes_(b"ab\0\0"),
        np.str_("x\0"),
        np.str_("\ud800"),
        np.datetime64("2026-01-01T00", "h"),
        np.bool_(True),
        np.complex64(1 - 2j),
        np.zeros(1, [("a", "i4"), ("b", "S2")])[0],
    ],
    ids=repr,
)
def test_numpy_scalars_come_back(scalar: np.generic) -> None:
    assert exact(through({"a": scalar})) == exact({"a": scalar})


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("name", torch_state._DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3, 4)])
def test_tensors_of_every_dtype_come_back(name: str, shape: tuple[int, ...]) -> None:
    dtype = getattr(torch, name)
    size = math.prod(shape) * torch.empty(1, dtype=dtype).element_size()
    random = torch.randint(0, 2 if name == "bool" else 256, (size,), dtype=torch.uint8)
    tensor = random.view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)
    assert exact(through({"a": tensor})) == exact({"a": tensor})


def test_views_store_only_their_elements() -> None:
    big = torch.arange(1000.0).reshape(10, 100)
    complex_one = torch.randn(4, 5, dtype=torch.complex64)
    views: dict[str, object] = {
        "column": big[:, 3],
        "transposed": big.T,
        "expanded": torch.tensor([1.5]).expand(7, 3),
        "conjugate": complex_one.conj(),
        "negative": complex_one.conj().imag,
        "parameter": torch.nn.Parameter(big[0, :4]),
        "with_gradient": (torch.ones(3, requires_grad=True) * 2),
    }
    encoder = Encoder(views)
    assert encoder.arrays.forms[encoder.arrays.leaves[0].form].size_bytes == 40
    assert exact(through(views)) == exact(views)
    assert not isinstance(through(views)["parameter"], torch.nn.Parameter)


def test_tied_arrays_are_stored_once_and_tied_again() -> None:
    weight = torch.nn.Parameter(torch.randn(3, 3))
    array = np.arange(6.0)
    state: dict[str, object] = {
        "embed": weight,
        "head": weight.detach(),
        "view": weight[:2],
        "a": array,
        "b": [array, array[:]],
        "empty": [torch.empty(0), torch.empty(0)],
    }
    assert len(Encoder(state).arrays.leaves) == 5
    restored = through(state)
    assert restored["embed"] is restored["head"]
    assert restored["embed"] is not restored["view"]
    shared = restored["b"]
    assert isinstance(shared, list)
    assert restored["a"] is shared[0] is shared[1]


def test_a_state_dict_keeps_its_versions() -> None:
    model = torch.nn.BatchNorm1d(3)
    restored = through({"model": model.state_dict()})["model"]
    assert isinstance(restored, OrderedDict)
    assert vars(restored) == vars(model.state_dict())


def test_keys_of_any_text_come_back() -> None:
    keys = ["", ".", "..", "/", "a/b", "a/./b", "a", "a\0b", "e\u0301", "\xe9", "k" * 70_000, "a.b"]
    state: dict[str, object] = {key: {"b": np.array([n])} for n, key in enumerate(keys)}
    assert exact(through(state)) == exact(state)


def test_keys_of_equal_spelling_stay_apart() -> None:
    state = {"m": {1: "int", "1": "str", b"1": "bytes", (1,): "tuple", None: 0, "None": 1, 0.5: 2}}
    assert exact(through(state)) == exact(state)  # type: ignore[arg-type]


def test_arrays_are_named_by_their_key() -> None:
    encoder = Encoder(
        {"model": {"w": [np.zeros(1), np.ones(1)]}, "o": OrderedDict(x=(np.ones(2),))}
    )
    assert [array_key(encoder.tree, n) for n in range(3)] == ["model/w/0", "model/w/1", "o/x/0"]


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int


@dataclass
class Box:
    x: object


def refused() -> dict[str, object]:
    plain = torch.zeros(3, dtype=torch.uint8)
    looping: list[object] = []
    looping.append(looping)
    deep: list[object] = []
    for _ in range(150):
        deep = [deep]
    return {
        "enum": Colour.RED,
        "int enum": Level.LOW,
        "namedtuple": Point(1),
        "dataclass": Box(1),
        "function": print,
        "defaultdict": defaultdict(lambda: 3),
        "object array": np.array([None]),
        "masked": np.ma.masked_array([1], [True]),
        "recarray": np.rec.array([(1,)], dtype=[("a", "i4")]),
        "metadata": np.zeros(1, np.dtype("i4", metadata={"a": 1})),
        "nested": torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
        "dict subclass": type("Own", (dict,), {})(),
        "meta": torch.zeros(3, device="meta"),
        "sub-byte": plain.view(torch.bits8),
        "subclass": plain.as_subclass(type("Own", (torch.Tensor,), {})),
        "array as key": {np.int64(3): 1},
        "loop": looping,
        "deep": deep,
    }


@pytest.mark.parametrize("name", refused())
def test_what_cannot_come_back_is_refused_by_key(name: str) -> None:
    with pytest.raises(StateRefused) as caught:
        Encoder({"fine": 1, "part": {name: refused()[name]}})
    assert caught.value.key.startswith(f"part/{name}")
    assert "Nothing was written" in str(caught.value)


@pytest.mark.parametrize(
    "thing", [np.random.default_rng(1), torch.Generator(), torch.nn.Linear(1, 1)]
)
def test_what_can_be_protected_by_itself_is_refused_with_that(thing: object) -> None:
    with pytest.raises(StateRefused, match=r"by a name of its own, .* run\.protect\(NAME=\.\.\.\)"):
        Encoder({"mine": {"inside": thing}})


def test_the_deepest_allowed_nesting_comes_back() -> None:
    deep: object = 1
    for _ in range(24):
        deep = {"k": (deep,)}
    assert exact(through({"d": deep})) == exact({"d": deep})
