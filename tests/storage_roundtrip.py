"""A state through JSON text and bytes and back, without files, and an exact comparison."""

from __future__ import annotations

import itertools
import json
import struct

import numpy as np
import torch

from relight.storage import content
from relight.storage.leaf import Form, Leaf
from relight.storage.rebuild import rebuild
from relight.storage.state import Encoder


def through(state: dict[str, object]) -> dict[str, object]:
    """Encodes, passes the tree through JSON text and the arrays through bytes, and rebuilds."""
    encoder = Encoder(state)
    tree = json.loads(json.dumps(encoder.tree))
    forms, leaves = encoder.arrays.forms, encoder.arrays.leaves
    rebuilt = rebuild(tree, [from_leaf(forms[leaf.form], leaf) for leaf in leaves])
    assert isinstance(rebuilt, dict)
    return rebuilt


def from_leaf(form: Form, leaf: Leaf) -> object:
    whole = form.size_bytes
    if not whole:
        return content.rebuild(form, np.empty(0, np.uint8))
    gathered = np.frombuffer(content.gather(form, [leaf, leaf]), np.uint8)
    halves = [bytes(content.piece(form, leaf.value, *cut)) for cut in pairs(0, whole // 2, whole)]
    if not isinstance(leaf.value, np.longdouble):  # whose padding is different in every copy
        assert b"".join(halves) * 2 == gathered.tobytes()
    one, other = content.separate(form, gathered.copy())
    rebuilt = content.rebuild(form, gathered[:whole].copy())
    assert exact(one) == exact(other) == exact(rebuilt)
    return one


def pairs(*places: int) -> list[tuple[int, int]]:
    return [cut for cut in itertools.pairwise(places) if cut[0] < cut[1]]


def exact(value: object) -> object:
    """Something that compares equal only for values of the same types and bits."""
    if isinstance(value, np.ndarray):
        return ("array", value.dtype, value.shape, value.tobytes())
    if isinstance(value, np.str_ | np.bytes_):
        return (type(value), value.__reduce__()[1])
    if isinstance(value, np.longdouble):
        return (type(value), value.tobytes()[:10])  # the other six bytes are padding
    if isinstance(value, np.generic):
        return (type(value), value.dtype, value.tobytes())
    if isinstance(value, torch.Tensor):
        plain = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return ("tensor", value.dtype, value.shape, plain.view(torch.uint8).tolist())
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, complex):
        return (complex, struct.pack(">dd", value.real, value.imag))
    if isinstance(value, dict):
        return (type(value), [(exact(key), exact(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return (type(value), [exact(item) for item in value])
    if isinstance(value, set | frozenset):
        return (type(value), sorted(repr(exact(item)) for item in value))
    return (type(value), value)
