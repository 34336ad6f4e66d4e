"""Commands that start ranks themselves, as torchrun does, and the spec that does without (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from relight.resilience.worker.standby import PythonCommand

# What begins such a command, whichever folder it is in; and such a module, after `python -m`.
_PROGRAMS: Final = (("torchrun",), ("accelerate", "launch"), ("accelerate-launch",))
_MODULES: Final = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate launch",
}
_RANKS: Final = ("--nproc-per-node", "--num-processes")  # of a node; accelerate: of all nodes
_NODES: Final = ("--nnodes", "--num-machines")


@dataclass(frozen=True, slots=True)
class Starter:
    """One such command: what it is called, and its own arguments with those of the program."""

    name: str
    arguments: tuple[str, ...]

    @property
    def instead(self) -> str:
        """The keys of a spec that start the same program on as many ranks."""
        ranks, nodes = self._number(_RANKS), self._number(_NODES)
        if ranks is not None and self.name != "torchrun":
            ranks //= nodes or 1
        told = [f"nodes: {nodes}"] if nodes is not None and nodes > 1 else []
        told.append(f"tasks_per_node: {ranks or '<GPUs of a node>'}")
        return f"`command: {self._program}` with `resources: {{{', '.join(told)}}}`"

    @property
    def _program(self) -> str:
        """A script, or a module after ``-m``; before it stand options of the starter."""
        for place, word in enumerate(self.arguments):
            if word in ("-m", "--module"):
                return shlex.join(("python", "-m", *self.arguments[place + 1 :]))
            if word.endswith(".py"):
                return shlex.join(("python", *self.arguments[place:]))
        return "<program>"

    def _number(self, options: Sequence[str]) -> int | None:
        """None for what only the node knows, such as ``gpu``, or a configuration file."""
        value = next(self._values(options), "1" if self.name == "torchrun" else "")
        return int(value) if value.isdecimal() else None

    def _values(self, options: Sequence[str]) -> Iterator[str]:
        for word, after in pairwise((*self.arguments, "")):
            name, equals, value = word.partition("=")
            if name.replace("_", "-") in options:
                yield value if equals else after


def starter_of(command: Sequence[str]) -> Starter | None:
    """None for a command that starts one process."""
    named = (command[0].rpartition("/")[2], *command[1:])
    for words in _PROGRAMS:
        if named[: len(words)] == words:
            name = "torchrun" if words == ("torchrun",) else "accelerate launch"
            return Starter(name, named[len(words) :])
    python = PythonCommand.of(command)
    if python is None or python.arguments[0] != "-m" or python.arguments[1] not in _MODULES:
        return None
    return Starter(_MODULES[python.arguments[1]], python.arguments[2:])


def fault_of_starter(command: Sequence[str]) -> str | None:
    """Why such a command is refused, and what to write."""
    starter = starter_of(command)
    if starter is None:
        return None
    settings = (
        "; what it is told of mixed precision and the like, the program tells `Accelerator` itself"
        if starter.name != "torchrun"
        else ""
    )
    return (
        f"command: {starter.name} starts ranks of its own, and relight starts one for each of "
        "resources.tasks_per_node, with RANK, WORLD_SIZE, LOCAL_RANK and MASTER_ADDR set as "
        f"{starter.name} does. Write {starter.instead}; cpus_per_task is of each rank "
        f"then{settings}. A program that saves by itself, and says so by "
        f"checkpoint.signal, checkpoint.done or resume, may keep {starter.name}"
    )
