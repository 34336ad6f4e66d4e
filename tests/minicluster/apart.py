"""Run a command in namespaces of its own, so that several clusters can be up on one machine.

Inside, the network, the processes, /etc and the cluster's folders are private: the same host
names, ports and user serve each cluster. What the command leaves running ends with it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from .config import Layout

LOCKS = Path("/run/lock")
NETWORKS = Path("/run/netns")

# Mounts what is private, then becomes the process namespace's first process (see `first`).
_ENTER = """
set -e
private=$1 root=$2 cache=$3 networks=$4 locks=$5
shift 5
over() {
    mkdir -p "$private/$1/upper" "$private/$1/work"
    mount -t overlay overlay \
        -o "lowerdir=$2,upperdir=$private/$1/upper,workdir=$private/$1/work" "$2"
}
mkdir "$private/root" "$private/locks"
over etc /etc
over cache "$cache"
over lib "$(dirname "$root")" # so that the folder to mount on is private, too, and goes
mkdir -p "$root"
mount --bind "$private/root" "$root"
mount --bind "$private/locks" "$locks"
mount -t tmpfs tmpfs "$networks"
ip link set lo up
exec "$@"
"""


def run(argv: list[str], layout: Layout) -> int:
    """Run a command apart from this machine's cluster; give its exit status."""
    for folder in (layout.cache, NETWORKS):
        folder.mkdir(parents=True, exist_ok=True)
    # On a disk: the cluster's shared folder will be in it, and tmpfs has no direct writes.
    private = Path(tempfile.mkdtemp(prefix="relight-minicluster-", dir="/var/tmp"))
    private.chmod(0o755)
    paths = [str(path) for path in (private, layout.root, layout.cache, NETWORKS, LOCKS)]
    spaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    enter = [
        *("setpriv", "--pdeathsig", "KILL", "unshare", *spaces, "--propagation", "private"),
        *("bash", "-c", _ENTER, "apart", *paths),
    ]
    first = [sys.executable, "-B", str(Path(sys.argv[0]).resolve()), "first", "--"]
    signal.signal(signal.SIGTERM, _leave)
    try:
        child = subprocess.Popen([*enter, *first, *argv])
        try:
            return _as_in_a_shell(child.wait())
        finally:
            _end(child)
    finally:
        shutil.rmtree(private)


def first(argv: list[str]) -> int:
    """Be the first process of a process namespace: run a command, and reap what others leave."""
    child = subprocess.Popen(argv)
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            return _as_in_a_shell(os.waitstatus_to_exitcode(status))


def _end(unshare: subprocess.Popen[bytes]) -> None:
    """End all that still runs inside.

    unshare itself ignores signals, and returns when the last process of the namespace is gone.
    """
    if unshare.poll() is None:
        children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
        for pid in children.read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    unshare.wait()


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _as_in_a_shell(code: int) -> int:
    return code if code >= 0 else 128 - code
