"""The share of branches that tests run, by folder, from the reports of gcovr and coverage.py.

``python .ci/coverage_table.py cpp.json python.json`` prints a table and fails where a goal is missed by more than what
CONTRIBUTING.md writes down.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

# Folders, the longest prefix first; the goal in per cent, and the share that was measured, below which this fails.
GOALS: dict[str, tuple[float, float]] = {
    "cpp/popsr/analysis": (98, 95),
    "cpp/popsr/base": (90, 83),
    "cpp/popsr/bindings": (90, 77),
    "cpp/popsr/effects": (90, 97),
    "cpp/popsr/exec": (90, 74),
    "cpp/popsr/ir": (90, 83),
    "cpp/popsr/kernels": (90, 82),
    "cpp/popsr/kernels/level/noise": (98, 96),
    "cpp/popsr/kernels/level/round": (98, 92),
    "cpp/popsr/ops": (90, 83),
    "cpp/popsr/replica": (98, 80),
    "cpp/popsr/runtime": (90, 91),
    "cpp/popsr/sr": (98, 89),
    "cpp/popsr/transform": (90, 93),
    "python/popsr": (90, 94),
    "python/popsr/_program": (90, 95),
    "python/popsr/_session": (90, 97),
    "python/popsr/_support": (90, 96),
    "python/popsr/_tools": (90, 96),
    "python/popsr/addons": (90, 96),
    "python/popsr/analysis": (90, 96),
    "python/popsr/compat": (90, 91),
    "python/popsr/demo": (90, 89),
    "python/popsr/io": (90, 93),
    "python/popsr/ops": (90, 96),
    "python/popsr/sr": (90, 96),
    "python/popsr/testing": (90, 99),
    "python/popsr/transforms": (90, 96),
}


def main(cpp: str, python: str) -> int:
    """Print the table; 1 if a share fell."""
    total: dict[str, list[int]] = {}
    for name, covered, branches in (*_of_gcovr(cpp), *_of_coverage(python)):
        sums = total.setdefault(_folder(name), [0, 0])
        sums[0] += covered
        sums[1] += branches
    fell = []
    print("| folder | branches | run | goal |\n| --- | --- | --- | --- |")
    for folder, (covered, branches) in sorted(total.items()):
        share = 100 * covered / branches if branches else 100.0
        goal, measured = _goal(folder)
        print(f"| `{folder}` | {branches} | {share:.1f} % | {goal:.0f} % |")
        if share < measured:
            fell.append(f"{folder}: {share:.1f} %, expected at least {measured:.1f} %")
    print(*fell, sep="\n", file=sys.stderr)
    return 1 if fell else 0


def _of_gcovr(report: str) -> Iterator[tuple[str, int, int]]:
    for file in json.loads(Path(report).read_text())["files"]:
        yield f"cpp/{file['filename']}", file["branch_covered"], file["branch_total"]


def _of_coverage(report: str) -> Iterator[tuple[str, int, int]]:
    for name, file in json.loads(Path(report).read_text())["files"].items():
        summary = file["summary"]
        if "popsr/" in name:  # installed or not
            yield (
                f"python/{name[name.index('popsr/') :]}",
                summary["covered_branches"],
                summary["num_branches"],
            )


def _folder(name: str) -> str:
    """``cpp/popsr/ops/nn/conv.cpp`` counts for ``cpp/popsr/ops``; rounding and noise of the kernels count apart."""
    parts = name.split("/")
    if (
        parts[:4] == ["cpp", "popsr", "kernels", "level"]
        and len(parts) > 5
        and parts[4] in ("round", "noise")
    ):
        return "/".join(parts[:5])
    return "/".join(parts[:3]) if len(parts) > 3 else "/".join(parts[:2])


def _goal(folder: str) -> tuple[float, float]:
    return GOALS.get(folder, (90.0, 0.0))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
