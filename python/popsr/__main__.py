"""``python -m popsr``: the demo, programs written for PopXL, the tables of ops and options, and the version."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

USAGE = """usage: python -m popsr <command>

commands:
  run script.py [ARGS]    run a program that imports popxl, popxl_addons or popart; `run -m module` runs a module,
                          `mpiexec -n 4 python -m popsr run script.py` runs on four ranks of MPI
  plan script.py --ranks N [--bandwidth B] [--latency S]
                          print the messages that the program's session would move between N ranks of MPI in a run,
                          and the least time that they take; nothing of the session runs
  report script.py [-o FILE] [--text] [--static] [ARGS]
                          run a program and write a report of each of its sessions, or else proofs: lints, variables,
                          memory, collectives, time, graph; with --static before anything of the session runs
  prove script.py::step [--like "one device"] [--mesh data=4,model=2] [--replicas N] [--html FILE]
                          prove a training step of JAX or PyTorch without running it; exits with 1 when it is not ok
  audit PATH [--groups FILE]
                          compare checkpoints or hash logs of all ranks of a job with the groups that should hold equal
                          bits; exits with 1 when a parameter drifts
  check PATH ...          list what scripts and folders use of popxl and its kin and popsr lacks; runs nothing
  diff a.rec b.rec        name the first difference between two recordings of popsr.record, and its cause
  demo [--data DIR] ...   train replicated models on real data; `demo --help` has all options
  ops [--markdown]        print the table of ops: dtypes, gradient, which replicas agree, form in place
  options [--markdown]    print the table of session options: values, defaults, effects
  help NAME ...           explain an error or a lint, as `help ShapeError` or `help L2`: what causes it, what helps; of
                          a command its options, as `help prove`
  version                 print the version

prove, audit, check, diff and plan take --format text, json, sarif (code scanning) or github (lines of a pull request)
"""

_LISTINGS = {
    "audit": "popsr.bridge.audit._main",
    "check": "popsr.compat._check.check",
    "diff": "popsr._tools.record.command",
    "ops": "popsr._tools.show.ops_table",
    "options": "popsr._program.options.page",
    "plan": "popsr.compat._commands.plan",
    "prove": "popsr.bridge._proof.command",
    "report": "popsr.compat._commands.report",
}

_COMMANDS = sorted({*_LISTINGS, "demo", "help", "run", "version"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    command = args[0] if args else "--help"
    if command == "demo":
        return int(importlib.import_module("popsr.demo").main(args[1:]) or 0)
    if command == "run":
        return int(importlib.import_module("popsr.compat._commands.run").main(args[1:]))
    if command in _LISTINGS:
        return int(importlib.import_module(_LISTINGS[command]).main(args[1:]))
    if command in ("version", "--version"):
        print(importlib.import_module("popsr").__version__)
        return 0
    if command == "help" and args[1:] and args[1] in _COMMANDS:
        return main([args[1], "--help"])
    if command == "help" and args[1:]:
        return int(importlib.import_module("popsr._tools.help").main(args[1:]))
    if command in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0 if args else 2
    expected = importlib.import_module("popsr._support.text.nearest").nearest(command, _COMMANDS)
    print(
        f"popsr: unknown command, got {command!r}, expected {expected or ', '.join(_COMMANDS)}; "
        "`popsr --help` explains all",
        file=sys.stderr,
    )
    return 2


class _Output(io.FileIO):
    """The bytes of stdout.

    Attributes:
        problem: why some of them are lost.
    """

    problem: OSError | None = None

    def write(self, data: Buffer, /) -> int:
        """Write bytes, and keep the error, which a file forgets."""
        try:
            return super().write(data)
        except OSError as error:
            self.problem = error
            raise


def _open_output() -> _Output:
    """Put streams in the place of those that are closed, else files that are opened later take their descriptors."""
    if sys.stderr is None:
        sys.stderr = _on_null(2, os.O_WRONLY)
    if sys.stdout is None:
        sys.stdout = _on_null(1, os.O_RDONLY)  # which refuses to be written
    old, output = sys.stdout, _Output(1, "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(output),
        old.encoding,
        old.errors,
        line_buffering=bool(old.line_buffering),
        write_through=getattr(old, "write_through", False),
    )
    return output


def _on_null(descriptor: int, flags: int) -> io.TextIOWrapper:
    os.dup2(os.open(os.devnull, flags), descriptor)
    return io.TextIOWrapper(io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False)))


def run() -> int:
    """Run the command of this process; in the place of a traceback of stdout's errors is a line on stderr.

    Readers such as ``head`` that have enough are no error to tell of.
    """
    if sys.argv[1:2] == ["run"]:  # a program's streams are its own
        return main()
    command = " ".join(sys.argv[1:2]) or "help"  # a program that the command runs has other arguments
    output, status = _open_output(), 1
    try:
        try:
            status = main()
        finally:
            sys.stdout.flush()
    except BaseException:
        if output.problem is None:
            raise
    if output.problem is None:
        return status
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes once more at its end
    if isinstance(output.problem, BrokenPipeError):
        return 1
    got = output.problem.strerror
    print(
        f"popsr: {command}: cannot write to stdout, got {got}, expected a stream that takes all",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    sys.exit(run())
