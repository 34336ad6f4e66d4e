"""How fast checkpoints are saved and restored, beside the peers and what the machine can do.

    python benchmarks/checkpoint.py --folder /scratch/bench [--rounds 5] [--quick] [--document FILE]

Contenders take turns within each round, so that a busy moment hits all; the ratios are to the raw
limit of the same round, and what is printed is the median over the rounds. Saves are durable, reads
cold: the file's pages are dropped from the cache before. Prints Markdown; with --document it also
replaces the tables of that document, and makes the plot beside it.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from async_save import tables as async_tables
from checkpoint_contenders import Contender, Raw, State, contenders
from checkpoint_measure import (
    Measured,
    Result,
    Rounds,
    drop_cache,
    measured,
    run_raw,
    stored_bytes,
)
from checkpoint_peers import installed_peers
from checkpoint_ranks import two_ranks
from report import replace_part


def big(quick: bool) -> State:
    """2 GiB as 64 arrays."""
    count, size = (4, 1 << 20) if quick else (64, 8 << 20)
    return {f"layers.{n}.weight": torch.randn(size) for n in range(count)}


def small(quick: bool) -> State:
    """100 000 arrays of 64 floats."""
    return {
        f"layers.{n // 10}.block.{n % 10}": torch.randn(64)
        for n in range(500 if quick else 100_000)
    }


def transformer(quick: bool) -> State:
    """Weights, and AdamW's two moments and step for each, of a small GPT."""
    width, depth = (64, 2) if quick else (768, 12)
    layer = torch.nn.TransformerEncoderLayer(width, 12 if width == 768 else 2, 4 * width)
    model = torch.nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    state = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, moments in optimizer.state_dict()["state"].items():
        state |= {f"optimizer.{number}.{name}": tensor for name, tensor in moments.items()}
    return {name: tensor.detach() for name, tensor in state.items()}


WORKS: dict[str, Callable[[bool], State]] = {"big": big, "small": small, "transformer": transformer}


RANKS, ASYNC = "two ranks", "while training goes on"


def touched(state: State) -> State:
    """A byte of every page of the large arrays is read: a map of a file is no restore yet."""
    for tensor in state.values():
        if tensor.nbytes >= 1 << 20:
            tensor.reshape(-1).view(torch.uint8)[::4096].max()
    return state


def run(folder: Path, one: Contender, state: State) -> Result:
    save = measured(lambda: one.save(folder, state))
    drop_cache(folder)
    there = {name: torch.full_like(tensor, 7) for name, tensor in state.items()}
    restored: State = {}
    restore = measured(lambda: restored.update(touched(one.restore(folder, there))))
    if not all(torch.equal(restored[name], state[name]) for name in state):
        raise ValueError(f"{one.name} did not restore what it saved")
    return Result(save, restore, stored_bytes(folder))


def all_rounds(folder: Path, state: State, rounds: int, names: list[str]) -> Rounds:
    raw = Raw(payload_bytes(state))
    found: Rounds = defaultdict(list)
    for number in range(rounds):
        with TemporaryDirectory(dir=folder) as empty:
            for name, result in run_raw(Path(empty), raw):
                found[name].append(result)
        entrants = [
            one
            for one in (*contenders(), *installed_peers())
            if (one.name in names or not names) and len(state) <= one.most_arrays
        ]
        turn = number % len(entrants)
        for one in [*entrants[turn:], *entrants[:turn]]:
            with TemporaryDirectory(dir=folder) as empty:
                found[one.name].append(run(Path(empty), one, state))
    return found


def payload_bytes(state: State) -> int:
    return sum(tensor.nbytes for tensor in state.values())


def table(found: Rounds, payload: int) -> Iterator[str]:
    yield "| | save s | GB/s | of raw | CPU s/GB | restore s | GB/s | of raw | CPU s/GB | stored |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, results in found.items():
        cells = [name]
        for which in ("save", "restore"):
            ones: list[Measured] = [getattr(result, which) for result in results]
            limits: list[Measured] = [getattr(result, which) for result in found["raw"]]
            seconds = median(one.seconds for one in ones)
            shares = [limit.seconds / one.seconds for one, limit in zip(ones, limits, strict=True)]
            cpu = median(one.cpu_seconds for one in ones) / payload * 1e9
            cells += [
                f"{seconds:.2f}",
                f"{payload / seconds / 1e9:.2f}",
                f"{median(shares):.2f}",
                f"{cpu:.2f}",
            ]
        yield f"| {' | '.join(cells)} | {results[-1].stored_bytes / payload:.3f} |"


def plot(path: Path, found: dict[str, Rounds]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(found), 2, figsize=(9, 2.4 * len(found)), squeeze=False)
    for row, (work, rounds) in zip(axes, found.items(), strict=True):
        for axis, which in zip(row, ("save", "restore"), strict=True):
            names = [name for name in rounds if name != "memcpy"]
            times = [median(getattr(one, which).seconds for one in rounds[name]) for name in names]
            axis.barh(names[::-1], times[::-1], color="0.6")
            axis.set_title(f"{work}: {which}, s")
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, required=True, help="on the disk to measure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a few MB, to see that it works")
    parser.add_argument("--work", choices=[*WORKS, RANKS, ASYNC], action="append")
    parser.add_argument("--contender", action="append", default=[])
    parser.add_argument("--document", type=Path, help="with the lines <!-- measured --> twice")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Rounds] = {}
    text: list[str] = []

    def say(*lines: str) -> None:
        print("\n".join(lines), flush=True)
        text.extend(lines)

    for work in options.work or [*WORKS, RANKS, ASYNC]:
        if work == ASYNC:
            say(f"\n### {work}\n", *async_tables(options.folder, options.rounds, options.quick))
            continue
        if work == RANKS:
            found[work], payload = two_ranks(options.folder, options.rounds, quick=options.quick)
            title = f"{work}: halves and replicas, {payload / 1e9:.2f} GB"
        else:
            state = WORKS[work](options.quick)
            found[work] = all_rounds(options.folder, state, options.rounds, options.contender)
            payload = payload_bytes(state)
            title = f"{work}: {len(state)} arrays, {payload / 1e9:.2f} GB"
        say(f"\n### {title}\n", *table(found[work], payload))
    if options.document:
        replace_part(options.document, "measured", text)
        plot(options.document.with_name("checkpoint-times.svg"), found)


if __name__ == "__main__":
    main()
