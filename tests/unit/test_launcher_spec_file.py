"""A bad spec: every fault at once, with its line and the way out."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from relight.errors import UsageError
from relight.launcher import unread_xid_table
from relight.launcher.layers import Layer
from relight.launcher.plan import run_config
from relight.launcher.run_creation import submitter
from relight.launcher.spec_faults import SpecError
from relight.launcher.spec_file import build_spec, load_spec, parse_spec
from relight.launcher.spec_meanings import MEANINGS
from relight.launcher.spec_schema import described_schema, keys
from relight.launcher.variables import substitute
from relight.resilience.health.gpu import xid_table


def faults(text: str) -> list[tuple[int, str]]:
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "job.yaml")
    assert caught.value.exit_code == 2
    return [(fault.line, fault.message) for fault in caught.value.faults]


def test_only_the_command_is_needed() -> None:
    spec = parse_spec("command: python train.py --steps 500", "job.yaml")
    assert spec.command == ["python", "train.py", "--steps", "500"]
    assert (spec.name, spec.resources.nodes, spec.restart.mode) == ("job", 1, "auto")


def test_yaml_surprises() -> None:
    """YAML 1.1 would read 4:00:00 as 14400 and off, no as False."""
    spec = parse_spec(
        "command: [python, -c, 1]\nenv: {COUNTRY: no, N: 2}\nhealth: {preflight: off}\n"
        "resources: {time: 4:00:00, memory: 8GB}",
        "job.yaml",
    )
    assert spec.command == ["python", "-c", "1"]
    assert spec.env == {"COUNTRY": "no", "N": "2"}
    assert spec.health.preflight == "off"
    assert spec.resources.time == 14400
    assert spec.resources.memory == 8 * 1024**3


def test_all_faults_at_once_with_their_lines() -> None:
    found = faults(
        """\
nam: lm
command: python train.py
resources:
  nodes: "4"
  spares: -1
  memory: 8
restart:
  mode: automatic
