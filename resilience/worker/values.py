"""``run.values``: plain values that are saved with the state, read and written by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping

from .errors import ProtectRefused, RestoreMismatch

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def is_plain(value: object) -> bool:
    """True for immutable values: they cannot be restored in place, so they live in ``values``."""
    if type(value) in (tuple, frozenset):
        assert isinstance(value, (tuple, frozenset))
        return all(is_plain(member) for member in value)
    return type(value) in _PLAIN


class Values(MutableMapping[str, object]):
    """Only names that were given to ``protect`` exist: a misspelt one would not be restored."""

    def __init__(self) -> None:
        self._values: dict[str, object] = {}

    def register(self, name: str, value: object) -> None:
        self._values[name] = value

    def restore(self, saved: Mapping[str, object]) -> None:
        """Takes over all saved values.

        Raises:
            RestoreMismatch: their names are not those that the program has protected.
        """
        if saved.keys() != self._values.keys():
            raise RestoreMismatch(
                f"the checkpoint holds the values {sorted(saved)}, the program protects "
                f"{sorted(self._values)}; protect the same names or use another directory"
            )
        self._values = dict(saved)

    def __getitem__(self, name: str) -> object:
        return self._values[name]

    def __setitem__(self, name: str, value: object) -> None:
        if name not in self._values:
            raise ProtectRefused(
                f"run.values has no {name!r}: give its first value with run.protect({name}=...)"
            )
        if not is_plain(value):
            raise ProtectRefused(
                f"run.values[{name!r}] cannot be a {type(value).__name__}: plain values only "
                "(use .item() of an array or tensor, a tuple in place of a list)"
            )
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        raise ProtectRefused(f"run.values[{name!r}] cannot be deleted; assign None instead")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
