"""Commands that start ranks themselves: torchrun, once on each node, and others, which are refused
with the spec that does without them (pure).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from relight.resilience.config import CommandPer
from relight.resilience.worker.standby import PythonCommand

if TYPE_CHECKING:
    from .spec import JobSpec, Resources

# What begins such a command, whichever folder it is in; and such a module, after `python -m`.
_PROGRAMS: Final = (("torchrun",), ("accelerate", "launch"), ("accelerate-launch",))
_MODULES: Final = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate launch",
}
# Programs that become the one behind their options, each maybe with a value, and variables.
_PREFIXES: Final = (
    *(("env",), ("nice",), ("nohup",), ("numactl",)),
    *(("uv", "run"), ("conda", "run"), ("poetry", "run"), ("pixi", "run")),
)
_RANKS: Final = ("--nproc-per-node", "--num-processes")  # of a node; accelerate: of all nodes
_NODES: Final = ("--nnodes", "--num-machines")
# Options of torchrun (torch/distributed/run.py), those without a value first; what is no option is
# the program.
_FLAGS: Final = ("--standalone", "--module", "--no-python", "--run-path", "--virtual-local-rank")
_OPTIONS: Final = (
    *(*_FLAGS, "--nnodes", "--nproc-per-node", "--max-restarts", "--monitor-interval", "--role"),
    *("--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf", "--start-method"),
    *("--event-log-handler", "--log-dir", "--redirects", "--tee", "--local-ranks-filter"),
    *("--duplicate-stdout-filters", "--duplicate-stderr-filters", "--node-rank", "--master-addr"),
    *("--master-port", "--local-addr", "--logs-specs", "--numa-binding", "--signals-to-handle"),
    "--shutdown-timeout",
)
_SHORT: Final = {"-m": "--module", "-r": "--redirects", "-t": "--tee"}
_MEETING: Final = (
    *("--standalone", "--node-rank", "--master-addr", "--master-port"),
    *("--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf"),
)


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
    def options(self) -> Iterator[tuple[str, str]]:
        """Those of torchrun itself, in full, each with its value or nothing."""
        words = iter(self.arguments)
        for word in words:
            if not word.startswith("-"):
                return
            name, value = _in_full(word)
            if value is None:
                value = "" if name in _FLAGS else next(words, "")
            yield name, value

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
            name, value = _in_full(word)
            if name in options:
                yield after if value is None else value


def starter_of(command: Sequence[str]) -> Starter | None:
    """None for a command that starts one process, or hides what it starts, as a script does."""
    named = (command[0].rpartition("/")[2], *command[1:])
    for words in _PREFIXES:
        if named[: len(words)] == words:
            return _behind_options(named[len(words) :])
    for words in _PROGRAMS:
        if named[: len(words)] == words:
            name = "torchrun" if words == ("torchrun",) else "accelerate launch"
            return Starter(name, named[len(words) :])
    python = PythonCommand.of(command)
    if python is None or python.arguments[0] != "-m" or python.arguments[1] not in _MODULES:
        return None
    return Starter(_MODULES[python.arguments[1]], python.arguments[2:])


def _behind_options(words: Sequence[str]) -> Starter | None:
    before = ""
    for place, word in enumerate(words):
        if before in ("-m", "--module") and word in _MODULES:  # of uv run
            return Starter(_MODULES[word], tuple(words[place + 1 :]))
        starter = starter_of(words[place:])
        may_be_value = before.startswith("-") and "=" not in before and not word.endswith(".py")
        if starter is not None or not (word.startswith("-") or "=" in word or may_be_value):
            return starter
        before = word
    return None


def _in_full(word: str) -> tuple[str, str | None]:
    """An option with dashes, and what is written to it: of a long one the beginning is enough."""
    if word[:2] in _SHORT and word[2:3] not in ("", "="):
        return _SHORT[word[:2]], word[2:]
    name, equals, value = word.partition("=")
    name = _SHORT.get(name, name.replace("_", "-"))
    meant = [option for option in _OPTIONS if option.startswith(name)]
    if name.startswith("--") and name not in _OPTIONS and len(meant) == 1:
        name = meant[0]
    return name, value if equals else None


def command_per(spec: JobSpec) -> CommandPer:
    """Once per task, or once per node for what starts the ranks of one."""
    if spec.command_per is not None:
        return spec.command_per
    starter = starter_of(spec.command)
    known = starter is not None and starter.name == "torchrun"
    return "node" if known and not _saves_itself(spec) else "task"


def faults_of_starters(spec: JobSpec) -> Iterator[str]:
    """Where ranks would not be started, or not as relight expects them; each with its path."""
    if spec.command_per == "node" and (spec.mpi or spec.resources.components):
        other = "mpi: it" if spec.mpi else "resources.components: Slurm"
        yield f"command_per: node does not go with {other} starts each rank; leave one of both out"
        return
    for path, command in _commands(spec):
        starter = starter_of(command)
        if starter is None:
            continue
        per_task = spec.mpi or spec.resources.components
        if starter.name != "torchrun" or path not in ("command", "resume") or per_task:
            if not _saves_itself(spec):
                yield f"{path}: {_fault_of(starter)}"
        elif command_per(spec) == "node":
            yield from (f"{path}: torchrun is told {fault}" for fault in _faults_of(starter, spec))
        elif not _saves_itself(spec):
            yield "command_per: torchrun starts the ranks of a node: leave this out, or write node"


def _commands(spec: JobSpec) -> Iterator[tuple[str, Sequence[str]]]:
    yield "command", spec.command
    if spec.resume:
        yield "resume", spec.resume
    for number, one in enumerate(spec.resources.components):
        if one.command is not None:
            yield f"resources.components.{number}.command", one.command


def _saves_itself(spec: JobSpec) -> bool:
    """Whether the program is one of those that need not join."""
    return bool(spec.resume or spec.checkpoint.signal or spec.checkpoint.done)


def _fault_of(starter: Starter) -> str:
    """Why it cannot start the ranks, and what to write."""
    settings = (
        "; what it is told of mixed precision and the like, the program tells `Accelerator` itself"
        if starter.name != "torchrun"
        else ""
    )
    return (
        f"{starter.name} starts ranks of its own, and relight starts one for each of "
        "resources.tasks_per_node, with RANK, WORLD_SIZE, LOCAL_RANK and MASTER_ADDR set as "
        f"{starter.name} does. Write {starter.instead}; cpus_per_task is of each rank "
        f"then{settings}. A program that saves by itself, and says so by "
        f"checkpoint.signal, checkpoint.done or resume, may keep {starter.name}"
    )


def _faults_of(torchrun: Starter, spec: JobSpec) -> Iterator[str]:
    """Options that would make another world than that of ``resources``."""
    resources = spec.resources
    several = resources.most_nodes > 1
    tasks, gpus = str(resources.tasks_per_node), resources.gpus_per_node
    for name, value in torchrun.options:
        told = f"{name}={value}" if value else name
        match name:
            case "--nproc-per-node" if value != tasks:
                if value == "gpu" and gpus == resources.tasks_per_node:
                    continue
                write = value if value.isdecimal() else "their number"
                yield (
                    f"{told}, and resources.tasks_per_node is {tasks}: write {write} there; "
                    "the option may be left out"
                )
            case "--nnodes" if value not in _counts(resources):
                yield (
                    f"{told}, and resources.nodes is {_counts(resources)[0]}: write the number "
                    "there; the option may be left out"
                )
            case "--max-restarts" if value != "0":
                yield f"{told}: ranks are started again by relight; leave it out"
            case "--signals-to-handle":
                yield f"{told}: ranks are told by relight to save; leave it out"
            case "--redirects" if _hides_stderr(value):
                yield (
                    f"{told}: the cause of a rank's end is looked for in the output of torchrun; "
                    f"write --tee={value}, which fills the same files"
                )
            case _ if several and name in _MEETING:
                yield f"{told}: where ranks meet relight says, anew at each start; leave it out"


def _hides_stderr(value: str) -> bool:
    """Of all ranks, or of some: ``3``, or ``0:3,1:2`` (torch.distributed.elastic's Std)."""
    return any(part.rpartition(":")[2] in ("2", "3") for part in value.split(","))


def _counts(resources: Resources) -> tuple[str, ...]:
    """How torchrun may be told the number of nodes; not at all where it changes."""
    most, least = resources.most_nodes, resources.least_nodes
    return (str(most), f"{most}:{most}") if least in (None, most) else (f"{least} to {most}",)
