"""Times to build popsr from nothing, by part, beside another commit, and after touching one file.

``python -m bench.session.bench_build``, on a machine that does nothing else; ``--base`` names the other commit and
``--quick`` leaves out the C++ tests and the touched files, and writes no results. Wheels are built in an environment
of the script's own, with no compiler cache, in worktrees in a temporary folder.
"""

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

from bench.record import ROOT, Recorder

BASE = "132bc6d"
# Compiles, and leaves the command and the processor time of it and its children in a file of its own.
LAUNCHER = """#!/bin/sh
"$@"
status=$?
{ echo "$*"; times; } >"$(mktemp "$POPSR_TIMES/XXXXXXXX")"
exit $status
"""
# The touched files, by patterns of files of which the first that exists is taken, and the goal in seconds.
TOUCHED = (
    ("one kernel", ("cpp/popsr/kernels/level/**/softmax_rows.cpp", "cpp/popsr/kernels/level/**/*.cpp"), 15),
    ("one op", ("cpp/popsr/ops/**/softmax.cpp", "cpp/popsr/ops/*/*.cpp"), 15),
    ("`ir/op_def.h`", ("cpp/popsr/ir/op_def.h",), 60),
    ("`base/dtype.h`", ("cpp/popsr/base/dtype.h",), 90),
)

record = Recorder(Path(__file__))


class Cost(NamedTuple):
    """Seconds of a build."""

    cpu: float
    wall: float


def timed(*command: str, cwd: Path, path: Path, **variables: str) -> Cost:
    """Seconds of the command and its children, user and system."""
    env = {
        key: value for key, value in os.environ.items() if not key.startswith(("CCACHE", "CMAKE_", "SKBUILD"))
    }
    env |= {"CCACHE_DISABLE": "1", "PATH": f"{path}{os.pathsep}{env['PATH']}", **variables}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    result = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    wall = time.perf_counter() - start
    if result.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, wall)


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


class Builder:
    """Wheels of worktrees, each in `build/bench` of its worktree; paths stay, so a second build is incremental."""

    def __init__(self, folder: Path):
        self.environment = folder / "tools"
        self.times = folder / "times"
        self.launcher = folder / "launcher"
        self.launcher.write_text(LAUNCHER)
        self.launcher.chmod(0o755)
        subprocess.run([sys.executable, "-m", "venv", self.environment], check=True)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        requires = project["build-system"]["requires"]
        timed(
            *self._pip("install"), *requires, "cmake>=3.24", "ninja", cwd=ROOT, path=self.environment / "bin"
        )

    def _pip(self, command: str) -> tuple[str, ...]:
        return str(self.environment / "bin/python"), "-m", "pip", "--disable-pip-version-check", command

    def wheel(self, tree: Path, tests: bool = False) -> Cost:
        """Builds what is not up to date; with the C++ tests of the same tree if these are asked for."""
        shutil.rmtree(self.times, ignore_errors=True)
        self.times.mkdir()
        defines = {
            "CMAKE_CXX_COMPILER_LAUNCHER": str(self.launcher),
            "POPSR_BUILD_TESTS": "ON" if tests else "OFF",
        }
        return timed(
            *(*self._pip("wheel"), ".", "--no-deps", "--no-build-isolation"),
            *("-w", "build/bench-wheels", "--config-settings=build-dir=build/bench"),
            *(f"--config-settings=cmake.define.{name}={value}" for name, value in defines.items()),
            cwd=tree,
            path=self.environment / "bin",
            POPSR_TIMES=str(self.times),
        )

    def parts(self, tree: Path) -> dict[str, Cost]:
        """Cost of each part that the latest build compiled; wall time is that in which some file of it was compiled."""
        processor: dict[str, float] = {}
        for file in self.times.iterdir():
            command, _, children = file.read_text().splitlines()
            if target := re.search(r"-o \S*CMakeFiles/(\w+)\.dir/", command):
                minutes = re.findall(r"(\d+)m([\d.]+)s", children)
                part = part_of(target[1])
                processor[part] = processor.get(part, 0) + sum(60 * int(m) + float(s) for m, s in minutes)
        spans: dict[str, list[tuple[int, int]]] = {}
        for line in (tree / "build/bench/.ninja_log").read_text().splitlines()[1:]:
            start, end, _, output, _ = line.split("\t")
            if target := re.search(r"\bCMakeFiles/(\w+)\.dir/", output):
                spans.setdefault(part_of(target[1]), []).append((int(start), int(end)))
        return {part: Cost(cpu, covered(spans[part]) / 1000) for part, cpu in sorted(processor.items())}


def part_of(target: str) -> str:
    """Name of a part, by the target of CMake that compiles it."""
    return {"_core": "bindings", "popsr_core": "core", "popsr_tests": "C++ tests"}.get(
        target, target.removeprefix("popsr_").replace("_", " ")
    )


def covered(spans: list[tuple[int, int]]) -> int:
    """Length of the union of the spans."""
    total, reached = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def touched_file(tree: Path, patterns: tuple[str, ...]) -> Path:
    for pattern in patterns:
        if files := sorted(tree.glob(pattern)):
            return files[0]
    sys.exit(f"no file fits {patterns}")


def show(what: str, cost: Cost, goal: str = "", ratio: str = "") -> None:
    cells = {"processor": f"{cost.cpu:.0f} s", "wall": f"{cost.wall:.0f} s"}
    record("Build of a wheel", what, **cells, **{"of the other's processor time": ratio}, goal=goal)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default=BASE, help=f"the commit to compare with, by default {BASE}")
    parser.add_argument("--no-base", action="store_true", help="build this commit alone")
    parser.add_argument("--quick", action="store_true", help="build the wheels alone, and write no results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commits = {"this": "HEAD"} | ({} if arguments.no_base else {"base": arguments.base})
        try:
            for side, commit in commits.items():
                git("worktree", "add", "--detach", str(folder / side), commit)
            builder = Builder(folder)
            compare(builder, {side: folder / side for side in commits}, arguments.quick)
            if not arguments.quick:
                touch(builder, folder / "this")
                record.save()
        finally:
            for side in commits:
                shutil.rmtree(folder / side, ignore_errors=True)
            git("worktree", "prune")


def compare(builder: Builder, trees: dict[str, Path], quick: bool) -> None:
    """Builds each tree from nothing; the C++ tests after the wheel, so that their part is theirs alone."""
    costs: dict[str, dict[str, Cost]] = {}
    for side, tree in trees.items():
        costs[side] = {"from nothing": builder.wheel(tree), **builder.parts(tree)}
        if not quick:
            builder.wheel(tree, tests=True)
            costs[side]["C++ tests"] = builder.parts(tree)["C++ tests"]
    base = costs.get("base", {})
    for what, cost in base.items():
        show(f"{what}, the other commit", cost)
    for what, cost in costs["this"].items():
        show(what, cost, ratio=f"{cost.cpu / base[what].cpu:.2f}" if what in base else "")


def touch(builder: Builder, tree: Path) -> None:
    """Builds the wheel again after one file is touched, and weighs it."""
    builder.wheel(tree)
    show("nothing changed", builder.wheel(tree))
    for what, patterns, goal in TOUCHED:
        file = touched_file(tree, patterns)
        file.touch()
        cost = builder.wheel(tree)
        show(what, cost, f"wall at most {goal} s" + (", missed" if cost.wall > goal else ""))
    [wheel] = (tree / "build/bench-wheels").glob("*.whl")
    size = f"{wheel.stat().st_size / 1e6:.1f} MB"
    record("Size of the wheel", "the wheel", size=size, goal="at most 15 MB")


if __name__ == "__main__":
    main()
