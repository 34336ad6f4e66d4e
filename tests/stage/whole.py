"""What every test of a whole run begins and ends with."""

from __future__ import annotations

from collections.abc import Iterator

from .run import Run
from .site import Site, eventually


def whole(site: Site) -> Iterator[Site]:
    """A test begins with all nodes idle and nothing held against them, and leaves no job behind."""
    site.user("sh", "-c", "rm -rf ~/.relight/ledger")
    eventually(site.idle, 180, lambda: site.user("sinfo", "-N", "-l"))
    yield site
    site.user("scancel", "-u", "mini")
    eventually(lambda: not site.jobs(), 180, lambda: site.user("squeue"))


def assert_survived(run: Run, digest: str, limit_s: float = 300.0) -> None:
    """The run has completed with the state of an undisturbed one."""
    assert run.finish(limit_s)["state"] == "COMPLETED", run.story()
    assert run.digest() == digest, run.story()
