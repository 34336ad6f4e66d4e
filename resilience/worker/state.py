"""All that a program has protected, as one state to save and to restore."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import ProtectRefused, RestoreMismatch
from .protected import Protected, protect_object
from .rng import capture_rng, restore_rng
from .values import Values, is_plain


class ProgramState:
    """Objects restored in place, plain values, and the random states unless refused."""

    def __init__(self, *, rng: bool) -> None:
        self.values = Values()
        self._objects: dict[str, Protected] = {}
        self._rng = rng

    def add(self, name: str, thing: object) -> None:
        """Protects ``thing`` under a name of its own.

        Raises:
            ProtectRefused: the name is taken, or the object cannot be saved.
        """
        if name in self._objects or name in self.values:
            raise ProtectRefused(f"{name} is protected already: give every object its own name")
        if is_plain(thing):
            self.values.register(name, thing)
        else:
            self._objects[name] = protect_object(name, thing)

    def capture(self) -> dict[str, object]:
        """The state of this moment; it shares memory with the objects."""
        return {
            "objects": {name: one.capture() for name, one in self._objects.items()},
            "values": dict(self.values),
            "rng": capture_rng() if self._rng else None,
        }

    def load(self, state: Mapping[str, object]) -> None:
        """Puts what was captured back into the objects.

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
        self.values.restore(values)
        for name, one in self._objects.items():
            one.restore(objects[name])
        # Last, since restoring an object may draw random numbers.
        if self._rng:
            self._load_rng(rng)

    def _load_rng(self, rng: object) -> None:
        if not isinstance(rng, dict):
            raise RestoreMismatch(
                "the checkpoint was saved with relight.join(rng=False) and holds no random states; "
                "join with rng=False, or use another directory"
            )
        restore_rng(rng)
