"""The pretend hosts: each has its own name, processes, network, /tmp and /dev/shm."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from . import network
from .config import Layout, environment
from .state import State
from .system import ClusterError, Process, spawn, start_time, wait_until

# The first process of a host; its arguments are the host's name, its /tmp, and the shared paths.
# It stays and reaps orphans: slurmd in its place would leave them as zombies.
_INIT = """
set -e
hostname "$1"
private="$2"
shift 2
mount -t proc proc /proc
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
for path; do
    case "$path" in
        /tmp/*) mkdir -p "$private/${path#/tmp/}"
                mount --rbind "$path" "$private/${path#/tmp/}" ;;
    esac
done
mount --rbind "$private" /tmp
slurmd -D -b -d "$(command -v slurmstepd)" &
wait $!
"""


def boot(state: State, node: str) -> None:
    """Start a host with an empty /tmp."""
    layout = state.layout
    private = _empty_tmp(layout, node)
    network.unplug(node)
    network.plug_in(node)
    # Not `ip netns exec`: it mounts a fresh /sys, and slurmd (22.05) wants /sys/fs/cgroup.
    process = spawn(
        [
            *("nsenter", f"--net={network.namespace_path(node)}"),
            *("unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child"),
            *("bash", "-c", _INIT, "init", node, str(private), *state.settings.share),
        ],
        layout.logs / f"console-{node}.log",
        env=environment(layout),
    )
    state.record(node, process)


def kill(state: State, node: str) -> None:
    """Cut a host's power: all its processes end at once, and the network hears no goodbye."""
    process = state.processes[node]
    space = _pid_space(process)
    network.set_cable(node, up=False)
    process.end([signal.SIGKILL])
    if space and not wait_until(lambda: not _inhabited(space), 60):
        raise ClusterError(f"processes on {node} do not end")
    state.forget(node)
    # With the namespace go its sockets, so that a later start can't send their last packets.
    network.unplug(node)


def _pid_space(process: Process) -> str | None:
    """The name of a host's process namespace, if the host runs."""
    if not process.alive():
        return None
    try:
        return str(Path(f"/proc/{process.pid}/ns/pid_for_children").readlink())
    except OSError:  # no child yet, or gone since
        return None


def _inhabited(space: str) -> bool:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            here = str((folder / "ns/pid").readlink()) == space
        except OSError:  # gone since
            continue
        # A dead first process may wait long for its reaping; all others are gone by then.
        if here and start_time(int(folder.name)) is not None:
            return True
    return False


def _empty_tmp(layout: Layout, node: str) -> Path:
    folder = layout.hosts / node
    if folder.exists():
        shutil.rmtree(folder)
    private = folder / "tmp"
    private.mkdir(parents=True)
    private.chmod(0o1777)
    return private
