"""The documentation keeps up with the code: keys, examples and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_origin

import click
import pytest
from health.page import PAGE, page
from pydantic import BaseModel

from relight.launcher.cli.main import relight
from relight.launcher.spec import JobSpec
from relight.launcher.spec_file import parse_spec

HOME = Path(__file__).parents[2]
PAGES = sorted([*HOME.glob("*.md"), *HOME.glob("docs/**/*.md")])
PATHS = [str(page.relative_to(HOME)) for page in PAGES]


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted names of all keys that a spec may hold."""
    for attribute, field in model.model_fields.items():
        name = field.alias or attribute
        kinds = (field.annotation, *get_args(field.annotation))
        inner = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
        if not inner:
            yield prefix + name
        elif inner[0] is field.annotation or get_origin(field.annotation) is not dict:
            yield from keys(inner[0], f"{prefix}{name}.")
        else:  # a mapping whose keys are the user's own
            yield from keys(inner[0], f"{prefix}{name}.NAME.")


def documented() -> list[str]:
    return re.findall(r"^\| `([A-Za-z_.]+)` \|", (HOME / "docs/spec.md").read_text(), re.MULTILINE)


def test_each_key_of_the_spec_is_documented() -> None:
    assert "secrets.NAME.file" in list(keys(JobSpec))
    assert [key for key in keys(JobSpec) if key not in documented()] == []


def test_no_key_is_documented_that_is_not_there() -> None:
    there = {
        ".".join(parts[:length])
        for parts in (key.split(".") for key in keys(JobSpec))
        for length in range(1, len(parts) + 1)
    }
    assert [key for key in documented() if key not in there] == []


@pytest.mark.parametrize("path", PATHS)
def test_yaml_of_the_pages_is_a_valid_spec(path: str) -> None:
    for text in blocks(HOME / path, "yaml"):
        parse_spec(text, path)


@pytest.mark.parametrize("path", PATHS)
def test_python_of_the_pages_compiles(path: str) -> None:
    for text in blocks(HOME / path, "python"):
        compile(text, path, "exec")


def test_the_readme_shows_both() -> None:
    assert blocks(HOME / "README.md", "yaml")
    assert blocks(HOME / "README.md", "python")


def test_the_readme_names_each_verb() -> None:
    assert isinstance(relight, click.Group)
    verbs = relight.list_commands(click.Context(relight))
    text = (HOME / "README.md").read_text()
    assert [verb for verb in verbs if f"`relight {verb}" not in text] == []


def test_the_page_of_checks_is_what_they_declare() -> None:
    assert PAGE.read_text() == page(), "PYTHONPATH=tests .venv/bin/python -m health.page"


@pytest.mark.parametrize("path", PATHS)
def test_links_lead_somewhere(path: str) -> None:
    page = HOME / path
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    local = [target.partition("#")[0] for target in targets if "://" not in target]
    assert [target for target in local if target and not (page.parent / target).exists()] == []
