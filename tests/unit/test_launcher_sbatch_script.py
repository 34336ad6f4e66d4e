"""Batch scripts, read as sbatch reads them."""

from __future__ import annotations

import pytest

from relight.launcher.sbatch_options import Given
from relight.launcher.sbatch_script import (
    Line,
    ScriptRefused,
    check_script,
    directive_words,
    directives,
    has_components,
    own_lines,
    script_options,
)


def words(text: str) -> list[str]:
    return list(directive_words(Line(1, text)))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("#SBATCH -N 2", ["-N", "2"]),
        ("#SBATCH --nodes=2 # two", ["--nodes=2"]),
        ("#SBATCH --nodes=2#two", ["--nodes=2"]),
        ('#SBATCH --comment="two  words" -N1', ["--comment=two  words", "-N1"]),
        ("#SBATCH --comment='a \"b\"'", ['--comment=a "b"']),
        (r"#SBATCH --comment=\"a\ b\#", ['--comment="a b#']),
        ("#SBATCH --comment=''", ["--comment="]),
        ("#SBATCH ''", [""]),
        ("#SBATCH\t-N2\t", ["-N2"]),
        ("#SBATCH", []),
        ("#SLURM -N2", ["-N2"]),
    ],
)
def test_words_of_a_line(line: str, expected: list[str]) -> None:
    assert words(line) == expected


def test_an_open_quote_is_refused_with_its_line() -> None:
    with pytest.raises(ScriptRefused, match='line 2: Unmatched `"`'):
        script_options('#!/bin/sh\n#SBATCH --comment="a\n')


def test_options_end_at_the_first_command() -> None:
    text = "#!/usr/bin/env python3\n\n  # a comment\n##SBATCH -N9\n #SBATCH -N8\n#SBATCH -N2\n"
    assert script_options(text + "import os\n#SBATCH -N3\n") == (Given("nodes", "2"),)
    assert directives(text + "import os\n#SBATCH -N3\n") == ["#SBATCH -N2"]


def test_components_of_a_heterogeneous_job() -> None:
    text = "#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2 --requeue\n"
    assert has_components(text)
    assert not has_components(text.replace("#SBATCH hetjob", "##SBATCH hetjob"))
    assert [option.name for option in script_options(text)] == ["nodes", "nodes", "requeue"]


def test_a_word_that_is_no_option_is_refused() -> None:
    with pytest.raises(ScriptRefused, match="Invalid directive found in batch script: 0"):
        script_options("#!/bin/sh\n#SBATCH --nice 0\n")


def test_own_lines() -> None:
    text = "#!/bin/sh\n#RELIGHT restart.failures: 3\necho\n#RELIGHT restart.failures: 4\n"
    assert own_lines(text) == [Line(2, "restart.failures: 3")]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is empty"),
        ("\n \n", "only whitespace"),
        ("echo hello\n", "does not look like a batch script"),
        ("#!/bin/sh\nprintf '\0'\n", "NULL character"),
        ("#!/bin/sh\r\necho\r\n", "DOS line breaks"),
    ],
)
def test_what_sbatch_refuses(text: str, part: str) -> None:
    with pytest.raises(ScriptRefused, match=part):
        check_script(text)
