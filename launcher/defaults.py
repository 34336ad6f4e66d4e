"""Where the site and the user say what they want of all runs, as parts of a spec."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .runs import runs_dir

SITE_FILE: Final = Path("/etc/relight.yaml")


def default_files() -> list[Path]:
    """Those of the two files that are there, the site's first."""
    return [place for place in (SITE_FILE, runs_dir().parent / "relight.yaml") if place.is_file()]
