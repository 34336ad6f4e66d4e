"""What run.log takes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relight.resilience.worker.errors import LogRefused
from relight.resilience.worker.logged import plain_values


def test_numbers_and_text_are_plain_and_all_else_is_refused_by_name() -> None:
    loss = torch.tensor(0.5, requires_grad=True)
    plain = plain_values({"loss": loss, "rate": np.float32(2), "step": 3, "phase": "warm"})
    assert plain == {"loss": 0.5, "rate": 2.0, "step": 3.0, "phase": "warm"}
    for wrong in (np.zeros(3), torch.zeros(2), [1.0]):
        with pytest.raises(LogRefused, match=r"run\.log\(loss=\.\.\.\): expected a number or text"):
            plain_values({"loss": wrong})  # type: ignore[dict-item]