checkpoint: {interval: 10 stps}
sbatch: {mem: 3, account: a}
env: {HF_TOKEN: x}
"""
    )
    assert [line for line, _ in found] == [1, 4, 5, 6, 8, 9, 10, 11]
    messages = dict(found)
    assert "unknown key 'nam'; did you mean 'name'?" in messages[1]
    assert "'4' is not a whole number" in messages[4]
    assert "at least 0" in messages[5]
    assert "resources.memory: 8 is not text with a unit; write for example 8GB" in messages[6]
    assert "'auto', 'successor', 'requeue' or 'never'" in messages[8]
    assert "20 steps" in messages[9]


def test_every_key_tells_in_our_words_what_is_wrong_with_it() -> None:
    schema = described_schema()
    told: list[str] = []
    mistakes: tuple[object, ...] = ("yes", 3, 10**9, [])
    for path, _ in keys(schema, schema):
        for wrong in mistakes:
            value = wrong
            for part in reversed(path.split(".")):
                value = {part: [value] if part == "components" else value}
            assert isinstance(value, dict)
            try:
                build_spec({"command": "x", **value}, {})
            except SpecError as error:
                told += [fault.message for fault in error.faults]
    assert len(told) > 100
    assert not [message for message in told if "Input should" in message]


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("name: x", 1, "command is missing"),
        ("command: []", 1, "the command is empty"),
        ('command: ["\\ud800"]', 1, "half a character"),
        ("command: x\nresources: {nodes: !!int abc}", 2, "'abc' is no number"),
        ("command: x\nresources: {nodes: !!float abc}", 2, "'abc' is no number"),
        (f"command: x\nresources: {{nodes: {'9' * 5000}}}", 2, "is no number"),
        ("command: x\nresources: {nodes: 9999999999}", 2, "1000000"),
        ("command: x\nresources: [{nodes: 1}, {nodes: 2}]", 2, "below `components:`"),
        ("command: ''", 1, "the command is empty"),
        ("command: python 'x", 1, "No closing quotation"),
        ("command: cd x && python y", 1, "not run by a shell"),
        ("command: [python, true]", 1, "put it in quotes"),
        ("command: {a: b}", 1, "command"),
        ("command: a\nname: '-x'", 2, "name: '-x' is not a name; one is made of letters"),
        ("command: a\nname: 'a b'", 2, "40 at most"),
        ("command: null", 1, "command is missing; it has no default"),
        ("command: a\nsetup: [null]", 2, "null is not text"),
        ("command: a\ncheckpoint: {compress: yes}", 2, "'yes' is not true or false; write one"),
        ("command: a\nresources: 4", 2, "not a group of keys"),
        ("command: a\nresources: {nodes: 0}", 2, "at least 1"),
        ("command: a\nresources: {nodes: 1.0}", 2, "not a whole number"),
        ("command: a\nresources: {nodes: true}", 2, "not a whole number"),
        ("command: a\nresources: {nodes: {min: 4, max: 2}}", 2, "max is 2 and min 4"),
        ("command: a\nresources: {nodes: {min: 2}}", 2, "it may be 2, which is min, or more"),
        ("command: a\nresources: {nodes: {min: 2, most: 4}}", 2, "known here: max, min"),
        ("command: a\nresources: {time: 4:00}", 2, "4:00:00"),
        ("command: a\nresources: {time: 60}", 2, "write for example 90s"),
        ("command: a\nresources: {time: 99999d}", 2, "resources.time: '99999d' is too long"),
        ("command: a\ncheckpoint: {lead: 1d}", 2, "checkpoint.lead: '1d' is too long"),
        ("command: a\nrestart: {walltime: 99999999-00:00:00}", 2, "more than 24855d"),
        ("command: a\nresources: {partition: ''}", 2, "one line"),
        ('command: a\nresources: {partition: "a\\nb"}', 2, "one line"),
        ("command: a\nnotify: {on: [failed]}", 2, "nobody is told"),
        ("command: a\nnotify: {webhook: hooks.org}", 2, "no address"),
        ("command: a\nnotify: {webhook: 'http://'}", 2, "no address"),
        ("command: a\ncheckpoint: {archive: {url: /data}}", 2, "write for example s3://"),
        (
            "command: a\ncheckpoint: {directory: /d, archive: {url: 'file:///d'}}",
            2,
            "that is checkpoint.directory",
        ),
        ("command: a\nresources: {time: 1h, time_min: 2h}", 2, "as long or longer"),
        ("command: a\ncontainer: {}", 2, "container.image is missing"),
        ("command: a\ncontainer: {image: x, mounts: ['/a,/b']}", 2, "no mount"),
        ("command: a\ncontainer: {image: x, mounts: [data]}", 2, "no mount"),
        (
            "command: a\nresources: {task_per_node: 2}",
            2,
            "did you mean 'resources.tasks_per_node'?",
        ),
        ("command: a\ncheckpoint: {keep: {lst: 2}}", 2, "did you mean 'checkpoint.keep.last'?"),
        ("command: a\nsbatch: {nodes: 4}", 2, "use resources.nodes"),
        ("command: a\nsbatch: {array: 0-3}", 2, "use sweep"),
        ("command: a\nsbatch: {job_name: x}", 2, "use name"),
        ("command: a\nsbatch: {A b: x}", 2, "not the long name"),
        ("command: a\nsbatch: {exclusive: false}", 2, "sbatch.exclusive"),
        ("command: a\nsetup: module load x", 2, "not a list"),
        ("command: a\nenv: {1A: x}", 2, "no digit first"),
        ("command: a\nenv: {A: true}", 2, "put it in quotes"),
        ("command: a\nenv: {HF_TOKEN: x}", 2, "secrets: {HF_TOKEN"),
        ("command: a\nenv: {WANDB_API_KEY: x}", 2, "secrets"),
        ("command: a\nsecrets: {A: x}", 2, "not a group of keys"),
        ("command: a\nsecrets: {A: {}}", 2, "secrets.A.file is missing"),
        ("command: a\nresources: {time: 10min}\ncheckpoint: {lead: 6min}", 3, "more than half"),
        ("command: a\ncommand: b", 2, "'command' is given twice (first on line 1)"),
        ("command: [a", 1, "not YAML"),
        ("command: [a\nname: b\n", 2, "not YAML"),
        ("command: a\n\tname: b", 2, "cannot start any token; indent with spaces"),
        ("command: echo a: b", 1, "not allowed here; a value with ': ' in it stands in quotes"),
        ("- a", 1, "expected keys"),
        ("", 1, "empty"),
        ("a: &a [*a]", 1, "nested more than"),
        ("command: !!python/object:os.system x", 1, "not allowed"),
        ("? [a]\n: b", 1, "a key must be text"),
        ("[" * 5000, 1, "nested more than"),
    ],
)
def test_fault(text: str, line: int, part: str) -> None:
    found = faults(text)
    assert any(at == line and part in message for at, message in found), found


@pytest.mark.parametrize(
    "key", ["env", "env.A", "sbatch", "secrets", "setup", "health.checks", "resources", "restart"]
)
def test_null_leaves_out_whatever_has_a_default(tmp_path: Path, key: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("command: a\nenv: {A: x}\nrestart: {failures: 1}\n")
    spec, _ = load_spec(path, [f"{key}=null"])
    assert spec.env == ({} if key.startswith("env") else {"A": "x"})
    assert spec.restart.failures == (3 if key == "restart" else 1)


@pytest.mark.parametrize("text", ["sbatch: {exclusive: }", "env: {A: }", "secrets: {A: }"])
def test_a_name_of_the_users_own_needs_a_value(text: str) -> None:
    """`exclusive:` may be meant as `exclusive: true`; nothing is left out silently."""
    found = faults(f"command: a\n{text}\n")
    assert {line for line, _ in found} == {2}
    assert all("null" in message and "None" not in message for _, message in found)


def test_an_entry_from_below_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "group.yaml").write_text("sbatch: {account: abc, exclusive: true}\nenv: {A: x}\n")
    path = tmp_path / "job.yaml"
    path.write_text("command: a\ninclude: group.yaml\nsbatch: {exclusive: }\nenv: {A: }\n")
    spec, _ = load_spec(path)
    assert (spec.sbatch, spec.env) == ({"account": "abc"}, {})


def test_editors_are_told_what_each_key_means() -> None:
    schema = described_schema()
    found = dict(keys(schema, schema))
    assert found.keys() == MEANINGS.keys()
    assert all(node["description"] == MEANINGS[path] for path, node in found.items())
    assert "checkpoint.keep.best.metric" in found


def test_alias_bomb() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for before, name in ("ab", "bc", "cd", "de", "ef"):
        bomb += f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    assert "more than 10000 values" in faults(bomb)[0][1]


def test_a_number_as_text_is_as_it_was_written() -> None:
    spec = parse_spec("command: [a, 1e-3, 0.10]\nenv: {LR: 0.10, PYTHON: 3.10, N: 4}", "job.yaml")
    assert spec.command == ["a", "1e-3", "0.10"]
    assert spec.env == {"LR": "0.10", "PYTHON": "3.10", "N": "4"}


@pytest.mark.parametrize("name", ["PGPASSWORD", "DB_PASS", "PGPASS", "OPENAI_APIKEY", "MY_SECRETS"])
def test_a_secret_is_one_wherever_it_is_named(name: str) -> None:
    assert any("secret" in message for _, message in faults(f"command: a\nenv: {{{name}: x}}"))
    layer = Layer({"env": {"A": f"${{{name}}}"}}, {})
    with pytest.raises(SpecError, match="is a secret by its name"):
        substitute(layer, {name: "hush"}, "a-0")


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "MAX_TOKENS", "KEYBOARD"])
def test_not_a_secret(name: str) -> None:
    spec = parse_spec(f"command: a\nenv: {{{name}: 'false'}}", "job.yaml")
    assert spec.env == {name: "false"}
    layer = Layer({"env": {"A": f"${{{name}}}"}}, {})
    assert substitute(layer, {name: "x"}, "a-0").value == {"env": {"A": "x"}}


def test_the_lead_shrinks_with_the_time_limit() -> None:
    assert parse_spec("command: a\nresources: {time: 2min}", "").lead_s == 30
    assert parse_spec("command: a\nresources: {time: 4h}", "").lead_s == 60
    assert parse_spec("command: a", "").lead_s == 60


@pytest.mark.parametrize(
    ("content", "part"),
    [(None, "No such file"), (b"\xff", "not UTF-8"), (b" " * 2**20 + b"a", "not a spec")],
)
def test_unreadable_file(tmp_path: Path, content: bytes | None, part: str) -> None:
    path = tmp_path / "job.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=part):
        load_spec(path)


@pytest.mark.parametrize("line", ["include: '~nobody-x/a'", "run_dir: '~nobody-x/a'"])
def test_the_home_of_nobody(tmp_path: Path, line: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"command: a\n{line}\n")
    with pytest.raises(UsageError, match="~nobody-x/a: no user of this name"):
        run_config(load_spec(path)[0], submitter("a"))


def test_settings_of_checks_are_told_once_and_have_sense(tmp_path: Path) -> None:
    text = """\
