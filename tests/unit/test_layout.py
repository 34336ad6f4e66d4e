"""The rooms: links point home, imports keep to their form, modules stay readable."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
PACKAGE = HOME / "src" / "relight"
ROOMS = ("launcher", "resilience", "slurm_templates", "storage")
AROUND = ("src", "tests", "examples", "benchmarks", "scripts")
MAX_LINES = 400
# The first option that our own interpreter is given.
STARTED = re.compile(r'(?:sys\.executable,\s*"|\{\{ python \}\} )(-\w)')


def sources(*folders: str) -> Iterator[Path]:
    """Every Python file, once: links are not followed."""
    for folder in folders:
        for root, _, names in os.walk(HOME / folder):
            yield from (Path(root) / name for name in names if name.endswith(".py"))


def imported(node: ast.AST) -> list[str]:
    """The absolute names that a statement imports from."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        if node.module == "relight":
            return [f"relight.{alias.name}" for alias in node.names]
        return [node.module]
    return []


def statements(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """All nodes of a file, each with its place for the message."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        yield f"{path.relative_to(HOME)}:{getattr(node, 'lineno', 0)}", node


@pytest.mark.parametrize("room", ROOMS)
def test_each_link_is_a_link_and_points_home(room: str) -> None:
    link = PACKAGE / room
    assert link.is_symlink(), "a clone with core.symlinks=false builds an empty package"
    assert link.readlink() == Path("..", "..", room)
    assert (link / "__init__.py").is_file()


def test_the_package_itself_holds_nothing_else() -> None:
    names = {path.name for path in PACKAGE.iterdir()} - {"__pycache__"}
    assert names == {"__init__.py", "answer.py", "counted.py", "errors.py", "py.typed", *ROOMS}


def test_nobody_imports_a_room_by_its_bare_name() -> None:
    faults = [
        f"{place} imports {name}"
        for path in sources(*ROOMS, *AROUND)
        for place, node in statements(path)
        for name in imported(node)
        if name.split(".")[0] in ROOMS
    ]
    assert faults == []


@pytest.mark.parametrize("room", ROOMS)
def test_imports_are_relative_inside_a_room(room: str) -> None:
    faults = [
        f"{place} imports {name}"
        for path in sources(room)
        for place, node in statements(path)
        for name in imported(node)
        if name.split(".")[:2] == ["relight", room]
    ]
    assert faults == []


@pytest.mark.parametrize("room", ROOMS)
def test_imports_are_absolute_across_rooms(room: str) -> None:
    faults = [
        f"{place} leaves {room} by {node.level} dots"
        for path in sources(room)
        for place, node in statements(path)
        if isinstance(node, ast.ImportFrom)
        if node.level > len(path.relative_to(HOME).parent.parts)
    ]
    assert faults == []


def test_a_long_module_says_why() -> None:
    faults = [
        f"{path.relative_to(HOME)} has {lines} lines and its docstring does not defend its length"
        for path in sources(*ROOMS, *AROUND)
        if (lines := len(path.read_text().splitlines())) > MAX_LINES
        if "length" not in (ast.get_docstring(ast.parse(path.read_bytes())) or "")
    ]
    assert faults == []


def test_modules_of_ours_start_without_the_working_directory() -> None:
    """It is the user's: a queue.py there must not stand in for Python's own."""
    texts = [path.read_text() for path in sources("launcher", "resilience", "storage")]
    texts.append((HOME / "slurm_templates" / "job.sh.j2").read_text())
    started = [found for text in texts for found in STARTED.findall(text)]
    assert len(started) > 10
    assert set(started) == {"-P"}
