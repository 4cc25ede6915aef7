"""Rows that a benchmark measures, kept in ``bench/results`` with the machine, the date and the commit of their run.

A file of results has tables, a table has runs, and a run has rows: mappings of columns to text, units included. A row
is known by its case and its side. Rows that are measured again leave their old run, so that each row stands once.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from math import floor, log10
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench/results"
VERSIONED = ("popsr", "numpy", "torch", "jax", "onnx", "onnxruntime")
WRITTEN = (
    "bench/README.md",
    "bench/results",
    "docs/growth.md",
    "docs/rounding_evidence.md",
    "docs/_static",
)  # by benchmarks
BUSY = os.getloadavg()[0] > 0.5  # before anything is measured

Row = dict[str, str]
Run = dict[str, Any]


def duration(seconds: float) -> str:
    """Three digits, with a unit."""
    units = ((1e9, "ns"), (1e6, "µs"), (1e3, "ms"), (1, "s"))
    factor, unit = next((unit for unit in units if seconds * unit[0] < 999.5), units[-1])
    number = seconds * factor
    digits = max(0, 2 - floor(log10(number))) if number > 0 else 0
    return f"{number:.{digits}f} {unit}"


def mebibytes(count: float) -> str:
    """Bytes as MiB."""
    return f"{count / 2**20:.1f} MiB"


def number(value: float) -> str:
    """Two digits behind the point."""
    return f"{value:.2f}"


def at_most(limit: float, figure: float, shown: Any = "{:g}".format, aim: float | None = None) -> Row:
    """Cell of a goal that a figure meets or misses, and of what it aims at."""
    return _goal("at most", limit, figure > limit, shown, aim)


def at_least(limit: float, figure: float, shown: Any = "{:g}".format, aim: float | None = None) -> Row:
    """Cell of a goal that a figure meets or misses, and of what it aims at."""
    return _goal("at least", limit, figure < limit, shown, aim)


def _goal(word: str, limit: float, missed: bool, shown: Any, aim: float | None) -> Row:
    parts = [f"{word} {shown(limit)}", "missed" if missed else "", "" if aim is None else f"aim {shown(aim)}"]
    return {"goal": ", ".join(filter(None, parts))}


def times(taken: Any) -> Row:
    """Cells of the best and the median time of ``bench.sides.compare.Times`` or of pytest-benchmark's statistics."""
    best = taken.min if hasattr(taken, "min") else taken.best
    return {"best": duration(best), "median": duration(taken.median)}


def ratios(over: Any, under: Any) -> Row:
    """Cells of one side's times over another's."""
    best, median = over.best / under.best, over.median / under.median
    return {"ratio of bests": number(best), "of medians": number(median)}


class Recorder:
    """Rows of one benchmark, by table; ``save`` writes them into its file of results."""

    def __init__(self, benchmark: Path) -> None:
        self.path = RESULTS / f"{benchmark.stem.removeprefix('bench_')}.json"
        self.tables: dict[str, list[Row]] = {}

    def __call__(self, table: str, case: str, side: str = "", **cells: str) -> None:
        """Keep and print a row; an underscore in a column's name is a space."""
        row = {"case": case, "side": side} | {name.replace("_", " "): cell for name, cell in cells.items()}
        row = {name: cell for name, cell in row.items() if cell}
        self.tables.setdefault(table, []).append(row)
        print(f"\n{table}: " + " | ".join(f"{name}: {cell}" for name, cell in row.items()))

    def save(self) -> None:
        """Merge the rows into the file, each in place of an older one of the same case and side."""
        if not self.tables:
            return
        kept = json.loads(self.path.read_text()) if self.path.exists() else []
        self.path.write_text(text_of(merged(kept, self.tables, circumstances())))


def merged(kept: list[dict[str, Any]], found: Mapping[str, list[Row]], run: Run) -> list[dict[str, Any]]:
    """Tables with the rows that a run found; a run without rows left goes."""
    tables = {table["title"]: table["runs"] for table in kept}
    for title, rows in found.items():
        measured = {_key(row) for row in rows}
        runs = tables.setdefault(title, [])
        for old in runs:
            old["rows"] = [row for row in old["rows"] if _key(row) not in measured]
        same = [old for old in runs if {**old, "rows": None} == {**run, "rows": None}]
        if same:
            same[0]["rows"] += rows
        else:
            runs.append({**run, "rows": rows})
        tables[title] = [old for old in runs if old["rows"]]
    return [{"title": title, "runs": runs} for title, runs in tables.items()]


def _key(row: Row) -> tuple[str, str]:
    return row["case"], row.get("side", "")


def text_of(tables: list[dict[str, Any]]) -> str:
    """JSON with a line for each row."""
    texts = []
    for table in tables:
        runs = []
        for run in table["runs"]:
            about = _json({name: value for name, value in run.items() if name != "rows"})
            rows = ",\n   ".join(map(_json, run["rows"]))
            runs.append(f'{about[:-1]}, "rows": [\n   {rows}\n  ]}}')
        texts.append(f' {{"title": {_json(table["title"])}, "runs": [\n  ' + ",\n  ".join(runs) + "\n ]}")
    return "[\n" + ",\n".join(texts) + "\n]\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def circumstances() -> Run:
    """Machine, date, commit and versions of a run that happens now."""
    commit = _git("rev-parse", "--short=9", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", *(f":!{path}" for path in WRITTEN))
    run = {
        "machine": machine(),
        "date": date.today().isoformat(),
        "commit": (commit or "unknown") + (", tree changed" if changed else ""),
        "versions": {"Python": sys.version.split()[0]} | _versions(),
    }
    return run | ({"note": "beside other work"} if BUSY else {})


def machine() -> dict[str, str | int]:
    """Processor, cores, memory, and the level of popsr's kernels."""
    try:
        from popsr import build_info
    except ImportError:  # times of builds need no popsr
        level = {}
    else:
        level = {"level": build_info()["instruction set"]}
    first = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    cpu = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first)}
    kib = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "processor": cpu.get("model name", "unknown"),
        "family": int(cpu.get("cpu family", 0)),
        "cores": os.cpu_count() or 0,
        "memory": f"{kib / 2**20:.0f} GiB",
        **level,
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in VERSIONED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()
