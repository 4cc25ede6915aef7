"""``python -m popsr report``: the reports of a program's sessions, else of its proofs, after it ran or as it runs."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from popsr._session.session import Session
from popsr.bridge import BridgedStep, Proof
from popsr.compat._commands.run import parse_program, prepare, run_program
from popsr.errors import Error

__all__ = ["main"]


class _Made(BaseException):
    """Ends a program whose session is reported as it is made."""


def main(argv: Sequence[str]) -> int:
    """Run the program and write the reports; returns the exit status."""
    options = _parse(argv)
    sessions: list[Session] = []
    proofs: list[Proof] = []
    failed: BaseException | None = None
    try:
        prepare(options.program, options.is_module, options.force)
        with (
            mock.patch.object(Session, "__init__", _noting(options, sessions)),
            mock.patch.object(BridgedStep, "prove", _keeping(proofs)),
        ):
            run_program((), options.program[0], options.is_module)
    except _Made:
        pass
    except Error as error:
        failed = error
        print(f"popsr: {error}", file=sys.stderr)
    except SystemExit as error:
        failed = error if error.code not in (None, 0) else None
    if not sessions and not proofs:
        if failed is None:
            print(
                "popsr: report: the program made 0 sessions and 0 proofs, expected 1 or more", file=sys.stderr
            )
        return 2
    reported: Sequence[Session | Proof] = sessions or proofs
    try:
        for number, made in enumerate(reported, 1):
            _write(options, made, number)
    except Error as error:
        print(f"popsr: {error}", file=sys.stderr)
        return 2
    return 0 if failed is None else 2


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m popsr report",
        description="Run a program, then write what is known of each session that it made: lints, variables, memory, "
        "collectives, time, graph; of a program without sessions, of each proof. One HTML file for each; it needs no "
        "server and no network.",
    )
    parser.add_argument(
        "-o",
        dest="output",
        default="report.html",
        metavar="FILE",
        help="the file (report.html), of the second session report-2.html; text if it ends in .txt",
    )
    parser.add_argument("--text", action="store_true", help="print the reports as text in place of a file")
    parser.add_argument(
        "--static", action="store_true", help="report the first session as it is made, and run nothing of it"
    )
    parser.add_argument("--profile", action="store_true", help="measure times, as Session(..., profile=True)")
    return parse_program(parser, argv)


def _noting(options: argparse.Namespace, sessions: list[Session]) -> Callable[..., None]:
    """The constructor of sessions that also keeps them."""
    construct = Session.__init__

    @functools.wraps(construct)
    def make(self: Session, *args: Any, **kwargs: Any) -> None:
        if options.profile:
            kwargs["profile"] = True
        construct(self, *args, **kwargs)
        sessions.append(self)
        if options.static:
            raise _Made

    return make


def _keeping(proofs: list[Proof]) -> Callable[..., Proof]:
    """The method that proves a step and also keeps the proof."""
    prove = BridgedStep.prove

    @functools.wraps(prove)
    def kept(self: BridgedStep, **options: Any) -> Proof:
        proofs.append(prove(self, **options))
        return proofs[-1]

    return kept


def _write(options: argparse.Namespace, made: Session | Proof, number: int) -> None:
    if options.text:
        print(made.report(), end="")
        return
    path = Path(options.output)
    if number > 1:
        path = path.with_name(f"{path.stem}-{number}{path.suffix}")
    made.report(path)
    ranks = made._access.ranks if isinstance(made, Session) else None
    if ranks is None or ranks.rank == 0:
        print(f"popsr: report of {'session' if isinstance(made, Session) else 'proof'} {number}: {path}")
