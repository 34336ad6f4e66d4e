"""``relight run --debug``: a debugger in the user's own terminal."""

from __future__ import annotations

import os
import pty
import select
import sys
import time
from pathlib import Path

PROGRAM = """
import os
import relight
print("world", os.environ["WORLD_SIZE"], os.environ["SET_UP"], os.environ["HIDDEN"])
run = relight.join()
x = 41
breakpoint()
raise SystemExit(x - 35)
"""


def test_a_breakpoint_stops_in_this_terminal(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "hidden").write_text("from a file\n")
    (tmp_path / "job.yaml").write_text(
        f"command: [{sys.executable}, {tmp_path}/program.py]\nresources: {{nodes: 4}}\n"
        f"setup: [export SET_UP=yes]\nsecrets: {{HIDDEN: {{file: {tmp_path}/hidden}}}}\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["RELIGHT_HOME"] = str(tmp_path / "home")
        relight = str(Path(sys.executable).with_name("relight"))
        os.execv(relight, [relight, "run", "--debug", str(tmp_path / "job.yaml")])
    seen = read_until(terminal, "(Pdb)")
    assert "world 1 yes from a file" in seen
    os.write(terminal, b"x += 1\nc\n")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 7, "the program's own code, and what was typed"
    assert not (tmp_path / "home").exists(), "it is no run: nothing is left of it"


def read_until(terminal: int, word: str, limit_s: float = 60.0) -> str:
    seen, over = "", time.monotonic() + limit_s
    while word not in seen:
        assert select.select([terminal], [], [], over - time.monotonic())[0], seen
        seen += os.read(terminal, 4096).decode(errors="replace")
    return seen
