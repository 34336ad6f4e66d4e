"""What training feels of the watch over its nodes: step times with and without, in turn.

    python benchmarks/watch.py [--rounds 6] [--seconds 40] [--every 5]

As many training processes of one thread as there are processors, so that the watch can only take
its time from them. Each round measures both, in an order that changes; before the watch counts it
has had its first look. Prints Markdown: medians over the rounds, and their least and greatest.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from relight.launcher.plan import plan
from relight.launcher.run_creation import submitter
from relight.launcher.spec_file import build_spec

STEP_MS = 1000.0
RATES = ("p50", "p99")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between looks")
    parser.add_argument("--train", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train is not None:
        print(json.dumps(train(options.train)))
        return
    ratios: dict[str, list[float]] = {rate: [] for rate in RATES}
    without: dict[str, list[float]] = {rate: [] for rate in RATES}
    beside: dict[str, list[float]] = {rate: [] for rate in RATES}
    for number in range(options.rounds):
        found = {}
        for watched in (False, True) if number % 2 else (True, False):
            found[watched] = measured(options.seconds, options.every if watched else None)
        for rate in RATES:
            without[rate].append(found[False][rate])
            beside[rate].append(found[True][rate])
            ratios[rate].append(found[True][rate] / found[False][rate])
        print(f"round {number}: {found}", file=sys.stderr, flush=True)
    print("| step | without, ms | with, ms | with / without | least to greatest |")
    print("|---|---|---|---|---|")
    for rate in RATES:
        ratio = ratios[rate]
        spread = f"{min(ratio):.3f} to {max(ratio):.3f}"
        times_ms = f"{median(without[rate]):.2f} | {median(beside[rate]):.2f}"
        print(f"| {rate} | {times_ms} | {median(ratio):.3f} | {spread} |")


def measured(seconds: float, every_s: float | None) -> dict[str, float]:
    """Percentiles of the steps of all processes, in ms."""
    with TemporaryDirectory() as folder, watch(Path(folder), every_s):
        words = [sys.executable, __file__, "--train", str(seconds)]
        ranks = [
            subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(os.cpu_count() or 1)
        ]
        steps_s = [step for rank in ranks for step in json.loads(rank.communicate()[0])]
    cuts = quantiles(steps_s, n=100)
    return {"p50": cuts[49] * STEP_MS, "p99": cuts[98] * STEP_MS}


@contextmanager
def watch(folder: Path, every_s: float | None) -> Iterator[None]:
    if every_s is None:
        yield
        return
    spec = build_spec({"command": ["true"], "checkpoint": {"directory": str(folder)}}, {})
    config = plan(spec, submitter("watch"), "local").config
    (folder / "plan.json").write_text(json.dumps({"run": config.to_json()}))
    module = "relight.resilience.health.watch"
    words = [sys.executable, "-m", module, str(folder), str(folder / "out"), str(every_s)]
    process = subprocess.Popen(words)
    while not list(folder.glob("out/*.json")):
        time.sleep(0.1)
    yield
    process.send_signal(signal.SIGTERM)
    process.wait()


def train(seconds: float) -> list[float]:
    """The seconds that each step of a small network took."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512))
    optimizer = torch.optim.AdamW(net.parameters())
    batch = torch.randn(256, 512)
    steps_s: list[float] = []
    end = time.monotonic() + seconds
    while (started := time.monotonic()) < end:
        optimizer.zero_grad()
        (net(batch) - batch).square().mean().backward()
        optimizer.step()
        steps_s.append(time.monotonic() - started)
    return steps_s[10:]


if __name__ == "__main__":
    main()
