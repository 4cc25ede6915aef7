"""Pictures that benchmarks draw for the pages of docs: seen on white and on black, the same bytes each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PICTURES = Path(__file__).parents[1] / "docs/_static"
GREY, BLUE, ORANGE, GREEN = "#7d8590", "#2f81f7", "#d4772c", "#1a9e77"


@contextmanager
def picture(name: str, size: tuple[float, float]) -> Iterator[Any]:
    """A figure of matplotlib that is written into docs/_static when it is left; its ground is transparent."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    file = PICTURES / f"{name}.svg"
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 11}):
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        figure.savefig(file, transparent=True, metadata={"Date": None})
    text = file.read_text()  # lines end without blanks
    file.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")


def coloured(axes: Any, x: str, y: str) -> None:
    """Labels, a grid and a frame in grey."""
    axes.set_xlabel(x, color=GREY)
    axes.set_ylabel(y, color=GREY)
    axes.tick_params(colors=GREY)
    axes.grid(color=GREY, alpha=0.25)
    for spine in axes.spines.values():
        spine.set_color(GREY)
