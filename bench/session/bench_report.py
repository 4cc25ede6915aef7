"""Reports of 300 to 10,000 ops: seconds to make one, bytes, and seconds until Chromium shows it."""

import time
from pathlib import Path

import pytest

import popsr
from bench.record import Recorder, duration
from tests_py.report import programs
from tests_py.support.browser import Page, browser

LAYERS = {300: 37, 1_000: 124, 3_000: 374, 10_000: 1250}
ROUNDS = 7


@pytest.mark.parametrize("ops", LAYERS)
def test_a_report(ops: int, tmp_path: Path, record: Recorder) -> None:
    session, path, made, shown = popsr.Session(programs.layers(LAYERS[ops])), tmp_path / "run.html", [], []
    with browser() as driver:
        for _ in range(ROUNDS):
            start = time.perf_counter()
            session.report(path)
            made.append(time.perf_counter() - start)
            start = time.perf_counter()
            Page(driver, path)
            shown.append(time.perf_counter() - start)
    cells = {"page": f"{path.stat().st_size / 1e6:.2f} MB"}
    for name, seconds in (("made", made), ("shown", shown)):
        cells |= {
            f"{name}, best": duration(min(seconds)),
            f"{name}, median": duration(sorted(seconds)[ROUNDS // 2]),
        }
    record("Reports", f"{len(session.ir.main_graph.ops):,} ops", **cells)
