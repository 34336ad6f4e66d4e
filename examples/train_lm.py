"""Trains a small GPT on the source of Python's standard library, and survives.

    python examples/train_lm.py --steps 20                            # one process, no cluster
    torchrun --nproc-per-node 2 examples/train_lm.py --steps 20
    relight run examples/train_lm.yaml

At the end it prints a digest of the whole training state. It is the same whether the run was
undisturbed or was stopped, killed and restarted any number of times.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import sysconfig
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import relight

VOCABULARY = 256  # tokens are bytes
CORPUS_BYTES = 4 * 1024**2


def main() -> None:
    options = parse_options()
    make_repeatable(options.seed)
    run = relight.join()
    device = torch.device(run.device)
    start_world(run)

    model = spread(GPT(options.width, options.layers, options.context).to(device), run)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate_factor(step, options.steps)
    )
    data = Sampler(read_corpus(), options, run.rank, run.world_size)
    # Ranks start with equal weights, then each needs random numbers of its own for its dropout.
    torch.manual_seed(options.seed + 1 + run.rank)

    run.protect(model=model, optimizer=optimizer, schedule=schedule, data=data)
    for step in run.steps(options.steps):
        began_s = time.monotonic()
        loss = train_one_step(model, optimizer, schedule, data.next_batch().to(device))
        run.log(loss=loss)
        if run.rank == 0:
            print(f"step {step} loss {loss!r}", flush=True)
        time.sleep(max(0.0, options.step_time - (time.monotonic() - began_s)))

    words = gather_words(digest_of(model, optimizer, schedule, data), run)
    if run.rank == 0:
        print(f"digest {hashlib.sha256(' '.join(words).encode()).hexdigest()}", flush=True)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small GPT on Python's own source.")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=4, help="sequences per rank and step")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--context", type=int, default=64, help="tokens per sequence")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--step-time", type=float, default=0.0, metavar="S", help="least duration of a step"
    )
    return parser.parse_args()


def make_repeatable(seed: int) -> None:
    """The same input gives the same bits, which torch does not promise by itself."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # a sum's last bit depends on how many threads share it
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)


def start_world(run: relight.Run) -> None:
    if run.world_size > 1:
        backend = "nccl" if run.device.startswith("cuda") else "gloo"
        if backend == "nccl":
            torch.cuda.set_device(run.device)
        dist.init_process_group(backend, timeout=timedelta(minutes=5))


def spread(model: nn.Module, run: relight.Run) -> nn.Module:
    """The model itself, or its copies on all ranks with averaged gradients."""
    if run.world_size == 1:
        return model
    # After its first backward pass DDP sorts its buckets anew, by the order in which gradients
    # came. A restarted process would make its first step with the unsorted ones, and where a
    # gradient lies in a bucket decides in which order the ranks' parts are added: from three ranks
    # on, the last bit of the sum depends on it. With find_unused_parameters they stay as they are;
    # the warning of DDP that this costs time is to be expected.
    return DistributedDataParallel(model, find_unused_parameters=True)


def train_one_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    tokens: Tensor,
) -> float:
    logits = model(tokens[:, :-1])
    loss = functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]  # torch's own omission
    optimizer.step()
    schedule.step()
    return loss.item()


def learning_rate_factor(step: int, total: int) -> float:
    """A linear warm-up over a tenth of the steps, then half a cosine down to a tenth."""
    warmup = max(1, total // 10)
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return 0.1 + 0.45 * (1 + math.cos(math.pi * progress))


class GPT(nn.Module):
    """Bytes in, a score for each possible next byte out."""

    def __init__(self, width: int, layers: int, context: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.blocks(self.token(tokens) + self.position(places))
        scores: Tensor = self.scores(self.norm(hidden))
        return scores


class Block(nn.Module):
    """Causal attention, then a small network on each token."""

    def __init__(self, width: int, heads: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.before_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.think = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attend(self.before_attention(hidden))
        thought: Tensor = self.think(hidden)
        return hidden + thought

    def attend(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        parts = self.query_key_value(hidden).reshape(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=True
        )
        mixed: Tensor = self.mix(seen.transpose(1, 2).reshape(batch, length, width))
        return mixed


def read_corpus() -> Tensor:
    """The first few megabytes of the standard library's source, in the order of file names."""
    text = bytearray()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += path.read_bytes()
        if len(text) >= CORPUS_BYTES:
            break
    return torch.frombuffer(text, dtype=torch.uint8)


class Sampler:
    """Visits every sequence of the corpus once per epoch, in a shuffled order, spread over ranks.

    Its place is two numbers: the order follows from seed and epoch.
    """

    def __init__(
        self, corpus: Tensor, options: argparse.Namespace, rank: int, world_size: int
    ) -> None:
        self.corpus = corpus
        self.options = options
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0
        self.taken = 0
        self.order = self.shuffled()

    def next_batch(self) -> Tensor:
        """The next sequences of this rank, each one token longer than the context."""
        share = self.options.batch * self.world_size
        if self.taken + share > len(self.order):
            self.epoch, self.taken = self.epoch + 1, 0
            self.order = self.shuffled()
        first = self.taken + self.rank * self.options.batch
        self.taken += share
        context = self.options.context
        starts = self.order[first : first + self.options.batch] * context
        return torch.stack([self.corpus[at : at + context + 1] for at in starts.tolist()]).long()

    def shuffled(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.options.seed * 1_000_003 + self.epoch)
        sequences = (len(self.corpus) - 1) // self.options.context
        return torch.randperm(sequences, generator=generator)

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "taken": self.taken}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.epoch, self.taken = state["epoch"], state["taken"]
        self.order = self.shuffled()


def digest_of(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    data: Sampler,
) -> str:
    """All that decides how this rank would go on, down to the last bit."""
    digest = hashlib.sha256()
    parts: list[object] = [torch.get_rng_state()]
    parts += [one.state_dict() for one in (model, optimizer, schedule, data)]
    if torch.cuda.is_available():
        parts.append(torch.cuda.get_rng_state())
    add_to(digest, parts)
    return digest.hexdigest()


def add_to(digest: hashlib._Hash, value: object) -> None:
    if isinstance(value, Tensor):
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    elif isinstance(value, Mapping):
        for key in value:
            digest.update(repr(key).encode())
            add_to(digest, value[key])
    elif isinstance(value, list | tuple):
        for member in value:
            add_to(digest, member)
    else:
        digest.update(repr(value).encode())


def gather_words(word: str, run: relight.Run) -> list[str]:
    if run.world_size == 1:
        return [word]
    words = [""] * run.world_size
    dist.all_gather_object(words, word)
    return words


if __name__ == "__main__":
    main()
    # Only now that the model is gone. If DDP held the last reference to the group, its end would
    # wait for gloo's thread while holding the interpreter's lock, which that thread may need
    # (seen with torch 2.13).
    if dist.is_initialized():
        dist.destroy_process_group()
