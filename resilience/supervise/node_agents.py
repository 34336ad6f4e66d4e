"""The agents of one generation by their nodes, for what any of a node's can do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from .channel import AgentLine


class NodeAgents:
    """``lines`` are those of all tasks, and lack those that have been lost since."""

    def __init__(self, lines: Mapping[int, AgentLine]) -> None:
        self._lines = lines
        self._tasks: defaultdict[str, list[int]] = defaultdict(list)
        for task, line in sorted(lines.items()):
            self._tasks[line.node].append(task)

    def all(self) -> list[AgentLine]:
        return list(self._lines.values())

    def of(self, node: str) -> list[AgentLine]:
        return [self._lines[task] for task in self._tasks.get(node, ()) if task in self._lines]

    def one_of(self, node: str, rank: int) -> AgentLine | None:
        """Another one for each of its ranks."""
        there = self.of(node)
        return there[rank % len(there)] if there else None

    def node_of(self, task: int) -> str | None:
        """None when the agent of this task is lost."""
        line = self._lines.get(task)
        return None if line is None else line.node
