"""`relight ckpt show|diff|export|prune|verify --restore` on checkpoints of several ranks."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from relight.errors import RelightError
from relight.launcher.cli.main import relight
from relight.storage.boxes import Part, Replicated
from relight.storage.checkpointer import save_shard
from relight.storage.choose import candidates
from relight.storage.commit import claim_epoch, commit
from relight.storage.layout import Incarnation, shard_path
from relight.storage.notes import Notes
from relight.storage.set_aside import set_aside

ONE = Incarnation("1.0", 0)
FIELD = np.random.default_rng(0).normal(size=(50, 300))
WEIGHT = torch.arange(30_000, dtype=torch.float32).reshape(100, 300)
HALF = torch.linspace(-2, 2, 9).to(torch.bfloat16)


def state(rank: int) -> dict[str, object]:
    rows = (0, 20, 50)
    part = Part(FIELD[rows[rank] : rows[rank + 1]], FIELD.shape, (rows[rank], 0))
    return {
        "field": part,
        "model": Replicated({"w": WEIGHT, "half": HALF, "tied": WEIGHT}),
        "same": np.arange(5),
        "own": np.full(3, rank, ">i4"),
        "lr": 0.5,
        "optimizer": {"groups": [{"betas": (0.9, 1 << 70), "rank": rank}]},
    }


def save(directory: Path, step: int, change: object = None, ranks: int = 2) -> None:
    epoch = claim_epoch(directory, ONE)
    states = [state(rank) for rank in range(ranks)]
    if callable(change):
        change(states)
    notes = Notes(metrics={"loss": 9.0 - step})
    receipts = [
        save_shard(directory, step, ONE, rank, ranks, one, notes if rank == 0 else Notes())
        for rank, one in enumerate(states)
    ]
    commit(directory, step, ONE, epoch, receipts, {})


@dataclass(frozen=True)
class Answer:
    code: int
    text: str

    def json(self) -> dict[str, object]:
        answer: dict[str, object] = json.loads(self.text)
        return answer


def ckpt(*arguments: object) -> Answer:
    result = CliRunner().invoke(relight, ["ckpt", *map(str, arguments)])
    if isinstance(result.exception, RelightError):
        return Answer(result.exception.exit_code, str(result.exception))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Answer(result.exit_code, result.output)


def steps(directory: Path) -> list[int]:
    return [one.step for one in candidates(directory)]


def test_show_tells_what_is_in_it(tmp_path: Path) -> None:
    save(tmp_path, 3)
    save(tmp_path, 4)
    for word, step in ((tmp_path, 4), (f"{tmp_path}@3", 3), (tmp_path / "000000000003", 3)):
        told = ckpt("show", word, "--json").json()
        assert (told["step"], told["world_size"]) == (step, 2)
        assert told["metrics"] == {"loss": 9.0 - step}
    arrays = told["arrays"]
    assert isinstance(arrays, list)
    rows = {row.pop("key"): list(row.values()) for row in arrays}
    assert rows == {
        "field": ["<f8", [50, 300], 120_000, 2, []],
        "model/w": ["float32", [100, 300], 120_000, None, []],
        "model/half": ["bfloat16", [9], 18, None, []],
        "model/tied": ["float32", [100, 300], 120_000, None, []],
        "same": ["<i8", [5], 40, None, [0, 1]],
        "own": [">i4", [3], 12, None, [0, 1]],
    }
    values = told["values"]
    assert isinstance(values, list)
    assert {"key": "lr", "value": 0.5, "ranks": []} in values
    assert {"key": "optimizer/groups/0/rank", "value": 1, "ranks": [1]} in values
    text = ckpt("show", tmp_path).text
    assert "2 parts" in text
    assert "metrics        loss 5\n" in text
    assert 'optimizer/groups/0/betas  [0.9, "0x400000000000000000"]  all' in text
    assert ckpt("show", f"{tmp_path}@7").code == 2
    for verb in ("ls", "verify", "prune"):
        refused = ckpt(verb, f"{tmp_path}@3")
        assert (refused.code, f"verify {tmp_path} --step 3" in refused.text) == (2, True)


def test_a_verb_with_a_slip_is_answered_with_the_one_that_was_meant() -> None:
    assert "did you mean 'verify'?" in ckpt("verfiy").text
    assert "did you mean 'status'?" in CliRunner().invoke(relight, ["stauts"]).output
    assert "did you mean 'run'?" in CliRunner().invoke(relight, ["rnu"]).output
    assert "did you mean 'ckpt prune'?" in CliRunner().invoke(relight, ["prune"]).output
    assert "did you mean" not in CliRunner().invoke(relight, ["submarine"]).output


def test_equal_checkpoints_do_not_differ_even_if_cut_otherwise(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    save(one, 1)
    save(other, 1)
    assert ckpt("diff", one, other).code == 0
    alone = tmp_path / "alone"
    whole = {"field": Part(FIELD, FIELD.shape, (0, 0)), "model": {"w": WEIGHT, "half": HALF}}
    save(alone, 1, lambda states: states[0].update(whole, own=np.full(3, 0, ">i4")), ranks=1)
    found = ckpt("diff", alone, one, "--json").json()
    assert [(row["key"], row["rank"], row["reason"]) for row in found["arrays"]] == [  # type: ignore[attr-defined]
        ("model/tied", None, "only in the second"),
        ("same", 1, "only in the second"),
        ("own", 1, "only in the second"),
    ]


def test_diff_says_which_values_differ_and_by_how_much(tmp_path: Path) -> None:
    save(tmp_path, 1)

    def change(states: list[dict[str, object]]) -> None:
        field, weight, half = FIELD.copy(), WEIGHT.clone(), HALF.clone()
        field[30, 7] += 0.25
        field[31, 7] = np.nan
        weight[1, 0] = -300.0
        half[0] = -2.5
        for rank, one in enumerate(states):
            one["field"] = Part(field[25 * rank : 25 * rank + 25], field.shape, (25 * rank, 0))
            one["model"] = Replicated({"w": weight, "half": half, "tied": weight})
            one["lr"] = 0.5 + rank
        states[1]["own"] = np.array([1, 1, -1], ">i4")
        states[0]["same"] = np.arange(6)

    save(tmp_path, 2, change)
    answer = ckpt("diff", f"{tmp_path}@1", f"{tmp_path}@2", "--json")
    assert answer.code == 1
    found = answer.json()
    assert found["values"] == ["lr (rank 1)"]
    assert "lr (rank 1): 0.5 against 1.5\n" in ckpt("diff", f"{tmp_path}@1", f"{tmp_path}@2").text
    rows = found["arrays"]
    assert isinstance(rows, list)
    measured = {
        (row["key"], row["rank"]): (row["elements"], row["size"], row["max_abs"], row["max_rel"])
        for row in rows
        if not row["reason"]
    }
    after = FIELD[30, 7] + 0.25
    near = 0.25 / max(abs(FIELD[30, 7]), abs(after))
    assert measured == {
        ("field", None): (2, 15_000, pytest.approx(0.25), pytest.approx(near)),
        ("model/w", None): (1, 30_000, 600.0, 2.0),
        ("model/tied", None): (1, 30_000, 600.0, 2.0),
        ("model/half", None): (1, 9, 0.5, 0.2),
        ("own", 1): (1, 3, 2.0, 2.0),
    }
    assert [(row["key"], row["reason"]) for row in rows if row["reason"]] == [
        ("same", "<i8 [5] against <i8 [6]")
    ]


def test_dicts_among_plain_values_are_shown_with_their_keys(tmp_path: Path) -> None:
    alone = {"field": Part(FIELD, FIELD.shape, (0, 0))}
    for step, odd in ((1, {}), (2, {"a": 1, "b": (2, {})})):
        save(tmp_path, step, lambda states, odd=odd: states[0].update(alone, odd=[(odd, 3)]), 1)
    both = 'odd: [[{}, 3]] against [[{"a": 1, "b": [2, {}]}, 3]]\n'
    assert both in ckpt("diff", f"{tmp_path}@1", f"{tmp_path}@2").text
    assert ckpt("show", tmp_path).code == 0


def test_an_interrupt_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    save(tmp_path, 1)
    monkeypatch.setattr("relight.storage.verify.verify", interrupted)
    answer = ckpt("verify", tmp_path)
    assert answer.code == 130, "1 is damage"
    assert "Traceback" not in answer.text


def test_ranks_that_differ_alike_have_one_line(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2, lambda states: [one.update(same=np.arange(5) + 1) for one in states])
    text = ckpt("diff", f"{tmp_path}@1", f"{tmp_path}@2").text
    assert "same: 5 of 5 elements, at most 1, relatively 1 (2 ranks)\n" in text
    assert text.count("same:") == 1


def exported(path: Path) -> dict[str, object]:
    """What the file's own library reads, as bytes and shape; bf16 only where it is known."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: (arrays[name].shape, arrays[name].tobytes()) for name in arrays}
    tensors = torch.load(path, weights_only=True) if path.suffix == ".pt" else load_file(path)
    return {name: (tuple(one.shape), raw(one)) for name, one in tensors.items()}


