"""A Python process that has done its imports and waits to become the user's program.

``python [flags] -m relight.resilience.worker.warm``, started by the rank agent while the program
still runs. Its standard input brings two lines of JSON: first the modules to import, then, perhaps
much later, what to become. Its standard output tells the agent when it is ready and when it goes.
It has no threads of its own, touches no GPU and runs no code of the user before it becomes the
program. Standard library only.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from .standby import MOVED, READY


def main() -> None:
    """Import, wait, become the program."""
    agent = _only_for_the_agent()
    for name in json.loads(sys.stdin.readline()):
        # What cannot be imported now will say so in the program itself, if it is needed there.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    os.write(agent, READY)
    order = sys.stdin.readline()
    if not order:
        return  # the agent is gone
    part = json.loads(order)
    os.write(agent, MOVED)
    _move_in(part["env"], part["cwd"], agent)
    _become(part["arguments"])


def _only_for_the_agent() -> int:
    """Standard output, which a module may write to while it is imported."""
    agent = os.dup(1)
    os.dup2(2, 1)
    return agent


def _move_in(env: dict[str, str], cwd: str, output: int) -> None:
    """What was for the agent's eyes is the program's output from here on."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(nothing)
    os.close(output)


def _become(arguments: Sequence[str]) -> None:
    """Run ``-m module args`` or ``script args`` as the interpreter itself would."""
    if arguments[0] == "-m":
        sys.argv = list(arguments[1:])
        sys.path[0] = str(Path.cwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    script = arguments[0]
    sys.argv = list(arguments)
    sys.path[0] = str(Path(script).resolve().parent)
    code = compile(Path(script).read_bytes(), script, "exec")
    # The module that is __main__ stays the same object: spawned children look it up there.
    scope = sys.modules["__main__"].__dict__
    kept = {"__name__": "__main__", "__builtins__": scope["__builtins__"], "__file__": script}
    scope.clear()
    scope.update(kept, __spec__=None, __doc__=None, __package__=None, __loader__=None)
    exec(code, scope)


if __name__ == "__main__":
    main()
