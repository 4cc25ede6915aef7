"""Times sides that each live in a process of their own, by turns: threads of one side cannot take a core from another.

A side is named ``"module:function"``; the function takes the arguments as keywords and returns a function without
arguments, which makes one turn and returns numbers that the sides can be compared by (losses, for example), or None.
The process itself takes the time, so that what crosses the pipe does not count.
"""

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import numpy as np

from bench.sides.compare import Times, by_turns

ROOT = Path(__file__).parents[2]
TURNS = 15


class Side:
    """A process that makes turns when it is called, while the caller waits. ``results`` are those of its first turn."""

    def __init__(self, function: str, **arguments: object) -> None:
        self._start([sys.executable, "-m", "bench.sides.processes", function, json.dumps(arguments)])

    def _start(self, command: list[str], env: Mapping[str, str] | None = None) -> None:
        self.seconds: list[float] = []
        self._peak: int | None = None
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env
        )
        self.results = self._turn()["results"]

    def __call__(self) -> None:
        self.seconds.append(self._turn()["seconds"])

    def _turn(self) -> dict:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    @property
    def times(self) -> Times:
        """Of the turns so far."""
        return Times(min(self.seconds), float(np.median(self.seconds)))

    @property
    def peak_memory(self) -> int:
        """Bytes that the process had resident at most, or since it called ``forget_peak``; also after its end."""
        return _memory(self.process.pid, "VmHWM") if self._peak is None else self._peak

    def __enter__(self) -> "Side":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._peak is None and self.process.poll() is None:
            self._peak = self.peak_memory
        self.process.communicate()


def _memory(process: int | str, name: str) -> int:
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    [line] = [line for line in status if line.startswith(name)]
    return int(line.split()[1]) * 1024


def resident_memory() -> int:
    """Bytes that this process has resident now. A side calls it before it builds its program."""
    return _memory("self", "VmRSS")


def peak() -> int:
    """Bytes that this process had resident at most, since ``forget_peak``."""
    return _memory("self", "VmHWM")


def forget_peak() -> None:
    """Begin the peak of this process anew, with what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def times_of(benchmark, sides: Mapping[str, Side], turns: int = TURNS) -> dict[str, Times]:
    """Best and median seconds of each side, timed in its own process; pytest-benchmark records the first side."""
    with ExitStack() as stack:
        for side in sides.values():
            stack.enter_context(side)
        by_turns(benchmark, sides, turns)
        return {name: side.times for name, side in sides.items()}


def main(function: str, arguments: str) -> None:
    module, name = function.split(":")
    turn = getattr(importlib.import_module(module), name)(**json.loads(arguments))
    while sys.stdin.readline():
        start = time.perf_counter()
        results = turn()
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "results": results}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
