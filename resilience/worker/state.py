"""All that a program has protected, as one state to save and to restore."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from relight.storage.boxes import Replicated
from relight.storage.needs import Needs, pieces_of

from .errors import ProtectRefused, RestoreMismatch
from .protected import PerRank, Protected, protect_object
from .rng import RNG_NAMES, capture_rng, restore_rng
from .values import Values, is_plain

_SHOWN: Final = 3  # lines: a model lists each of its layers


class ProgramState:
    """Objects restored in place, plain values, and the random states unless refused."""

    def __init__(self, *, rng: bool) -> None:
        self.values = Values()
        self._objects: dict[str, Protected] = {}
        self._per_rank: set[tuple[str, str]] = set()
        self._any_rank: set[tuple[str, str]] = set()
        self._rng = rng

    def add(self, name: str, thing: object) -> None:
        """Protects ``thing`` under a name of its own.

        Raises:
            ProtectRefused: the name is taken, or the object cannot be saved.
        """
        if name in self._objects or name in self.values:
            raise ProtectRefused(f"{name} is protected already: give every object its own name")
        value = thing.value if isinstance(thing, PerRank | Replicated) else thing
        if is_plain(value):
            key = ("values", name)
            self.values.register(name, value)
        else:
            key = ("objects", name)
            self._objects[name] = protect_object(
                name, value if isinstance(thing, PerRank) else thing
            )
        if isinstance(thing, PerRank):
            self._per_rank.add(key)
        if isinstance(thing, Replicated):
            self._any_rank.add(key)

    def capture(self) -> dict[str, object]:
        """The state of this moment; it shares memory with the objects."""
        return {
            "objects": {name: one.capture() for name, one in self._objects.items()},
            "values": dict(self.values),
            "rng": capture_rng() if self._rng else None,
        }

    def needs(self) -> Needs:
        """What this rank is to hold of a checkpoint, whatever number of ranks saved it."""
        outlines = {
            name: one.outline() if one.outline else one.capture()
            for name, one in self._objects.items()
        }
        seeds = {("rng", name) for name in RNG_NAMES}
        seeds |= {("objects", name) for name, one in self._objects.items() if one.random}
        return Needs(
            pieces=pieces_of({"objects": outlines}),
            any_rank=frozenset(self._any_rank),
            per_rank=frozenset(seeds),
            own=frozenset(self._per_rank),
            # What each rank has for itself may have to stay: the checkpoint before a damaged one
            # may be of fewer ranks, and this one has saved none then.
            into={
                ("objects", name): arrays
                for name, one in self._objects.items()
                if ("objects", name) not in self._per_rank and (arrays := one.into()) is not None
            },
        )

    def load(self, state: Mapping[str, object], missing: Collection[tuple[str, ...]] = ()) -> None:
        """Puts what was captured back into the objects; what is missing stays as it is.

        Raises:
            RestoreMismatch: the state is not that of these objects.
        """
        objects, values, rng = state.get("objects"), state.get("values"), state.get("rng")
        if not isinstance(objects, dict) or not isinstance(values, dict):
            raise RestoreMismatch(
                f"the checkpoint holds {sorted(state)}: it was not saved by relight.join(); use "
                "another directory"
            )
        if objects.keys() != self._objects.keys():
            raise RestoreMismatch(
                f"the checkpoint holds {sorted(objects)}, the program protects "
                f"{sorted(self._objects)}; protect the same names or use another directory"
            )
        kept = {name: self.values[name] for name in values if ("values", name) in missing}
        self.values.restore(values | kept)
        for name, one in self._objects.items():
            if ("objects", name) not in missing:
                _restore(name, one, objects[name])
        # Last, since restoring an object may draw random numbers.
        if self._rng:
            self._load_rng(rng, missing)

    def _load_rng(self, rng: object, missing: Collection[tuple[str, ...]]) -> None:
        if not isinstance(rng, dict):
            raise RestoreMismatch(
                "the checkpoint was saved with relight.join(rng=False) and holds no random states; "
                "join with rng=False, or use another directory"
            )
        restore_rng({name: one for name, one in rng.items() if ("rng", name) not in missing})


def _restore(name: str, one: Protected, state: object) -> None:
    """Raises RestoreMismatch for what the object itself has against the state."""
    try:
        one.restore(state)
    except (RuntimeError, ValueError, KeyError) as error:
        # torch's modules raise RuntimeError, as does a GPU that fails or is full.
        if isinstance(error, RuntimeError) and "loading state_dict" not in str(error):
            raise
        first, *more = str(error).strip().splitlines() or [type(error).__name__]
        shown = "; ".join([first, *(line.strip() for line in more[:_SHOWN])])
        rest = f" (and {len(more) - _SHOWN} lines more)" if len(more) > _SHOWN else ""
        raise RestoreMismatch(
            f"{name} does not take what was saved: {shown}{rest}. Nor will it the next time: run "
            "the program that saved it, or use another directory to begin anew"
        ) from error
