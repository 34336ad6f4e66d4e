"""Variables, --set and included files: what they change, and where their mistakes are."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from relight.errors import UsageError
from relight.launcher.cli.main import relight
from relight.launcher.spec import JobSpec
from relight.launcher.spec_faults import SpecError
from relight.launcher.spec_file import load_spec


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path))
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    monkeypatch.setenv("N", "4")
    monkeypatch.setenv("ODD", 'a: [b] $(touch x) `y` "z"')
    monkeypatch.setenv("MY_API_KEY", "hush")
    monkeypatch.delenv("NOWHERE", raising=False)


def load(tmp_path: Path, text: str, *sets: str) -> JobSpec:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return load_spec(path, sets, "0a1b2c")[0]


def refusal(tmp_path: Path, text: str, *sets: str) -> str:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text, *sets)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(str(tmp_path) + "/", "")


def test_variables(tmp_path: Path) -> None:
    spec = load(
        tmp_path,
        "name: lm\ncommand: [run, '${run.id}', '${HOME}', '$${x}']\nresources: {nodes: '${N}'}\n"
        "env: {DATA: '${SCRATCH}/data', N: '${N}', LITERAL: '$${SCRATCH}', ODD: '${ODD}'}\n"
        "checkpoint: {directory: '${SCRATCH}/${run.name}/${run.id}'}\nsetup: ['echo ${N} ${x}']\n",
    )
    assert spec.command == ["run", "lm-0a1b2c", "${HOME}", "$${x}"], "the rest is the shell's"
    assert spec.resources.nodes == 4
    assert spec.env["DATA"] == "/scratch/me/data"
    assert (spec.env["N"], spec.env["LITERAL"]) == ("4", "${SCRATCH}")
    assert spec.env["ODD"] == 'a: [b] $(touch x) `y` "z"', "what is put in is not read again"
    assert spec.checkpoint.directory == "/scratch/me/lm/lm-0a1b2c"
    assert spec.setup == ["echo ${N} ${x}"]


def test_the_run_id_is_made_of_the_name_with_its_variables(tmp_path: Path) -> None:
    spec = load(tmp_path, "name: lm-${N}\ncommand: [run, '${run.id}', '${run.name}']\n")
    assert spec.name == "lm-4"
    assert spec.command == ["run", "lm-4-0a1b2c", "lm-4"]


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("env: {A: '${NOWHERE}'}", "job.yaml:2: env.A: the variable NOWHERE is not set"),
        ("env: {A: '${SCRATCHH}'}", "did you mean ${SCRATCH}?"),
        ("run_dir: ${run.idd}", "${run.idd} is no variable; there are run.id, run.name"),
        ("name: 'a-${run.id}'", "name: ${run.id} is no variable"),
        ("env: {A: '${MY_API_KEY}'}", "is a secret by its name"),
        ("env: {A: '${a b}'}", "is no variable"),
        ("resources: {nodes: '${SCRATCH}'}", "'/scratch/me' is not a whole number"),
    ],
)
def test_mistakes_with_variables(tmp_path: Path, line: str, part: str) -> None:
    said = refusal(tmp_path, f"command: a\n{line}")
    assert part in said
    assert said.startswith("job.yaml:2: ")
    assert "hush" not in said


def test_set(tmp_path: Path) -> None:
    spec = load(
        tmp_path,
        "command: a\nresources: {nodes: 1, time: 1:00:00}\nsetup: [x]",
        "resources.nodes=3",
        "resources.memory=8GB",
        "env.A=b=c",
        "setup=[y, z]",
    )
    assert (spec.resources.nodes, spec.resources.time) == (3, 3600)
    assert spec.resources.memory == 8 * 1024**3
    assert (spec.env, spec.setup) == ({"A": "b=c"}, ["y", "z"])


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (
            "resources.nodes=x",
            "--set resources.nodes=x: resources.nodes: 'x' is not a whole",
        ),
        ("resorces.nodes=4", "--set resorces.nodes=4: unknown key 'resorces'; did you mean"),
        (
            "resources.time=60",
            "--set resources.time=60: resources.time: 60 is not text with a unit",
        ),
        (
            "checkpoint.tiers={node: /dev/shm, rack: x}",
            "--set checkpoint.tiers={node: /dev/shm, rack: x}: unknown key 'checkpoint.tiers.rack'",
        ),
        ("nodes", "--set nodes: write key=value"),
        ("a..b=1", "--set a..b=1: write key=value"),
        ("env=[", "--set env=[: not YAML"),
        ("env.A=${NOWHERE}", "--set env.A=${NOWHERE}: env.A: the variable NOWHERE is not set"),
    ],
)
def test_mistakes_with_set(tmp_path: Path, word: str, said: str) -> None:
    assert refusal(tmp_path, "command: a", word).startswith(said)


def test_the_stored_text_holds_what_was_set(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("command: a")
    _, text = load_spec(path, ("name=x",))
    assert text == "command: a\n# --set name=x"


def test_included_files_lie_below_the_spec(tmp_path: Path) -> None:
    group = tmp_path / "group.yaml"
    group.write_text("resources: {partition: low, nodes: 8}\nsbatch: {account: abc}\nsetup: [g]\n")
    (tmp_path / "more.yaml").write_text("sbatch: {account: more, qos: long}\n")
    text = "command: a\ninclude: [group.yaml, '${RELIGHT_HOME}/more.yaml']\nresources: {nodes: 2}"
    spec = load(tmp_path, text, "sbatch.qos=short")
    assert (spec.resources.partition, spec.resources.nodes) == ("low", 2)
    assert (spec.sbatch, spec.setup) == ({"account": "more", "qos": "short"}, ["g"])
    group.write_text("resources: {nodes: many}\n")
    assert "group.yaml:1: resources.nodes" in refusal(tmp_path, "command: a\ninclude: group.yaml")
    group.write_text("restart: {}\ncommand: b\n")
    said = refusal(tmp_path, "command: a\ninclude: group.yaml")
    assert said.startswith("group.yaml:2: 'command' cannot be included")


def test_an_included_file_that_everybody_may_write(tmp_path: Path) -> None:
    group = tmp_path / "group.yaml"
    group.write_text("setup: [evil]\n")
    group.chmod(0o666)
    with pytest.raises(UsageError, match="can be written by every user"):
        load(tmp_path, "command: a\ninclude: group.yaml")
    said = refusal(tmp_path, "command: a\ninclude:\n- nothing.yaml\n- none.yaml")
    lines = said.splitlines()
    assert ["job.yaml:3: include: cannot read" in lines[0], len(lines)] == [True, 2]
    assert "job.yaml:4: include: cannot read" in lines[1]


@pytest.mark.parametrize("verb", ["plan", "submit", "run", "verify-resume"])
def test_who_asks_for_a_dry_run_is_told_of_plan(verb: str) -> None:
    answer = CliRunner().invoke(relight, [verb, "job.yaml", "--dry-run"])
    assert answer.exit_code == 2
    assert "`relight plan SPEC` is the dry run" in answer.output
