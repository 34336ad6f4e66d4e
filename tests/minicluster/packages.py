"""The Debian packages that the cluster is made of."""

from __future__ import annotations

import os
import subprocess

from .system import ClusterError

PACKAGES = (
    *("slurm-wlm", "slurmdbd", "slurm-wlm-mysql-plugin", "munge", "mariadb-server"),
    *("openmpi-bin", "libopenmpi-dev", "libpmix2", "iproute2", "hdf5-tools"),
)


def ensure(install: bool) -> None:
    """Check that all packages are there; install what is missing only when asked to."""
    absent = _missing()
    if not absent:
        return
    line = ["apt-get", "install", "--yes", "--no-install-recommends", *absent]
    if not install:
        raise ClusterError(f"missing Debian packages; install them with\n  {' '.join(line)}", 2)
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    if subprocess.run(line, env=env, timeout=1800, check=False).returncode:
        raise ClusterError("apt-get could not install the missing packages")


def _missing() -> list[str]:
    # It exits with 1 when it does not know one of the names: the output says all.
    done = subprocess.run(
        ["dpkg-query", "-W", "-f=${Package} ${db:Status-Status}\\n", *PACKAGES],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    states = dict(line.split() for line in done.stdout.splitlines())
    return [package for package in PACKAGES if states.get(package) != "installed"]
