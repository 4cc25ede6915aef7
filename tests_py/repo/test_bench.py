"""Tables of the benchmarks: written from the files of results, each with its machine, date and commit."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import record, tables
from tests_py import ROOT

RESULTS = sorted((ROOT / "bench/results").glob("*"))
BENCHMARKS = sorted((ROOT / "bench").rglob("bench_*.py"))


def test_the_page_is_what_the_results_say() -> None:
    assert tables.README.read_text() == tables.page(), "python -m bench.tables"


def test_pages_of_docs_have_the_tables_that_they_name() -> None:
    pages = {page: page.read_text() for page in tables.DOCS.rglob("*.md")}
    assert any(tables.PLACE.search(text) for text in pages.values())
    wrong = [page.name for page, text in pages.items() if text != tables.filled(text)]
    assert not wrong, "python -m bench.tables"


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.name)
def test_results_have_their_circumstances_and_each_row_once(file: Path) -> None:
    found = json.loads(file.read_text())
    assert record.text_of(found) == file.read_text()
    assert len({table["title"] for table in found}) == len(found)
    for table in found:
        rows = [row for run in table["runs"] for row in run["rows"]]
        assert len({(row["case"], row.get("side")) for row in rows}) == len(rows), table["title"]
        assert all(isinstance(cell, str) and cell for row in rows for cell in row.values())
        for run in table["runs"]:
            assert run["machine"]["processor"]
            assert run["date"]
            assert run["commit"]
            assert run["versions"]["Python"]


@pytest.mark.parametrize("file", BENCHMARKS, ids=lambda file: file.stem)
def test_benchmarks_record_what_they_measure(file: Path) -> None:
    assert "record" in file.read_text()


def test_rows_replace_their_older_ones() -> None:
    now: dict[str, Any] = {"date": "2026-11-29", "commit": "b"}
    a, b = {"case": "x", "best": "1 s"}, {"case": "x", "side": "PyTorch", "best": "2 s"}
    kept = record.merged([], {"steps": [a, b]}, {"date": "2026-11-28", "commit": "a"})
    [table] = record.merged(kept, {"steps": [{**a, "best": "3 s"}]}, now)
    assert [(run["commit"], run["rows"]) for run in table["runs"]] == [
        ("a", [b]),
        ("b", [{"case": "x", "best": "3 s"}]),
    ]
    [table] = record.merged([table], {"steps": [{**b, "best": "4 s"}]}, now)
    assert [len(run["rows"]) for run in table["runs"]] == [2]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (record.duration(2.27e-6), "2.27 µs"),
        (record.duration(0.196), "196 ms"),
        (record.duration(5430), "5430 s"),
        (record.duration(0), "0 ns"),
        (record.mebibytes(2**21), "2.0 MiB"),
        (record.at_most(0.3, 0.4, record.duration)["goal"], "at most 300 ms, missed"),
        (record.at_least(1.2, 1.3, aim=1.5)["goal"], "at least 1.2, aim 1.5"),
    ],
)
def test_figures_have_units_and_goals_say_whether_they_are_met(shown: str, expected: str) -> None:
    assert shown == expected
