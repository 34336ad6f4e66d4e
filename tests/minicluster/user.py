"""The ordinary user who submits jobs: made by `up`, removed by `down`."""

from __future__ import annotations

import os
import pwd
import signal
from pathlib import Path
from typing import NoReturn

from .config import USER, USER_COMMENT, Layout, Settings, environment, user_environment
from .daemons import on_controller
from .system import ClusterError, call, processes_of

# Keeps the caller's folder, as sudo does, unless the user may not enter it.
_ENTER = 'cd "$1" 2>/dev/null || cd; shift; exec "$@"'


def create(layout: Layout) -> int:
    """Make the user, with a home and a shared folder that all hosts see; give the user's id."""
    call(
        [
            *("useradd", "--uid", str(_uid()), "--user-group"),
            *("--comment", USER_COMMENT, "--shell", "/bin/bash"),
            *("--home-dir", str(layout.home), "--create-home", USER),
        ]
    )
    entry = pwd.getpwnam(USER)
    layout.shared.mkdir()
    os.chown(layout.shared, entry.pw_uid, entry.pw_gid)
    return entry.pw_uid


def require_name_free() -> None:
    """Refuse to take over a user that was not made here."""
    entry = _entry()
    if entry is not None and entry.pw_gecos != USER_COMMENT:
        raise ClusterError(f"a user {USER!r} exists already and is not ours; remove it first", 2)


def remove() -> None:
    """End what the user runs outside the hosts, and remove the user; nothing if there is none."""
    entry = _entry()
    if entry is None or entry.pw_gecos != USER_COMMENT:
        return
    for process in processes_of(entry.pw_uid):
        process.end([signal.SIGKILL])
    call(["userdel", USER])


def run(argv: list[str], settings: Settings, layout: Layout) -> NoReturn:
    """Become a command of the ordinary user on the controller's host."""
    env = environment(layout) | user_environment(settings, layout)
    env |= {"HOME": str(layout.home), "USER": USER, "LOGNAME": USER, "SHELL": "/bin/bash"}
    env |= {name: os.environ[name] for name in ("LANG", "TERM") if name in os.environ}
    as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"]
    command = on_controller([*as_user, "sh", "-c", _ENTER, "sh", str(Path.cwd()), *argv])
    os.execvpe(command[0], command, env)


def _uid() -> int:
    """An id of this network namespace alone: `remove` must not end another cluster's jobs."""
    return 20_000 + Path("/proc/self/ns/net").stat().st_ino % 30_000


def _entry() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        return None
