"""``scripts/quickstart``: exit code 0 only when both runs have ended with the same state."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from . import local
from .telling import NotProven, Say, narrator

INTERRUPTED = 130


def main() -> int:
    options = _options()
    say = narrator()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        _tell(say, options)
    except NotProven as fault:
        say(f"not proven: {fault}")
        return 1
    except KeyboardInterrupt:
        say("interrupted: everything is ended and removed")
        return INTERRUPTED
    return 0


def _interrupt(_number: int, _frame: object) -> None:
    """Once: a second Ctrl-C must not stop the tidying up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/quickstart",
        description="Run the training example twice, once undisturbed and once with faults, and "
        "prove that both end with the same state, bit for bit.",
    )
    parser.add_argument(
        "--slurm", action="store_true", help="on the mini cluster, as root on Debian"
    )
    parser.add_argument("--steps", type=_steps, default=60, help="of each run (%(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the runs, to look at them")
    return parser.parse_args()


def _steps(text: str) -> int:
    steps = int(text)
    if steps < 30:
        raise argparse.ArgumentTypeError("the faults need at least 30 steps to happen in")
    return steps


def _tell(say: Say, options: argparse.Namespace) -> None:
    if options.slurm:
        if os.geteuid() != 0 or not Path("/etc/debian_version").exists():
            raise NotProven("--slurm builds a Slurm on this machine: it needs root on Debian")
        from . import mini

        mini.tell(say, options.steps, keep=options.keep)
        return
    folder = Path(tempfile.mkdtemp(prefix="relight-quickstart-"))
    stay = "they stay" if options.keep else "removed at the end without --keep"
    say(f"its runs are in {folder / 'home' / 'runs'}; {stay}")
    try:
        local.tell(say, folder, options.steps)
    finally:
        if options.keep:
            say(f"kept: RELIGHT_HOME={folder / 'home'} .venv/bin/relight status")
        else:
            shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
