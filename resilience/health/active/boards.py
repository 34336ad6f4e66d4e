"""The GPUs of a node as torch sees them, for tests that make them work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ..check import Candidate, Finding, not_judged

if TYPE_CHECKING:
    import torch

MODEL: Final = "gpu model"  # the fact that names the boards, for the published floors
BOARDS: Final = "gpu boards"  # and how many of them were put to work


def on_boards(
    least: int, test: Callable[[Sequence[torch.device]], Finding]
) -> Callable[[Candidate], Finding]:
    """The check that puts all boards of a node to work; with fewer than ``least`` nothing is."""

    def run(_candidate: Candidate) -> Finding:
        found = find_boards()
        if isinstance(found, str):
            return not_judged(found)
        if len(found) < least:
            return not_judged(f"{len(found)} GPU, {least} are needed")
        return test(found)

    return run


def find_boards() -> list[torch.device] | str:
    """The boards, or why there are none."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]


def about(boards: Sequence[torch.device]) -> dict[str, str]:
    """The facts by which rates of these boards are judged."""
    import torch

    names = sorted({torch.cuda.get_device_name(board) for board in boards})
    return {MODEL: ", ".join(names), BOARDS: str(len(boards))}


def finish(boards: Sequence[torch.device]) -> None:
    """Wait until the boards have done all that they were told."""
    import torch

    for board in boards:
        if board.type == "cuda":
            torch.cuda.synchronize(board)
