"""Times to build popsr from nothing, beside another commit, and after touching one file.

``python -m bench.session.bench_build``, on a machine that does nothing else; ``--base`` names the other commit. Wheels
are built in an environment of the script's own, with no compiler cache, in worktrees in a temporary folder.
"""

import argparse
import os
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

BASE = "a352a3f"
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


def timed(*command: str, cwd: Path, path: Path) -> Cost:
    """Seconds of the command and its children, user and system."""
    env = {
        key: value for key, value in os.environ.items() if not key.startswith(("CCACHE", "CMAKE_", "SKBUILD"))
    }
    env |= {"CCACHE_DISABLE": "1", "PATH": f"{path}{os.pathsep}{env['PATH']}"}
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
        subprocess.run([sys.executable, "-m", "venv", self.environment], check=True)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        requires = project["build-system"]["requires"]
        timed(
            *self._pip("install"), *requires, "cmake>=3.24", "ninja", cwd=ROOT, path=self.environment / "bin"
        )

    def _pip(self, command: str) -> tuple[str, ...]:
        return str(self.environment / "bin/python"), "-m", "pip", "--disable-pip-version-check", command

    def wheel(self, tree: Path) -> Cost:
        return timed(
            *(*self._pip("wheel"), ".", "--no-deps", "--no-build-isolation"),
            *("-w", "build/bench-wheels", "--config-settings=build-dir=build/bench"),
            cwd=tree,
            path=self.environment / "bin",
        )


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
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commits = {"this": "HEAD"} | ({} if arguments.no_base else {"base": arguments.base})
        try:
            for side, commit in commits.items():
                git("worktree", "add", "--detach", str(folder / side), commit)
            compare(folder, arguments.base, tuple(commits))
        finally:
            for side in commits:
                shutil.rmtree(folder / side, ignore_errors=True)
            git("worktree", "prune")


def compare(folder: Path, base: str, sides: tuple[str, ...]) -> None:
    builder = Builder(folder)
    costs = {side: builder.wheel(folder / side) for side in sides}
    if "base" in costs:
        show("from nothing, the other commit", costs["base"])
        ratio = costs["this"].cpu / costs["base"].cpu
        missed = ", missed" if ratio > 0.5 else ""
        show("from nothing", costs["this"], f"processor time at most 0.5 of it{missed}", f"{ratio:.2f}")
    else:
        show("from nothing", costs["this"])
    tree = folder / "this"
    show("nothing changed", builder.wheel(tree))
    for what, patterns, goal in TOUCHED:
        file = touched_file(tree, patterns)
        file.touch()
        cost = builder.wheel(tree)
        show(what, cost, f"wall at most {goal} s" + (", missed" if cost.wall > goal else ""))
    [wheel] = (tree / "build/bench-wheels").glob("*.whl")
    record(
        "Size of the wheel", "the wheel", size=f"{wheel.stat().st_size / 1e6:.1f} MB", goal="at most 15 MB"
    )
    record.save()


if __name__ == "__main__":
    main()
