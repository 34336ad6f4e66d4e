"""Who calls: for people to read, never to decide by."""

from __future__ import annotations

import os
from getpass import getuser


def user_name() -> str:
    """The user's name, or the number where nobody knows a name for it, as in many containers."""
    try:
        return getuser()
    except (KeyError, OSError):
        return str(os.getuid())