def raw(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().view(torch.uint8).numpy().tobytes())


@pytest.mark.parametrize("ending", ["npz", "safetensors", "pt"])
def test_exports_are_read_by_others(tmp_path: Path, ending: str) -> None:
    def native(states: list[dict[str, object]]) -> None:
        for rank, one in enumerate(states):
            one["own"] = np.full(3, rank, "i4")
            if ending == "npz":
                one["model"] = Replicated({"w": WEIGHT, "tied": WEIGHT})

    save(tmp_path, 1, native)
    target = tmp_path / f"out.{ending}"
    assert ckpt("export", tmp_path, target).code == 0
    expected = {
        "field": ((50, 300), FIELD.tobytes()),
        "model/w": ((100, 300), raw(WEIGHT)),
        "model/tied": ((100, 300), raw(WEIGHT)),
        "same": ((5,), np.arange(5).tobytes()),
        "rank0/own": ((3,), np.full(3, 0, "i4").tobytes()),
        "rank1/own": ((3,), np.full(3, 1, "i4").tobytes()),
    }
    if ending != "npz":
        expected["model/half"] = ((9,), raw(HALF))
    assert exported(target) == expected
    before = target.read_bytes()
    refused = ckpt("export", tmp_path, target)
    assert (refused.code, target.read_bytes()) == (2, before)
    only = tmp_path / f"model.{ending}"
    assert ckpt("export", f"{tmp_path}@1", only, "--under", "model").code == 0
    assert exported(only).keys() == {
        name.removeprefix("model/") for name in expected if name.startswith("model/")
    }
    one = tmp_path / f"one.{ending}"
    assert ckpt("export", f"{tmp_path}@1", one, "--under", "field").code == 0
    assert exported(one) == {"field": expected["field"]}


