"""``python -m popsr run``: a script or module as its own program, with PopXL's imports.

On ranks of MPI an exception that leaves the program on one of them ends all, as under ``python -m mpi4py``.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence

from popsr._session.ranks.ends import abort
from popsr._support.text.shown import shown
from popsr.compat._finder import install
from popsr.errors import Error, FileError

__all__ = ["main", "parse_program", "prepare", "run_program"]


def main(argv: Sequence[str]) -> int:
    """Run the program; returns the exit status, unless the program raises SystemExit itself."""
    parser = argparse.ArgumentParser(
        "python -m popsr run", description="Run a program whose imports of PopXL find popsr."
    )
    parser.add_argument("--force", action="store_true", help="also where PopXL itself is installed")
    parser.add_argument(
        "--with",
        dest="entries",
        action="append",
        default=[],
        metavar="FILE",
        help="run this Python file first: functions for operators in C++, see popsr.compat.custom_op",
    )
    parser.add_argument("-m", dest="is_module", action="store_true", help="the program is a module")
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, help="script.py, or the module, and its arguments"
    )
    options = parser.parse_args(argv)
    if not options.program:
        parser.error("a script or a module is needed")
    try:
        for entry in options.entries:
            if not os.path.isfile(entry):
                raise _not_found(f"run: no such file for --with, got {shown(entry)}, expected a Python file")
        prepare(options.program, options.is_module, options.force)
    except Error as error:
        print(f"popsr: {error}", file=sys.stderr)
        return 2
    try:
        run_program(options.entries, options.program[0], options.is_module)
    except BaseException as error:
        _end_all_ranks(error)
        raise
    return 0


def parse_program(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Arguments of a command that runs a program: its own, and the program with those that are the program's.

    Args:
        parser: has the options of the command.
        argv: the arguments.
    Returns:
        The options, with ``force``, ``is_module`` and ``program``, a list that begins with the script or module.
    """
    parser.add_argument("--force", action="store_true", help="also where PopXL itself is installed")
    parser.add_argument("-m", dest="is_module", action="store_true", help="the program is a module")
    parser.add_argument(
        "program", help="script.py, or the module; further arguments, and all behind --, are its own"
    )
    end = list(argv).index("--") if "--" in argv else len(argv)
    own, more = list(argv[:end]), list(argv[end + 1 :])
    options, others = parser.parse_known_args(own)
    options.program = [options.program, *others, *more]
    return options


def run_program(entries: Sequence[str], program: str, is_module: bool) -> None:
    """Run files, then the program as ``__main__``: after ``prepare``."""
    for entry in entries:
        runpy.run_path(entry, run_name="popsr_entries")
    if is_module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")


def _end_all_ranks(error: BaseException) -> None:
    """Let this process end all ranks of MPI when it ends, after Python has printed the error once."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized() or mpi.COMM_WORLD.size == 1:
        return
    if not isinstance(error, SystemExit):
        importlib.import_module("mpi4py.run").set_abort_status(error)
    elif error.code not in (None, 0):
        if not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        abort(mpi, error.code if isinstance(error.code, int) else 1)


def prepare(program: Sequence[str], is_module: bool, force: bool) -> None:
    """Steps of the interpreter before a program starts, and the aliases. Nothing is undone: threads may go on."""
    name = program[0]
    if not is_module and not _is_program(name):
        raise _not_found(f"run: no such program, got {shown(name)}, expected a Python script")
    if not is_module and not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(name))
    install(force=force)
    if is_module and not _is_module(name):
        raise _not_found(f"run: no such module, got {shown(name)}, expected a module that can run")
    sys.argv = list(program)


def _is_program(path: str) -> bool:
    return os.path.isfile(path) or os.path.isfile(os.path.join(path, "__main__.py"))


def _is_module(name: str) -> bool:
    if name.startswith("."):
        return False
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # by the code of a package above
        return False
    except ValueError:
        return False
    return spec is not None


def _not_found(text: str) -> FileError:
    error = FileError(text)
    error.errno = errno.ENOENT
    return error
