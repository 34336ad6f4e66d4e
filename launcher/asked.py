"""What a user asks for on the command line: a spec file and ``--set`` words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from relight.errors import UsageError

from .home import from_home
from .launch_plan import Submitter
from .run_creation import new_token, submitter
from .snapshot import work_tree
from .spec import JobSpec
from .spec_file import load_spec


@dataclass(frozen=True, slots=True)
class Asked:
    """``text`` is the spec as the run folder keeps it."""

    spec: JobSpec
    text: str
    submitter: Submitter


def read_asked(path: Path, sets: Sequence[str]) -> Asked:
    """The spec with its variables, for a run with an id of its own.

    Raises:
        UsageError: a file cannot be read, or there is no ``working_dir``, or no work tree to take a
            snapshot of, or nothing here can read an archive, or compress.
        SpecError: the spec is wrong.
    """
    token = new_token()
    spec, text = load_spec(path, sets, token)
    facts = submitter(spec.name, token)
    folder = facts.working_dir / from_home(spec.working_dir or "")
    if not folder.is_dir():
        raise UsageError(f"{path}: working_dir: {folder} is no directory, and ranks start there")
    if not os.access(folder, os.X_OK):
        raise UsageError(f"{path}: working_dir: you may not enter {folder}, and ranks start there")
    if spec.checkpoint.archive is not None:
        from relight.storage.objects import require_readable

        require_readable(spec.checkpoint.archive.url)
    if spec.checkpoint.compress:
        from relight.storage import codec

        try:
            codec.require()
        except UsageError as error:
            raise UsageError(f"{path}: checkpoint.compress: {error}") from error
    if spec.code == "snapshot":
        try:
            facts = replace(facts, tree=work_tree(folder).resolve())
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
    return Asked(spec, text, facts)
