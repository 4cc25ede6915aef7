"""The matrix of docs/what_is_read.md: ``python -m tests_py.bridge.torch.matrix`` runs it and writes the page."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path

from tests_py.bridge.torch.matrix.cells import CELLS, PLANTS, Cell
from tests_py.bridge.torch.matrix.judging import judged, summary
from tests_py.bridge.torch.matrix.table import ON_PAGE, REFUSED, state_of, table

_STRIDE = 5
_IN_TURN = "in turn"


def _plant(asked: str, cell: Cell, number: int) -> str:
    """The bug of a cell; in turn, of those that can be planted in it."""
    if asked != _IN_TURN:
        return asked
    possible = [each for each in PLANTS[1:] if each != "left out" or cell.form.forgotten is not None]
    return possible[number % len(possible)]


def main() -> None:
    """Run the cells, tell each, and write the page if they are without bugs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--plant", default="", choices=(*PLANTS, _IN_TURN))
    parser.add_argument(
        "--kept", type=Path, help="file of outcomes, of which those that are read are not run again"
    )
    parser.add_argument("--minutes", type=float, default=1e9, help="after which no more cells are run")
    parser.add_argument(
        "--cells", type=int, default=len(CELLS), help="number of cells, spread over all kinds"
    )
    asked = parser.parse_args()
    kept = json.loads(asked.kept.read_text()) if asked.kept and asked.kept.exists() else {}
    first = time.time()
    outcomes = []
    spread = [cell for k in range(_STRIDE) for cell in CELLS[k::_STRIDE]]  # early ones are of all kinds
    for number, each in enumerate(spread[: asked.cells]):
        cell = dataclasses.replace(each, plant=_plant(asked.plant, each, number))
        key = " / ".join((cell.model, cell.parallel, cell.optimizer, cell.plant))
        if state_of(kept.get(key, "")) not in ("", REFUSED) or time.time() - first > 60 * asked.minutes:
            continue
        began = time.process_time()
        (outcome,) = judged([cell])
        kept[key] = outcome.text
        outcomes.append(outcome)
        print(f"{time.process_time() - began:.1f} s  {key}: {outcome.text}", flush=True)
        for name in ("false", "drifts", "alarms"):
            if getattr(outcome, name):
                print(f"    {name}: {getattr(outcome, name)[:4]}", flush=True)
        if asked.kept:
            asked.kept.write_text(json.dumps(kept, indent=1))
    print(summary(outcomes))
    if not asked.plant:
        texts = [kept.get(" / ".join((each.model, each.parallel, each.optimizer, "")), "") for each in CELLS]
        ON_PAGE.write(table(texts))


if __name__ == "__main__":
    main()
