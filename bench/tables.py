"""Writes ``bench/README.md`` from the files of ``bench/results``: ``python -m bench.tables``.

Tables that pages of docs name are written there, too: between ``<!-- bench: file: title -->`` and ``<!-- end -->``.

``--age`` prints the tables instead, each with the number of commits that changed popsr since its run.
"""

import ast
import json
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parent
README = BENCH / "README.md"
DOCS = BENCH.parent / "docs"
PLACE = re.compile(r"(?<=<!-- bench: )(\w+): (.+?) -->\n.*?(?=<!-- end -->)", re.DOTALL)
LONGEST = 40  # rows of a table that is shown whole

HEAD = """# Benchmarks

`python -m bench.tables` writes this page from `bench/results`, as `nox -s bench` does when it has measured; nothing
here is typed by hand. `nox -s bench -- FILE` measures the tables below the name of a file again, with `-k NAME` some
rows of them; files that are no tests say at their head how they are run.

Sides are timed by turns, so that a slow moment of the machine meets all of them alike; a table has the best and the
median of the turns. A ratio is the other side's time over popsr's, so that more than 1 means popsr is faster, unless
its table says otherwise. A goal that was not reached says "missed". Below each table stand the machine, the date and
the commit of its run; a table that was measured before commits were kept names the commit that brought it. Tables of
more than 40 rows show the rows that miss their goal; the files of results have all, and the versions of the peers.
`python -m bench.tables --age` prints how many commits have changed popsr since the run of each table.

[Performance](../docs/performance.md) says what was tried, what made the difference, and why a goal is missed.
"""


def page() -> str:
    """The whole page."""
    parts, others = [HEAD.rstrip()], {*BENCH.glob("results/*.json")}
    for folder, files in groupby(sorted(BENCH.glob("*/bench_*.py")), key=lambda file: file.parent):
        parts.append(f"## {_docstring(folder / '__init__.py').rstrip('.')}")
        for file in files:
            parts += [f"### `bench/{file.relative_to(BENCH)}`", _docstring(file)]
            results = BENCH / f"results/{file.stem.removeprefix('bench_')}.json"
            parts += _tables(results) if results.exists() else ["No figures are kept yet."]
            others.discard(results)
    parts += ["## Measured by tests", *(part for file in sorted(others) for part in _tables(file))]
    return "\n\n".join(parts) + "\n"


def filled(text: str) -> str:
    """Text of a page of docs, with the tables that it names as the results have them."""
    return PLACE.sub(lambda place: f"{place[1]}: {place[2]} -->\n\n{_named(place[1], place[2])}\n\n", text)


def _named(stem: str, title: str) -> str:
    """Runs of one table, without its title."""
    file = BENCH / f"results/{stem}.json"
    [table] = [each for each in json.loads(file.read_text()) if each["title"] == title]
    return "\n\n".join(_table(table, file.name)[1:])


def _docstring(file: Path) -> str:
    """First paragraph of a module's docstring."""
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    return " ".join(text.split("\n\n")[0].replace("``", "`").split())


def _tables(file: Path) -> list[str]:
    return [part for table in json.loads(file.read_text()) for part in _table(table, file.name)]


def _table(table: dict[str, Any], file: str) -> list[str]:
    parts = [f"**{table['title']}**"]
    for run in table["runs"]:
        rows = run["rows"]
        if len(rows) > LONGEST:
            missed = [row for row in rows if "missed" in row.get("goal", "")]
            reached = f"{len(rows) - len(missed)} of {len(rows)} rows reach their goal"
            parts.append(f"{reached}; all are in `bench/results/{file}`, and these miss it:")
            rows = missed
        parts += [_markdown(rows), _circumstances(run)]
    return parts


def _markdown(rows: list[dict[str, str]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    columns.sort(key=lambda name: name == "goal")  # at the end, where only some rows have one
    lines = [columns, ["---"] * len(columns), *([row.get(name, "") for name in columns] for row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _circumstances(run: dict[str, Any]) -> str:
    about = run["machine"]
    machine = [
        about["processor"],
        f"family {about['family']}" if "family" in about else "",
        f"{about['cores']} cores" if "cores" in about else "",
        about.get("memory", ""),
        f"level {about['level']}" if "level" in about else "",
    ]
    parts = [", ".join(filter(None, machine)), run["date"], f"commit {run['commit']}", run.get("note", "")]
    return f"*{'; '.join(filter(None, parts))}*"


def ages() -> list[tuple[int, str]]:
    """Commits of popsr since each run, and its table; a run of an unknown commit is as old as its table."""
    found = []
    for file in sorted(BENCH.glob("results/*.json")):
        for table in json.loads(file.read_text()):
            for run in table["runs"]:
                commit = re.findall(r"[0-9a-f]{7,}", run["commit"])[-1]
                command = [
                    "git",
                    "rev-list",
                    "--count",
                    f"{commit}..",
                    "--",
                    "../cpp/popsr",
                    "../python/popsr",
                ]
                done = subprocess.run(command, cwd=BENCH, capture_output=True, text=True, check=True)
                found.append((int(done.stdout), f"{file.stem}: {table['title']}"))
    return found


def main(*arguments: str) -> None:
    """Write the pages, or print the ages of their tables."""
    if arguments == ("--age",):
        print("\n".join(f"{count:6} {title}" for count, title in sorted(ages())))
    else:
        README.write_text(page())
        for file in sorted(DOCS.rglob("*.md")):
            text = file.read_text()
            if PLACE.search(text):
                file.write_text(filled(text))


if __name__ == "__main__":
    main(*sys.argv[1:])