@pytest.mark.parametrize(
    ("name", "word"),
    [("a.npz", "model/half"), ("a.pt", "own"), ("a.safetensors", "own"), ("a.zip", "a.zip")],
)
def test_what_has_no_place_in_a_format_is_refused_and_nothing_is_left(
    tmp_path: Path, name: str, word: str
) -> None:
    save(tmp_path / "ck", 1)
    answer = ckpt("export", tmp_path / "ck", tmp_path / name)
    assert answer.code == 2
    assert word in answer.text
    assert [path.name for path in tmp_path.iterdir()] == ["ck"]


def test_a_place_that_cannot_be_written_is_named_as_it_was_given(tmp_path: Path) -> None:
    save(tmp_path / "ck", 1)
    target = tmp_path / "nowhere" / "x.safetensors"
    answer = ckpt("export", tmp_path / "ck", target, "--under", "model")
    assert answer.code == 2
    assert f"{target} cannot be written: No such file or directory" in answer.text


def test_a_damaged_array_is_not_exported(tmp_path: Path) -> None:
    save(tmp_path / "ck", 1, lambda states: [one.pop("own") for one in states])
    flip(shard_path(tmp_path / "ck", 1, ONE, 1))
    answer = ckpt("export", tmp_path / "ck", tmp_path / "all.safetensors")
    assert answer.code == 1
    assert "damaged at field, block 0" in answer.text
    assert ckpt("export", tmp_path / "ck", tmp_path / "m.pt", "--under", "model").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ck", "m.pt"]


