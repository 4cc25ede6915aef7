"""The matrix of docs/what_is_read.md: ``python -m tests_py.bridge.torch.matrix`` runs it and writes the page."""

from __future__ import annotations

import argparse
import time

from tests_py.bridge.torch.matrix.cells import CELLS, PLANTS, Cell
from tests_py.bridge.torch.matrix.judging import judged

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="text that names of cells have")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--plant", default="", choices=PLANTS)
    asked = parser.parse_args()
    for cell in CELLS[:: asked.every]:
        names = (cell.model, cell.parallel, cell.optimizer)
        if asked.only not in " / ".join(names):
            continue
        began = time.process_time()
        (outcome,) = judged([Cell(*names, asked.plant)])
        print(
            f"{time.process_time() - began:.1f} s",
            *names,
            "->",
            outcome.text[:400],
            outcome.false[:2],
            outcome.drifts[:3],
            "alarms",
            outcome.alarms[:3],
            flush=True,
        )
