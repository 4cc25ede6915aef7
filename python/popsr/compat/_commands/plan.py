"""``python -m popsr plan``: the messages that a program's session would move between ranks, without any."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

from popsr._program.ir import Ir
from popsr._session.session import Session
from popsr._support.text.amounts import bytes_text, time_text
from popsr._support.text.annotations import Annotation
from popsr._support.text.answers import Answer, add_format, answer, parse
from popsr.analysis import Communication, communication
from popsr.compat._commands.run import parse_program, prepare, run_program
from popsr.errors import StateError

__all__ = ["main"]


class _Planned(BaseException):
    """Ends the program at the session that is planned: nothing that it would do with it is of use."""


def main(argv: Sequence[str]) -> int:
    """Run the program up to its session, and print the plan; returns the exit status."""
    options = _parse(argv)
    return answer(
        "plan",
        options.format,
        lambda: _answer(options),
        lambda kind: f"{options.program[0]} raised {kind}, expected a session",
    )


def _answer(options: argparse.Namespace) -> Answer:
    """Run the program; what it does after the session that is planned, and how it ends, does not count."""
    prepare(options.program, options.is_module, options.force)
    try:
        with mock.patch.object(Session, "__init__", _planning(options)):
            run_program((), options.program[0], options.is_module)
    except BaseException:
        if options.planned is None:
            raise
    planned: Answer | None = options.planned
    if planned is None:
        raise StateError(
            f"plan: the program made {options.made} sessions, expected {options.session} or more"
        )
    return planned


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
    add_format(parser)
    options: argparse.Namespace = parse("plan", parser, argv, parse_program)
    options.made, options.planned = 0, None
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
    """The constructor of sessions that plans one of them in place of making it."""
    construct = Session.__init__

    @functools.wraps(construct)
    def make(self: Session, ir: Ir, *args: Any, **kwargs: Any) -> None:
        options.made += 1
        if options.made < options.session:
            construct(self, ir, *args, **kwargs)
            return
        if options.planned is None:
            options.planned = _plan(ir, options)
        raise _Planned

    return make


def _plan(ir: Ir, options: argparse.Namespace) -> Answer:
    links = {"bandwidth": options.bandwidth, "latency": options.latency}
    plans = [communication(ir, ranks=ranks) for ranks in options.ranks]
    above = (
        f"{ir.replication_factor} replicas; {bytes_text(options.bandwidth)}/s in each direction, "
        f"{time_text(options.latency)} a message"
    )
    return Answer(
        0,
        lambda: "\n".join([above, *(plan.table(**links) for plan in plans)]),
        lambda: _record(ir, plans, links),
        lambda: _annotations(plans, links),
    )


def _record(ir: Ir, plans: Sequence[Communication], links: Mapping[str, float]) -> dict[str, Any]:
    """Plans as plain values: seconds, and bytes and messages of the rank that has most."""
    return {
        "replicas": ir.replication_factor,
        **links,
        "plans": [
            {
                "ranks": plan.ranks,
                "seconds": plan.seconds(**links),
                "lines": [
                    {
                        "op": row[0].op.kind,
                        "location": row[0].location,
                        "algorithm": row[0].algorithm,
                        "exchanges": len(row),
                        "executions": row[0].executions,
                        "at_most": row[0].is_bound,
                        "value_bytes": row[0].value_bytes,
                        "seconds": sum(each.seconds(**links) for each in row),
                        "limit": row[0].limit(**links),
                    }
                    for row in plan.lines()
                ],
            }
            for plan in plans
        ],
    }


def _annotations(plans: Sequence[Communication], links: Mapping[str, float]) -> Iterator[Annotation]:
    """A note at each line that moves values."""
    for plan in plans:
        for row in plan.lines():
            least = time_text(sum(each.seconds(**links) for each in row))
            text = f"{plan.ranks} ranks: {row[0].op.kind}, at least {least} a run, by {row[0].limit(**links)}"
            yield Annotation("exchange", text, row[0].location, "note")
