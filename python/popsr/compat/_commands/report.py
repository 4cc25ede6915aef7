"""``python -m popsr report``: the reports of a program's sessions, after it ran or as its sessions are made."""

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
    proofs: list[None] = []
    failed: BaseException | None = None
    try:
        prepare(options.program, options.is_module, options.force)
        with (
            mock.patch.object(Session, "__init__", _noting(options, sessions)),
            mock.patch.object(BridgedStep, "prove", _counting(proofs)),
        ):
            run_program((), options.program[0], options.is_module)
    except _Made:
        pass
    except Error as error:
        failed = error
        print(f"popsr: {error}", file=sys.stderr)
    except SystemExit as error:
        failed = error if error.code not in (None, 0) else None
    if not sessions:
        if failed is None:
            print(f"popsr: report: the program made 0 sessions, {_instead(len(proofs))}", file=sys.stderr)
        return 2
    try:
        for number, session in enumerate(sessions, 1):
            _write(options, session, number)
    except Error as error:
        print(f"popsr: {error}", file=sys.stderr)
        return 2
    return 0 if failed is None else 2


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m popsr report",
        description="Run a program, then write what is known of each session that it made: lints, variables, memory, "
        "collectives, time, graph. One HTML file for each session; it needs no server and no network.",
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


def _counting(proofs: list[None]) -> Callable[..., Proof]:
    """The method that proves a step and also notes that it did."""
    prove = BridgedStep.prove

    @functools.wraps(prove)
    def counted(self: BridgedStep, **options: Any) -> Proof:
        proofs.append(None)
        return prove(self, **options)

    return counted


def _instead(proofs: int) -> str:
    """The way to a page for a program without sessions."""
    if not proofs:
        return "expected 1 or more"
    return (
        f"but {proofs} proof{'' if proofs == 1 else 's'}: proof.save_html(path) writes the page of a proof, "
        "popsr.Session(proof.step.ir).report(path) that of its program"
    )


def _write(options: argparse.Namespace, session: Session, number: int) -> None:
    if options.text:
        print(session.report(), end="")
        return
    path = Path(options.output)
    if number > 1:
        path = path.with_name(f"{path.stem}-{number}{path.suffix}")
    session.report(path)
    ranks = session._access.ranks
    if ranks is None or ranks.rank == 0:
        print(f"popsr: report of session {number}: {path}")
