"""A save from GPU memory holds the values of its moment, in whatever order they lie there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from relight.resilience.worker.saving import InBackground, Target, WhileWaiting
from relight.resilience.worker.world import World
from relight.storage.checkpointer import load_shard
from relight.storage.commit import claim_epoch, commit
from relight.storage.layout import Incarnation
from relight.storage.notes import Notes
from relight.storage.receipt import Receipt

pytestmark = pytest.mark.gpu

ONE = Incarnation("1.0", 0)


@pytest.mark.parametrize("background", [True, False])
def test_the_values_of_the_moment_from_pinned_memory(tmp_path: Path, background: bool) -> None:
    import torch

    values = torch.rand(4000, 3000, device="cuda")
    state: dict[str, object] = {
        "whole": values,
        "turned": values.T,
        "half": values.to(torch.bfloat16)[:, ::2],
        "conj": torch.complex(values, -values).conj(),
        "small": torch.ones(3, device="cuda"),
        "host": torch.ones(90_000),
    }
    expected = {
        name: one.resolve_conj().cpu().clone()
        for name, one in state.items()
        if isinstance(one, torch.Tensor)
    }
    receipts: list[Receipt] = []

    def conclude(write: Callable[[], Receipt]) -> bool:
        receipts.append(write())
        return True

    saving = InBackground(1 << 40, pytest.fail) if background else WhileWaiting()
    try:
        saving.prepare(state)
        saving.settle()
        values.mul_(1.0)  # still under way at the call
        saving.save(Target(tmp_path, 1, ONE, World(), Notes()), state, conclude)
        values.zero_()
        assert saving.settle()
        assert not isinstance(saving, InBackground) or saving._staging.pin(values.device)
    finally:
        saving.close()
    manifest = commit(tmp_path, 1, ONE, claim_epoch(tmp_path, ONE), receipts, {})
    found = load_shard(tmp_path, manifest, 0)
    assert found.keys() == expected.keys()
    for name, one in expected.items():
        assert torch.equal(found[name], one)  # type: ignore[arg-type]
    assert torch.zeros(1, device="cuda").item() == 0.0  # CUDA is well after all that
