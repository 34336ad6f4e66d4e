"""The table of causes: the shipped one and the site's, and the copy that a run decides by.

The first supervisor of a run stores the table in the run folder: what a site changes later does not
change what a run has decided, and ``relight replay`` repeats it.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from relight.errors import RelightError

from ..decide.causes import FaultCause
from ..decide.rules import Blame, Budget, Rule
from ..run_folder import RunFolder

_log: Final = logging.getLogger(__name__)
VERSION: Final = 1
SHIPPED: Final = Path(__file__).with_name("rules.yaml")
SITE: Final = Path("/etc/relight-rules.yaml")
# They need more than the end of one rank.
_NOT_OF_RULES: Final = (Budget.NODE, Budget.WAITED, Budget.START_UP_ALIKE)
_KEYS: Final = frozenset(
    {"id", "cause", "lines", "signals", "codes", "blame", "cascade", "budget", "advice"}
)


class RulesRefused(RelightError):
    """A table of rules cannot be read or says something that no rule can say."""

    exit_code = 2


def run_rules(folder: RunFolder) -> tuple[Rule, ...]:
    """The rules of a run, stored by the first call.

    Raises:
        RulesRefused: the stored table is damaged.
    """
    if not folder.rules.exists():
        temporary = folder.rules.with_name(f".{folder.rules.name}.{os.getpid()}")
        temporary.write_text(json.dumps(_current()))
        temporary.replace(folder.rules)
    return stored_rules(folder)


def stored_rules(folder: RunFolder) -> tuple[Rule, ...]:
    """The rules that a run has decided by; the shipped ones if it has not begun.

    Raises:
        RulesRefused: the stored table is damaged.
    """
    if not folder.rules.exists():
        return parse(_read(SHIPPED), SHIPPED)
    try:
        table = json.loads(folder.rules.read_text())
    except ValueError as error:
        raise RulesRefused(f"{folder.rules}: {error}") from error
    return parse(table, folder.rules)


def _current() -> Mapping[str, object]:
    """The site's rules, then the shipped ones. A site's mistake keeps no job from running."""
    shipped = _entries(_read(SHIPPED), SHIPPED)
    path = Path(os.environ.get("RELIGHT_RULES") or SITE)
    site: list[Mapping[str, object]] = []
    if path.exists() or "RELIGHT_RULES" in os.environ:
        try:
            table = _read(path)
            parse(table, path)
            site = _entries(table, path)
        except RulesRefused as error:
            _log.warning("the site's rules are left out: %s", error)
    replaced = {entry["id"] for entry in site}
    rest = [entry for entry in shipped if entry["id"] not in replaced]
    return {"version": VERSION, "rules": [*site, *rest]}


def _read(path: Path) -> object:
    import yaml

    try:
        return yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise RulesRefused(f"{path}: {error}") from error


def parse(table: object, path: Path) -> tuple[Rule, ...]:
    """The rules of a table.

    Raises:
        RulesRefused: it is of another version, or an entry is no rule.
    """
    return tuple(_rule(entry, path) for entry in _entries(table, path))


def _entries(table: object, path: Path) -> list[Mapping[str, object]]:
    if not isinstance(table, dict) or table.get("version") != VERSION:
        raise RulesRefused(f"{path}: version: {VERSION} and rules: [...] are wanted")
    entries = table.get("rules")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise RulesRefused(f"{path}: rules is not a list of rules")
    return entries


def _rule(entry: Mapping[str, object], path: Path) -> Rule:
    where = f"{path}: rule {entry.get('id')!r}"
    unknown = sorted(set(entry) - _KEYS)
    if unknown or not {"id", "cause"} <= set(entry):
        raise RulesRefused(f"{where}: id and cause are wanted; unknown: {unknown}")
    try:
        rule = Rule(
            id=str(entry["id"]),
            cause=FaultCause(str(entry["cause"])),
            lines=tuple(re.compile(str(line)) for line in _list(entry, "lines")),
            signals=tuple(str(name) for name in _list(entry, "signals")),
            codes=tuple(int(str(code)) for code in _list(entry, "codes")),
            blame=Blame(str(entry.get("blame", Blame.NONE))),
            cascade=entry.get("cascade") is True,
            budget=Budget(str(entry.get("budget", Budget.COUNTED))),
            advice=str(entry.get("advice", "")),
        )
    except (ValueError, re.error) as error:
        raise RulesRefused(f"{where}: {error}") from error
    if not (rule.lines or rule.signals or rule.codes) or rule.budget in _NOT_OF_RULES:
        raise RulesRefused(f"{where}: it needs lines, signals or codes, and a budget of its own")
    return rule


def _list(entry: Mapping[str, object], key: str) -> list[object]:
    value = entry.get(key, [])
    if not isinstance(value, list):
        raise ValueError(f"{key} is {value!r}, not a list")
    return value
