"""What can go wrong on the rank's side, each with what to do about it."""

from __future__ import annotations

from relight.errors import RelightError, UsageError


class JoinRefused(UsageError):
    """``join`` was called in a place, or with values, that it cannot work with."""


class ProtectRefused(UsageError):
    """An object cannot be protected: its kind, its name or the moment is wrong."""


class LogRefused(UsageError):
    """``log`` was given what is neither text nor a number."""


class StepsRefused(UsageError):
    """``steps`` was called twice, or with a number that is none."""


class RestoreMismatch(RelightError):
    """A sound checkpoint does not fit the objects of this program."""


class OtherRankFailed(RelightError):
    """Another rank can not restore, and this one would wait for it."""


class AgentUnreachable(RelightError):
    """The rank agent that started this program does not answer on its socket."""
