"""The root of every error that relight raises on purpose."""

from __future__ import annotations


class RelightError(Exception):
    """What happened, with which values, and what to do about it.

    The command line prints the message and nothing else, so it must stand on its own.

    Attributes:
        transient: True when the same call may succeed later without anybody changing anything.
        exit_code: what the command line exits with when this error reaches it.
    """

    transient = False
    exit_code = 1


class UsageError(RelightError):
    """The user asked for something that cannot be done as asked: nothing was sent or written."""

    exit_code = 2
