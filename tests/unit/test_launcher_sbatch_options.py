"""Command lines of sbatch: where the script begins, and what was said before it."""

from __future__ import annotations

import pytest

from relight.errors import UsageError
from relight.launcher.sbatch_options import LONG, Given, of_environment, parse_words


@pytest.mark.parametrize(
    ("line", "options", "script"),
    [
        ("job.sh", [], ["job.sh"]),
        ("job.sh -N 2 --x", [], ["job.sh", "-N", "2", "--x"]),
        ("-N 2 job.sh", [("nodes", "2")], ["job.sh"]),
        ("-N2 job.sh", [("nodes", "2")], ["job.sh"]),
        ("--nodes=2 job.sh", [("nodes", "2")], ["job.sh"]),
        ("--nodes 2 job.sh", [("nodes", "2")], ["job.sh"]),
        ("--part low job.sh", [("partition", "low")], ["job.sh"]),
        ("-HQN2 job.sh", [("hold", None), ("quiet", None), ("nodes", "2")], ["job.sh"]),
        ("-HN 2 job.sh", [("hold", None), ("nodes", "2")], ["job.sh"]),
        ("--exclusive job.sh", [("exclusive", None)], ["job.sh"]),
        ("--exclusive=user job.sh", [("exclusive", "user")], ["job.sh"]),
        ("--nice 5", [("nice", None)], ["5"]),
        ("-k job.sh", [("no-kill", None)], ["job.sh"]),
        ("-koff job.sh", [("no-kill", "off")], ["job.sh"]),
        ("-J= job.sh", [("job-name", "=")], ["job.sh"]),
        ("--comment= job.sh", [("comment", "")], ["job.sh"]),
        ("--requeue -- -odd.sh", [("requeue", None)], ["-odd.sh"]),
        ("-N1 : -N2 -n4 job.sh", [("nodes", "1"), ("nodes", "2"), ("ntasks", "4")], ["job.sh"]),
        ("--of-a-plugin=3 job.sh", [("of-a-plugin", "3")], ["job.sh"]),
        ("-", [], ["-"]),
        ("", [], []),
    ],
)
def test_words(line: str, options: list[tuple[str, str | None]], script: list[str]) -> None:
    call = parse_words(line.split())
    assert [(option.name, option.value) for option in call.options] == options
    assert list(call.script) == script
    before = line.split()[: len(line.split()) - len(script)]
    assert list(call.words) == [word for word in before if word != "--"], "they stay as they are"


def test_what_is_ours_is_not_passed_on() -> None:
    call = parse_words(["-N2", "--relight-dry-run", "--wrap", "echo a b", "-t", "5"])
    assert call.words == ("-N2", "-t", "5")
    assert call.dry_run
    assert Given("wrap", "echo a b") in call.options


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("--of-a-newer-slurm 3 job.sh", "write --of-a-newer-slurm=VALUE"),
        ("-Z job.sh", "no option -Z"),
        ("--nodes", "--nodes needs a value"),
        ("-N", "-N needs a value"),
        ("--mem-p 3", "--mem-per-cpu, --mem-per-gpu"),
    ],
)
def test_faults(line: str, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        parse_words(line.split())


def test_environment() -> None:
    found = of_environment({"SBATCH_JOB_NAME": "a", "SBATCH_ACCOUNT": "b", "HOME": "/"})
    assert found == (Given("job-name", "a"),)


def test_the_table_knows_the_options_of_a_real_sbatch() -> None:
    """A few of each kind; the table is written from the manual page of 22.05."""
    assert {"account", "array", "gpus", "mem-per-gpu", "prefer", "wrap", "test-only"} <= set(LONG)
