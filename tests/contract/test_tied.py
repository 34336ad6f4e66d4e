"""What is tied to a process ends with it, however that ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PARENT = """
import asyncio, os, pathlib, sys
from relight.resilience.supervise import processes
from relight.resilience.supervise.cluster import Command

async def main():
    await processes.start_tied(Command(("sh", "-c", sys.argv[1]), os.environ), None)
    await asyncio.sleep(60)

asyncio.run(main())
"""
# Told too early it would end without a word, so it says when it is ready.
TOLD = "trap 'echo told; kill $!; exit' TERM; sleep 60 & echo begun; wait"


def test_who_is_killed_leaves_no_step_behind(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = f"exec > {pipe}; {TOLD}"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, command])
    try:
        with pipe.open() as words:
            assert words.readline() == "begun\n"
            parent.kill()
            assert words.readline() == "told\n"
    finally:
        parent.kill()
        parent.wait()