command: x
health:
  budget: 700h
  mounts: [scratch]
  checks:
    load: {per_cpu: many}
    swap: on
    uptime: 4
    stuck: {processes: -1}
    temporary: {free_fraction: 5}
    room: {free_fraction: 1e400}
    zombies: null
    laod: off
    gpu_diag: off
"""
    found = faults(text)
    assert [line for line, _ in found] == [3, 4, 6, 7, 8, 9, 10, 11, 13]
    for (_, message), begin in zip(
        found,
        (
            "health.budget: 2.52e+06 s is too long",
            "health.mounts.0: 'scratch' is no absolute path",
            "health.checks.load.per_cpu: 'many' is not a number",
            "health.checks.swap: 'on' is not known; write off, or {used_bytes:",
            "health.checks.uptime: 4 is not known; write off, or {seconds: 600}",
            "health.checks.stuck.processes: -1 makes no sense; write 0 or more",
            "health.checks.temporary.free_fraction: 5 makes no sense; write 0 or at most 1",
            "health.checks.room.free_fraction: ",
            "health.checks.laod: no such check; did you mean 'load'?",
        ),
        strict=True,
    ):
        assert message.startswith(begin), message
    path = tmp_path / "job.yaml"
    path.write_text("command: x\nhealth: {checks: {zombies: null}, mounts: [/proc/]}\n")
    with pytest.raises(SpecError, match=r"per_cpu: x}: health\.checks\.load\.per_cpu: 'x'"):
        load_spec(path, ["health.checks.load={per_cpu: x}"])
    health = load_spec(path)[0].health
    assert (health.checks, health.mounts) == ({}, ["/proc"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("no json", "not usable"),
        ('{"hardware": [79]}', "version"),
        ('{"version": 1, "hardwear": [79]}', "no list called 'hardwear'"),
        ('{"version": 1, "hardware": ["79"]}', "hardware is no list of numbers"),
        ('{"version": 1, "hardware": [79], "contained": [79]}', "in more than one place: [79]"),
        ('{"version": 1}', "it names no XID"),
        ("[" * 100_000, "not usable"),
        ("a pipe", "it is no regular file"),
    ],
)
def test_a_table_of_xids_is_read_with_the_spec(
    tmp_path: Path, content: str | None, said: str
) -> None:
    table = tmp_path / "xids.json"
    if content == "a pipe":
        os.mkfifo(table)
    elif content is not None:
        table.write_text(content)
    path = tmp_path / "job.yaml"
    path.write_text(f"command: x\nhealth: {{xid_table: {table}}}\n")
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    (fault,) = caught.value.faults
    assert fault.line == 2
    assert said in fault.message


def test_a_table_of_xids_on_a_dead_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = threading.Event()
    monkeypatch.setattr(xid_table, "read_xid_table", lambda _path: back.wait())
    monkeypatch.setattr(unread_xid_table, "LIMIT_S", 0.05)
    path = tmp_path / "job.yaml"
    path.write_text("command: x\nhealth: {xid_table: /dead/xids.json}\n")
    with pytest.raises(SpecError, match=r"/dead/xids.json gives no answer in 0.05 s"):
        load_spec(path)
    back.set()
