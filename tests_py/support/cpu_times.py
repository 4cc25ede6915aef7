"""Processor time of each test, with that of the processes that it started: ``pytest --cpu-times`` prints the dearest.

A budget is printed, not asserted: time differs between machines, and from run to run.
"""

from __future__ import annotations

import collections
import contextlib
import os
import resource
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["BUDGET", "CpuTimes", "add_option", "spent"]

BUDGET = 1.0
"""Seconds of processor time that a test without the mark `slow` may take."""

_KEY = "processor time"
_ROOMS = 25


def spent() -> float:
    """Seconds of processor time of this process, of all that it started, and of what these started."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF)
    seconds = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    return seconds + sum(_ticks(pid) for pid in _started(os.getpid())) / os.sysconf("SC_CLK_TCK")


def _started(pid: int) -> Iterator[int]:
    """Processes that the first thread of a process started and that are there, with theirs."""
    with contextlib.suppress(OSError):
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            yield child
            yield from _started(child)


def _ticks(pid: int) -> int:
    """Clock ticks of a process and of its children that have ended."""
    with contextlib.suppress(OSError):
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return 0


def add_option(group: pytest.OptionGroup) -> None:
    """Let a run ask for the times."""
    group.addoption(
        "--cpu-times",
        metavar="N",
        type=int,
        nargs="?",
        const=30,
        help="prints the processor time of the N tests that take most (30), and of those above the budget",
    )


class CpuTimes:
    """Notes what each test spends; workers of xdist send it with the report of the test's end."""

    def __init__(self, shown: int) -> None:
        """Nothing yet."""
        self._shown = shown
        self._begun = 0.0
        self._times: dict[str, float] = {}
        self._whole = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        """Begin to count."""
        self._begun = spent()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """Write the time into the last report of the test."""
        report = yield
        if call.when == "teardown":
            report.user_properties.append((_KEY, max(0.0, spent() - self._begun)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Read the time from it."""
        if report.when == "teardown":
            self._times[report.nodeid] = sum(float(str(v)) for k, v in report.user_properties if k == _KEY)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Count imports and the collection of tests, too."""
        output = getattr(session.config, "workeroutput", None)
        if output is None:
            self._whole += spent() if not session.config.getoption("numprocesses", None) else 0.0
        else:
            output[_KEY] = spent()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a worker spent."""
        self._whole += getattr(node, "workeroutput", {}).get(_KEY, 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print rooms and tests, the dearest first."""
        for line in _summary(self._times, self._whole, self._shown):
            terminalreporter.write_line(line)


def _summary(times: dict[str, float], whole: float, shown: int) -> Iterator[str]:
    """Lines of the summary."""
    total, above = sum(times.values()), sum(seconds > BUDGET for seconds in times.values())
    yield (
        f"processor time: {whole:.0f} s, {total:.0f} s of them in {len(times)} tests, "
        f"of which {above} take more than the budget of {BUDGET:g} s"
    )
    rooms = collections.defaultdict[str, float](float)
    for test, seconds in times.items():
        rooms["/".join(test.partition("::")[0].split("/")[1:3])] += seconds
    for each, count in ((rooms, _ROOMS), (times, shown)):
        dearest = sorted(each.items(), key=lambda item: -item[1])[:count]
        yield from (f"{seconds:8.2f} s  {name}" for name, seconds in dearest)
