"""``python -m popsr plan``: the messages that a program's session would move between ranks, without any."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn
from unittest import mock

from popsr._program.ir import Ir
from popsr._session.session import Session
from popsr._support.text.amounts import bytes_text, time_text
from popsr.analysis import communication
from popsr.compat._commands.run import parse_program, prepare, run_program
from popsr.errors import Error

__all__ = ["main"]


class _Planned(BaseException):
    """Ends the program at the session that is planned: nothing that it would do with it is of use."""


def main(argv: Sequence[str]) -> int:
    """Run the program up to its session, and print the plan; returns the exit status."""
    options = _parse(argv)
    try:
        prepare(options.program, options.is_module, options.force)
        with mock.patch.object(Session, "__init__", _planning(options)):
            run_program((), options.program[0], options.is_module)
    except _Planned:
        return 0
    except Error as error:
        print(f"popsr: {error}", file=sys.stderr)
        return 2
    print(
        f"popsr: plan: the program made {options.made} sessions, expected {options.session} or more",
        file=sys.stderr,
    )
    return 2


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m popsr plan",
        description="Run a program until it makes a session, and print what that moves between ranks of MPI in one "
        "run: a row for each line, the slowest first, with the least time that its messages take.",
    )
    parser.add_argument(
        "--ranks",
        type=_positive(int),
        action="append",
        required=True,
        help="number of ranks; may be given again",
    )
    parser.add_argument(
        "--bandwidth",
        type=_positive(float),
        default=25e9,
        help="bytes per second of a rank in each direction (25e9)",
    )
    parser.add_argument(
        "--latency", type=_positive(float), default=2e-6, help="seconds of a message without bytes (2e-6)"
    )
    parser.add_argument("--session", type=_positive(int), default=1, metavar="N", help="the N-th session (1)")
    options = parse_program(parser, argv)
    options.made = 0
    return options


def _positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise ValueError
        return value

    read.__name__ = f"positive {kind.__name__}"
    return read


def _planning(options: argparse.Namespace) -> Callable[..., None]:
    """The constructor of sessions that prints the plan of one of them in place of making it."""
    construct = Session.__init__

    @functools.wraps(construct)
    def make(self: Session, ir: Ir, *args: Any, **kwargs: Any) -> None:
        options.made += 1
        if options.made < options.session:
            construct(self, ir, *args, **kwargs)
            return
        _print(ir, options)

    return make


def _print(ir: Ir, options: argparse.Namespace) -> NoReturn:
    links = {"bandwidth": options.bandwidth, "latency": options.latency}
    print(
        f"{ir.replication_factor} replicas; {bytes_text(options.bandwidth)}/s in each direction, "
        f"{time_text(options.latency)} a message"
    )
    for ranks in options.ranks:
        print(communication(ir, ranks=ranks).table(**links))
    raise _Planned
