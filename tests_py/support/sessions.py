"""Options of pytest for the sessions of noxfile.py: which tests a session runs, and what may be missing where it runs.

A test is skipped for want of a package, which the reason names, or because of the machine: another reason fails.
"""

from __future__ import annotations

import ast
import collections
import functools
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests_py import ROOT
from tests_py.support.cpu_times import CpuTimes, add_option

ANY = "any"
# `pytest.importorskip` says the first, of the module that was to be imported.
PACKAGE = re.compile(
    r"could not import '(\w+)|^(?:Skipped: )?needs (\w+)$|^(?:Skipped: )?(\w+) is not installed\b"
)
# Causes of skips that are no package of Python: instruction sets, tools of the system, versions of the peers.
MACHINE = re.compile(
    r"this (?:CPU|machine) |other CPUs |level v2 has |file system has none|only root |chromium|needs nm |"
    r"needs the history|C\+\+ compiler|LD_PRELOAD|this torch has no |this viztracer has no |"
    r"PyTorch without torch\.distributed|needs JAX "
)
# Combinations that a table of tests leaves out: not one of them runs anywhere.
NO_CASE = re.compile(r"PyTorch takes a mask|its library writes no such|8-bit floats without infinities alone")


def package_of(reason: str) -> str | None:
    """The package for want of which a test was skipped."""
    found = PACKAGE.search(reason)
    return found and next(filter(None, found.groups()))


def unexplained(reasons: Sequence[str], lacks: Sequence[str]) -> list[str]:
    """Reasons of skips that are neither the machine's nor for want of a package that may be missing."""
    wrong = []
    for reason in sorted(set(reasons)):
        package = package_of(reason)
        allowed = (
            ANY in lacks or package in lacks if package else MACHINE.search(reason) or NO_CASE.search(reason)
        )
        if not allowed:
            wrong.append(reason)
    return wrong


def files_of(file: Path) -> set[Path]:
    """A file of tests, and the modules of the tests that it imports, themselves and through others."""
    seen = {file}
    waiting = [file]
    while waiting:
        new = _imported(waiting.pop()) - seen
        seen |= new
        waiting += new
    return seen


@functools.cache
def _imported(file: Path) -> frozenset[Path]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tests_py"):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    paths = (ROOT / f"{name.replace('.', '/')}.py" for name in names)
    return frozenset(path for path in paths if path.exists())


def mentions(file: Path, packages: str) -> bool:
    """Whether a file of tests, or what it imports of the tests, has the name of one of these packages."""
    return any(_has(each, packages) for each in files_of(file))


@functools.cache
def _has(file: Path, packages: str) -> bool:
    return re.search(packages.replace(",", "|"), file.read_text(), re.IGNORECASE) is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sessions", "sessions of noxfile.py")
    group.addoption(
        "--lacks", metavar="PACKAGES", help=f"skips for want of others fail the run; {ANY}: of no other"
    )
    group.addoption(
        "--ran",
        metavar="FILE",
        type=Path,
        help="names of the tests, or of files of which all ran, are written there",
    )
    group.addoption(
        "--beside", metavar="FILE", type=Path, help="runs the tests that --ran has not written there"
    )
    group.addoption(
        "--mentioning",
        metavar="WORDS",
        help="reads files of tests that have one of these words",
    )
    add_option(group)


def pytest_configure(config: pytest.Config) -> None:
    if (shown := config.getoption("cpu_times")) is not None:
        config.pluginmanager.register(CpuTimes(shown))
    if not hasattr(config, "workerinput"):  # workers of xdist report to their controller
        config.pluginmanager.register(Watch(config))


@functools.cache
def beside(file: Path | None) -> frozenset[str]:
    """Names of the tests, and of the files with all of theirs, that another session ran."""
    return frozenset(file.read_text().split("\n") if file and file.exists() else ())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files without a test for this session are not read: pytest makes an item of each of their thousands of tests."""
    if not collection_path.match("test_*.py"):
        return None
    words = config.getoption("mentioning")
    ran = collection_path.relative_to(config.rootpath).as_posix() in beside(config.getoption("beside"))
    return True if ran or (words and not mentions(collection_path, words)) else None


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is slow
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_shares_to_the_night(items)
    ran = beside(config.getoption("beside"))
    kept = [item for item in items if item.nodeid not in ran]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in ran])
        items[:] = kept


def leave_shares_to_the_night(items: Sequence[pytest.Item]) -> None:
    """The rows that marks ``share(n)`` leave out become slow."""
    rows = collections.defaultdict[str, list[tuple[pytest.Item, int]]](list)
    for item in items:
        if mark := item.get_closest_marker("share"):
            rows[item.nodeid.partition("[")[0]].append((item, mark.args[0]))
    for test, of_test in rows.items():
        for i, (item, of) in enumerate(of_test):
            if not stays(test, i, of, len(of_test)):
                item.add_marker(pytest.mark.slow)


def stays(test: str, row: int, of: int, rows: int) -> bool:
    """Whether a row of a test is among the one of ``of`` that each run has, of a small table its only one.

    Which ones follows from the name of the test, so that tests over one table have other rows of it.
    """
    of = min(of, rows)
    return row % of == zlib.crc32(test.encode()) % of


def _file(name: str) -> str:
    return name.partition("::")[0]


class Watch:
    """Notes which tests ran, and why others were skipped."""

    def __init__(self, config: pytest.Config) -> None:
        self.file: Path | None = config.getoption("ran")
        lacks: str | None = config.getoption("lacks")
        self.lacks = None if lacks is None else lacks.split(",")
        self.ran: list[str] = []
        self.skipped: set[str] = set()  # their files
        self.reasons: list[str] = []
        if self.file:
            self.file.unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and (report.passed or hasattr(report, "wasxfail")):
            self.ran.append(report.nodeid)
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: Any) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.reasons.append(report.longrepr[2])
            self.skipped.add(_file(report.nodeid))

    def unexplained(self) -> list[str]:
        return [] if self.lacks is None else unexplained(self.reasons, self.lacks)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unexplained() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.file and session.exitstatus == pytest.ExitCode.OK:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            whole = {_file(name) for name in self.ran} - self.skipped
            self.file.write_text("\n".join(sorted([*whole, *(x for x in self.ran if _file(x) not in whole)])))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for reason in self.unexplained():
            terminalreporter.write_line(
                f"FAILED: a test was skipped for another cause than the machine, or packages that may be missing here "
                f"({','.join(self.lacks or ()) or 'none'}): {reason}"
            )
