"""The parts of a document that a benchmark writes: between two lines that name it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def image(path: Path) -> Sequence[str]:
    """The lines that show a plot which lies beside the document."""
    return "", f"![{path.stem}]({path.name})"


def replace_part(document: Path, name: str, lines: Sequence[str]) -> None:
    """Replaces what is between the two lines ``<!-- NAME -->`` of a document.

    Raises:
        ValueError: it does not have exactly two of them.
    """
    mark = f"<!-- {name} -->\n"
    parts = document.read_text().split(mark)
    if len(parts) != 3:
        raise ValueError(f"{document} has the line {mark.strip()!r} {len(parts) - 1} times, not 2")
    document.write_text("".join([parts[0], mark, "\n".join([*lines, "", ""]), mark, parts[2]]))


def plot_bars(path: Path, panels: Mapping[str, Mapping[str, float]]) -> None:
    """One panel of bars for each title; each bar has a name and a length."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(panels), 1, figsize=(7, 1.9 * len(panels)), squeeze=False)
    for (axis,), (title, bars) in zip(axes, panels.items(), strict=True):
        axis.barh(list(bars)[::-1], list(bars.values())[::-1], color="0.6")
        axis.set_title(title)
    figure.tight_layout()
    figure.savefig(path)
