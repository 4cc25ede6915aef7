"""Reports of 300 to 10,000 ops: seconds to make one, bytes, and seconds until Chromium shows it."""

import time
from pathlib import Path

import pytest

import popsr
from tests_py.report import programs
from tests_py.support.browser import Page, browser

LAYERS = {300: 37, 1_000: 124, 3_000: 374, 10_000: 1250}
ROUNDS = 7


@pytest.mark.parametrize("ops", LAYERS)
def test_a_report(ops: int, tmp_path: Path) -> None:
    session, path, made, shown = popsr.Session(programs.layers(LAYERS[ops])), tmp_path / "run.html", [], []
    with browser() as driver:
        for _ in range(ROUNDS):
            start = time.perf_counter()
            session.report(path)
            made.append(time.perf_counter() - start)
            start = time.perf_counter()
            Page(driver, path)
            shown.append(time.perf_counter() - start)
    print(
        f"\n{len(session.ir.main_graph.ops)} ops: made in {min(made):.2f} s (median {sorted(made)[ROUNDS // 2]:.2f}), "
        f"{path.stat().st_size / 1e6:.2f} MB, shown in {min(shown):.2f} s (median {sorted(shown)[ROUNDS // 2]:.2f})"
    )
