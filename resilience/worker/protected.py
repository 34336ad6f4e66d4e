"""How each kind of protected object gives its state and takes it back, always in place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar, cast, runtime_checkable

from relight.storage.boxes import Part, Replicated
from relight.storage.extents import folds

from .errors import ProtectRefused, RestoreMismatch
from .in_place import written_over
from .sharded import as_spread, give_state

if TYPE_CHECKING:
    import numpy as np
    import torch

    Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

T = TypeVar("T")


@runtime_checkable
class Stateful(Protocol):
    """torch's modules, optimizers and schedulers, and whatever follows their example."""

    def state_dict(self) -> Mapping[str, object]: ...

    def load_state_dict(self, state_dict: Mapping[str, object], /) -> object: ...


@dataclass(frozen=True, slots=True, eq=False)
class PerRank:
    """Given to ``protect``: each rank has a value of its own, also when their number changes.

    Rank r gets what rank r saved; a rank that was not there keeps what the program has given it.
    """

    value: object


@dataclass(frozen=True, slots=True)
class Protected:
    """One object, seen as a state that can be captured and restored.

    ``random``: whether random numbers come of it. ``outline``: what it will have in its state, of
    this rank, while it may still be without. ``into``: the arrays that ``restore`` writes over, as
    they lie in the state.
    """

    capture: Callable[[], object]
    restore: Callable[[object], None]
    random: bool = False
    outline: Callable[[], object] | None = None
    into: Callable[[], object] = lambda: None


def protect_object(name: str, thing: object) -> Protected:
    """The way in and out of ``thing``.

    Raises:
        ProtectRefused: it is of no kind that can be restored in place.
    """
    for kind in (_part, _replicated, _stateful, _container, _numpy, _torch):
        protected = kind(name, thing)
        if protected is not None:
            return protected
    called = f"{type(thing).__module__}.{type(thing).__qualname__}"
    if called.startswith("torch.utils.data."):
        raise ProtectRefused(
            f"{name} is a {called}, which cannot say where it is: leave it out, and let the step "
            "say so, as under Data in docs/python-api.md"
        )
    raise ProtectRefused(
        f"{name} is a {called}, which cannot be saved: "
        "protect objects with state_dict and load_state_dict, arrays, tensors, dicts, lists, sets, "
        "numpy or torch generators, or plain values"
    )


def _part(name: str, thing: object) -> Protected | None:
    if not isinstance(thing, Part):
        return None
    array = protect_object(name, thing.array)
    return Protected(lambda: thing, array.restore, into=lambda: thing)


def _replicated(name: str, thing: object) -> Protected | None:
    if not isinstance(thing, Replicated):
        return None
    inner = protect_object(name, thing.value)
    return replace(inner, capture=lambda: Replicated(inner.capture()))


def _stateful(name: str, wrapped: object) -> Protected | None:
    thing = _unwrapped(wrapped)
    if not isinstance(thing, Stateful):
        return None

    def require_writable() -> None:
        for key, tensor in (written_over(thing) or {}).items():
            _require_writable(f"{name}.{key}", cast("torch.Tensor", tensor))

    def capture() -> object:
        require_writable()  # a module may have another buffer by now
        return thing.state_dict()

    def outline() -> object:
        give_state(thing)
        return thing.state_dict()

    def restore(state: object) -> None:
        saved = _expect(name, state, dict)
        thing.load_state_dict(_expect(name, as_spread(saved, thing.state_dict()), dict))

    require_writable()
    return Protected(capture, restore, outline=outline, into=lambda: written_over(thing))


def _unwrapped(thing: object) -> object:
    """The model in DDP, whose own state has other keys: a single rank has no use for DDP."""
    parallel = sys.modules.get("torch.nn.parallel")
    is_wrapped = parallel and isinstance(thing, parallel.DistributedDataParallel)
    return getattr(thing, "module") if is_wrapped else thing  # noqa: B009  # of no known type


def _container(name: str, thing: object) -> Protected | None:
    if type(thing) not in (dict, list, set):  # exact: a subclass would come back as its base
        return None

    def restore(state: object) -> None:
        from .refill import refill  # brings numpy, which `protect` must not wait for

        refill(thing, _expect(name, state, type(thing)))

    return Protected(lambda: thing, restore)


def _numpy(name: str, thing: object) -> Protected | None:
    if "numpy" not in sys.modules:
        return None
    import numpy as np

    if isinstance(thing, np.random.Generator):
        return Protected(
            lambda: thing.bit_generator.state,
            lambda state: _reseed(name, thing, state),
            random=True,
        )
    if not isinstance(thing, np.ndarray):
        return None
    if not thing.flags.writeable:
        raise ProtectRefused(f"{name} is a read-only array: it could not be restored in place")
    return Protected(
        lambda: thing, lambda state: _copy_array(name, thing, state), into=lambda: thing
    )


def _reseed(name: str, generator: np.random.Generator, state: object) -> None:
    generator.bit_generator.state = _expect(name, state, dict)


def _copy_array(name: str, array: Array, state: object) -> None:
    import numpy as np

    saved = _expect(name, state, np.ndarray)
    _same(name, (array.shape, array.dtype), (saved.shape, saved.dtype))
    np.copyto(array, saved)


def _torch(name: str, thing: object) -> Protected | None:
    if "torch" not in sys.modules:
        return None
    import torch

    if isinstance(thing, torch.Generator):
        return Protected(
            thing.get_state, lambda state: _set_generator(name, thing, state), random=True
        )
    if isinstance(thing, torch.Tensor):
        _require_writable(name, thing)
        return Protected(
            lambda: thing, lambda state: _copy_tensor(name, thing, state), into=lambda: thing
        )
    return None


def _require_writable(name: str, tensor: torch.Tensor) -> None:
    import torch

    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        kind = "an inference tensor"
    elif (
        tensor.layout == torch.strided
        and not tensor.is_nested
        and folds(tensor.shape, tensor.stride())
    ):
        kind = "an expanded tensor, or windows of one"
    else:
        return
    raise ProtectRefused(f"{name} is {kind}: it could not be restored in place; protect a clone")


def _set_generator(name: str, generator: torch.Generator, state: object) -> None:
    import torch

    generator.set_state(_expect(name, state, torch.Tensor))


def _copy_tensor(name: str, tensor: torch.Tensor, state: object) -> None:
    import torch

    saved = _expect(name, state, torch.Tensor)
    _same(name, (tuple(tensor.shape), tensor.dtype), (tuple(saved.shape), saved.dtype))
    with torch.no_grad():
        tensor.copy_(saved)


def _expect(name: str, state: object, kind: type[T]) -> T:
    if not isinstance(state, kind):
        raise RestoreMismatch(
            f"{name} was saved as a {type(state).__name__}, the program protects something that "
            f"takes a {kind.__name__}; protect the same objects or use another directory"
        )
    return state


def _same(name: str, here: tuple[object, object], saved: tuple[object, object]) -> None:
    if here != saved:
        raise RestoreMismatch(
            f"{name} has shape {here[0]} of {here[1]}, the checkpoint has {saved[0]} of "
            f"{saved[1]}; run with the same sizes or use another directory"
        )
