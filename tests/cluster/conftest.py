"""Mini clusters for whole modules, and the digests of undisturbed runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from stage.run import Run, Spec
from stage.site import Site

UNDISTURBED: dict[str, str] = {}  # it depends on the program alone, not on the site

Program = Callable[..., Spec]

# `RELIGHT_MINICLUSTER_RELEASE=trixie`: the same tests on Slurm of another Debian release.
_RELEASE: Final = os.environ.get("RELIGHT_MINICLUSTER_RELEASE", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/cluster/" in str(item.path):
            item.add_marker(pytest.mark.cluster)


def _running(*options: str) -> Iterator[Site]:
    site = Site((*options, "--release", _RELEASE) if _RELEASE else options)
    with site.running():
        yield site


@pytest.fixture(scope="module")
def generous() -> Iterator[Site]:
    """A site that requeues what it preempts, after a grace; with accounting, and small arrays."""
    yield from _running(
        "--grace", "10", "--kill-wait", "5", "--cred-expire", "5", "--max-array", "3"
    )  # fmt: skip


@pytest.fixture(scope="module")
def strict() -> Iterator[Site]:
    """A site that cancels what it preempts, does not requeue by default, and keeps no accounts."""
    yield from _running(
        "--grace", "10", "--kill-wait", "5", "--cred-expire", "5",
        "--preempt", "cancel", "--no-requeue", "--no-accounting",
    )  # fmt: skip


@pytest.fixture
def marker(site: Site, request: pytest.FixtureRequest) -> Path:
    """The fault happens once: this file says that it has."""
    return site.shared / f"{request.node.name}.happened"


@pytest.fixture
def undisturbed() -> Callable[[Site, Program], str]:
    """The digest that a program prints when nothing happens to it."""

    def digest(site: Site, program: Program) -> str:
        name = program.__name__
        if name not in UNDISTURBED:
            run = Run.submit(site, program(step_time_s=0.0))
            assert run.finish()["state"] == "COMPLETED", run.story()
            UNDISTURBED[name] = run.digest()
        return UNDISTURBED[name]

    return digest
