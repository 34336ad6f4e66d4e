"""Slurm of another Debian or Ubuntu, beside the machine's own: its programs, what they link to.

The release is unpacked into a folder by debootstrap. Only Slurm's own programs are taken from
there, each with its loader and libraries written into it, so that jobs find the machine's files.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .config import Layout
from .system import ClusterError, call

_TOOLS = ("debootstrap", "patchelf")
_OLD_PACKAGES = "slurm-wlm,slurmdbd"
_PACKAGES = f"{_OLD_PACKAGES},slurm-wlm-mysql-plugin"
_UBUNTU_KEYS = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")


@dataclass(frozen=True)
class Release:
    """What debootstrap is asked for."""

    packages: str = _PACKAGES
    ubuntu: bool = False

    def command(self, name: str, root: Path) -> list[str]:
        common = ["debootstrap", "--variant=minbase", f"--include={self.packages}"]
        if not self.ubuntu:
            return [*common, name, str(root)]
        options = ("--components=main,universe", f"--keyring={_UBUNTU_KEYS}")
        # Debian's debootstrap has no script for a release that is newer than itself.
        where = ("http://archive.ubuntu.com/ubuntu", "/usr/share/debootstrap/scripts/gutsy")
        return [*common, *options, name, str(root), *where]


RELEASES = {
    "bullseye": Release(_OLD_PACKAGES),  # Slurm 20.11
    "noble": Release(ubuntu=True),  # 23.11
    "trixie": Release(),  # 24.11
    "resolute": Release(ubuntu=True),  # 25.11
    "sid": Release(),  # the newest: 26.05 in November 2026
}
_COMMANDS = (
    *("sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol"),
    *("sinfo", "squeue", "srun", "sstat"),
)
_DAEMONS = ("slurmctld", "slurmd", "slurmstepd", "slurmdbd")


def ensure(release: str, layout: Layout, *, install: bool) -> None:
    """Check that a release is unpacked; do it, in about a minute, only when asked to."""
    if layout.release(release).is_dir():
        return
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if not install:
        line = f"apt-get install --yes {' '.join(absent)} && " if absent else ""
        raise ClusterError(
            f"Slurm of {release} is not unpacked; outside of `apart`, run\n"
            f"  {line}scripts/minicluster up --release {release} --install",
            2,
        )
    if absent and subprocess.run(["apt-get", "install", "--yes", *absent], check=False).returncode:
        raise ClusterError(f"apt-get could not install {' '.join(absent)}")
    if RELEASES[release].ubuntu and not _UBUNTU_KEYS.is_file():
        raise ClusterError(f"{release} needs {_UBUNTU_KEYS}: Debian has it as ubuntu-keyring")
    _unpack(release, layout)


def _unpack(release: str, layout: Layout) -> None:
    layout.cache.mkdir(parents=True, exist_ok=True)
    fresh = layout.cache / f"{release}-fresh"
    if fresh.exists():
        shutil.rmtree(fresh)
    root = fresh / "root"
    call(RELEASES[release].command(release, root), timeout=1800)
    (root / "var/cache/apt/archives").rename(fresh / "archives")
    shutil.rmtree(fresh / "archives")
    libraries = layout.release(release) / _libraries(root).relative_to(fresh)
    for folder, names in (("bin", _COMMANDS), ("sbin", _DAEMONS)):
        (fresh / folder).mkdir()
        for name in names:
            _take(root, f"usr/{folder}/{name}", fresh / folder / name, libraries)
    for plugin in _libraries(root).glob("slurm-wlm/mpi_pmix_v*.so"):
        take_own_pmix(plugin)
    fresh.rename(layout.release(release))


def _take(root: Path, source: str, target: Path, libraries: Path) -> None:
    """Copy a program; Debian's alternatives are links that mean a path inside the release."""
    found = root / source
    while found.is_symlink():
        link = found.readlink()
        found = root / link.relative_to("/") if link.is_absolute() else found.parent / link
    shutil.copy(found, target)
    interpreter = call(["patchelf", "--print-interpreter", str(target)]).strip()
    call(
        [
            *("patchelf", "--set-interpreter", str(libraries / Path(interpreter).name)),
            *("--force-rpath", "--set-rpath", f"{libraries / 'slurm-wlm'}:{libraries}"),
            str(target),
        ]
    )


def take_own_pmix(plugin: Path) -> None:
    """Let the plugin open the release's libpmix, not the machine's: it names that by its full path,
    and with another version of it `srun --mpi=pmix` never starts a task."""
    named = f"/usr/lib/{plugin.parents[1].name}/pmix2/lib\0".encode()
    own = b"$ORIGIN/../pmix2/lib".ljust(len(named), b"\0")
    plugin.write_bytes(plugin.read_bytes().replace(named, own))


def _libraries(root: Path) -> Path:
    return next(root.glob("usr/lib/*/slurm-wlm")).parent


def plugins(release: str, layout: Layout) -> Path:
    """Where the release keeps Slurm's plugins."""
    return next(layout.release(release).glob("root/usr/lib/*/slurm-wlm"))
