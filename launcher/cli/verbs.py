"""Groups of verbs: one module per verb, imported only when the verb is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar, Final

import click

_ALIKE: Final = 0.7  # of 1: a misspelling, not another word


class VerbGroup(click.Group):
    """``verbs`` are the names with what each does; their modules lie in ``package``.

    ``elsewhere`` has words that people try, and what does that here.
    """

    verbs: ClassVar[Mapping[str, str]]
    elsewhere: ClassVar[Mapping[str, str]] = {}
    package: ClassVar[str]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.verbs:
            return None
        command = import_module(f".{cmd_name.replace('-', '_')}", self.package).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not (name in self.verbs or name.startswith("-") or ctx.resilient_parsing):
            from difflib import get_close_matches

            near = get_close_matches(name, self.verbs, n=1, cutoff=_ALIKE)
            near += [verb for verb in self.verbs if sorted(verb) == sorted(name)]
            meant = self.elsewhere.get(name) or next(iter(near), None)
            ctx.fail(f"no verb {name!r}" + (f"; did you mean {meant!r}?" if meant else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.verbs.items()))