def flip(shard: Path) -> None:
    data = bytearray(shard.read_bytes())
    at = data.index(FIELD[30].tobytes())
    data[at] ^= 1
    shard.write_bytes(data)


def test_verify_restore_loads_what_verify_reads(tmp_path: Path) -> None:
    save(tmp_path, 1)
    assert ckpt("verify", tmp_path, "--restore").code == 0
    assert ckpt("verify", tmp_path, "--step", "5").code == 2
    flip(shard_path(tmp_path, 1, ONE, 1))
    answer = ckpt("verify", tmp_path, "--restore")
    assert answer.code == 1
    assert answer.text.count("field, block 0") == 1
    assert "1 place damaged" in answer.text


def test_prune_says_first_what_would_go(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    assert ckpt("prune", tmp_path).code == 2
    assert ckpt("prune", tmp_path, "--last", "2", "--json").json()["steps"] == [1, 2]
    assert steps(tmp_path) == [4, 3, 2, 1]
    assert ckpt("prune", tmp_path, "--last", "2", "--yes").code == 0
    assert "nothing to delete" in ckpt("prune", tmp_path, "--last", "2").text
    assert steps(tmp_path) == [4, 3]
    for refused in ("4", "9"):
        assert ckpt("prune", tmp_path, "--step", refused).code == 2
        assert ckpt("prune", tmp_path, "--step", refused, "--yes").code == 2
    assert ckpt("prune", tmp_path, "--step", "3", "--yes").code == 0
    assert steps(tmp_path) == [4]


def test_a_bar_is_for_people_and_the_answer_for_programs(tmp_path: Path) -> None:
    save(tmp_path, 1)
    seen, terminal = pty.openpty()
    program = "import sys; from relight.launcher.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "ckpt", "verify", str(tmp_path), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, timeout=60, check=True)
    os.close(terminal)
    shown = os.read(seen, 65536)
    os.close(seen)
    assert json.loads(done.stdout)["sound"]
    assert b"verify" in shown
    assert b"240" in shown  # kB


def test_a_folder_without_checkpoints_is_not_sound(tmp_path: Path) -> None:
    answer = ckpt("verify", tmp_path)
    assert (answer.code, "holds no committed checkpoint" in answer.text) == (2, True)
    assert "holds no checkpoints" in ckpt("ls", tmp_path).text
    assert ckpt("ls", tmp_path, "--json").json()["checkpoints"] == []


def test_ls_says_how_far_it_looked(tmp_path: Path) -> None:
    save(tmp_path, 1)
    flip(shard_path(tmp_path, 1, ONE, 1))
    told = ckpt("ls", tmp_path).text
    assert re.search(r" 1  valid +\d+ kB  20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\n", told), told
    assert f"`relight ckpt verify {tmp_path}` reads every byte" in told
    set_aside(tmp_path, 1, "block 3 is damaged")
    told = ckpt("ls", tmp_path).text
    assert f"1  set aside: block 3 is damaged (it stays in {tmp_path}/set-aside/" in told
    away = ckpt("ls", tmp_path, "--json").json()["set_aside"]
    assert isinstance(away, list)
    assert [(one["step"], one["reason"]) for one in away] == [(1, "block 3 is damaged")]
