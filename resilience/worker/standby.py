"""The agent's side of a warm start: a process ready to become the next generation's program.

Only for commands that are a Python script or module, run by an interpreter that has relight: the
program itself tells which modules are worth having (see ``modules_worth_having``).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

# What a standby says: its imports are done; it leaves for the program's place.
READY: Final = b"r"
MOVED: Final = b"m"
ANSWER_LIMIT_S: Final = 2.0  # less than the silence after which an agent counts as lost

_INTERPRETER: Final = re.compile(r"python(3(\.\d+)?)?")
# Options that take a value of their own or no program file at all are left to a cold start.
_PLAIN_FLAG: Final = re.compile(r"-[bBdEIOPqRsSuv]+")


def is_python(argv: Sequence[str]) -> bool:
    """Whether a command is Python itself, and no launcher or shell around it."""
    return bool(argv) and _INTERPRETER.fullmatch(Path(argv[0]).name) is not None


@dataclass(frozen=True, slots=True)
class PythonCommand:
    """``interpreter flags... arguments...``, where arguments begin with a script or ``-m``."""

    interpreter: str
    flags: tuple[str, ...]
    arguments: tuple[str, ...]

    @classmethod
    def of(cls, argv: Sequence[str]) -> PythonCommand | None:
        """None for any other command."""
        if not is_python(argv):
            return None
        rest = list(argv[1:])
        flags = []
        while rest and _PLAIN_FLAG.fullmatch(rest[0]):
            flags.append(rest.pop(0))
        if not rest or (rest[0].startswith("-") and (rest[0] != "-m" or len(rest) < 2)):
            return None
        return cls(argv[0], tuple(flags), tuple(rest))


class Standby:
    """One waiting process. It says when it is ready, and when it becomes the program: one that was
    stopped, or hangs in an import, is not waited for."""

    def __init__(
        self,
        command: PythonCommand,
        modules: Sequence[str],
        env: Mapping[str, str],
        before_exec: Callable[[], None],
    ) -> None:
        self._command = command
        self._process = subprocess.Popen(
            [command.interpreter, *command.flags, "-m", "relight.resilience.worker.warm"],
            bufsize=0,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=before_exec,
        )
        self._is_ready = False
        self._write(list(modules))

    def become(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str
    ) -> subprocess.Popen[bytes] | None:
        """The process, now running ``argv``; None when it cannot, or does not answer.

        What it writes comes out of its ``stdout``.
        """
        command = PythonCommand.of(argv)
        if command is None or self._process.poll() is not None or not self.ready(0.0):
            return None
        if (command.interpreter, command.flags) != (
            self._command.interpreter,
            self._command.flags,
        ):
            return None
        part = {"arguments": command.arguments, "env": dict(env), "cwd": cwd}
        if not self._write(part) or not self._says(MOVED, ANSWER_LIMIT_S):
            return None
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process

    def ready(self, limit_s: float) -> bool:
        """Whether it has done its imports, within ``limit_s`` from now."""
        self._is_ready = self._is_ready or self._says(READY, limit_s)
        return self._is_ready

    def _says(self, word: bytes, limit_s: float) -> bool:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        heard, _, _ = select.select([pipe], [], [], limit_s)
        return bool(heard) and os.read(pipe, len(word)) == word

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        """It is not needed any more."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close()

    def _write(self, content: object) -> bool:
        """A process that does not read must not keep the agent."""
        assert self._process.stdin is not None
        pipe, rest = self._process.stdin.fileno(), json.dumps(content).encode() + b"\n"
        os.set_blocking(pipe, False)
        try:
            while rest and select.select([], [pipe], [], ANSWER_LIMIT_S)[1]:
                rest = rest[os.write(pipe, rest) :]
        except OSError:
            return False
        return not rest

    def _close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()


def modules_worth_having(loaded: Mapping[str, ModuleType]) -> list[str]:
    """Installed packages that a program has imported, in the order of import.

    Neither the standard library, which is quick, nor the user's own modules, which may look at the
    environment or at files when they are imported, nor MPI, which starts with its import.
    """
    installed = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
    names = []
    for name, module in list(loaded.items()):
        file = getattr(module, "__file__", None) or ""
        ours = name.startswith("relight.") and not name.startswith("relight.launcher")
        if (
            name != "__main__"
            and "mpi4py" not in name
            and (ours or any(part in file for part in installed))
        ):
            names.append(name)
    return names
