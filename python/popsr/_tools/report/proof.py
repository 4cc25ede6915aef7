"""The report of a proof: its causes and states first, then what is known of its program."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from popsr._session.session import Session
from popsr._support.host.arguments import read_path
from popsr._tools.report.model import Section, Table
from popsr._tools.report.page import Report, report_of, write_report
from popsr._tools.report.source import Source, program_name
from popsr._tools.report.strips import Strips
from popsr.errors import Error, ReplicaWarning

if TYPE_CHECKING:
    from popsr._program.ir import Ir
    from popsr.analysis._explanation import Words

__all__ = ["proof_report"]

_OPEN = 30
"""Rows up to which a table is open at first: longer ones would push the rest off the screen."""


_Part = tuple[str, Sequence[str], Iterable[Sequence[object]]]


def proof_report(
    verdict: str, parts: Iterable[_Part], ir: Ir, words: Words, path: str | os.PathLike[str] | None
) -> Report:
    """See :meth:`popsr.bridge.Proof.report`; a part is a heading, the names of columns, and rows."""
    where = None if path is None else read_path("report: path", path)
    tables = [_table(*part) for part in parts]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReplicaWarning)  # the report has them
            session = Session(ir)
    except Error as error:  # an op that popsr lacks has no kernel
        sentences = (
            verdict,
            f"The program cannot be compiled, so that nothing is said of its memory: {error}",
        )
        report = Report(program_name(), [Section("proof", "Proof", sentences, tables)], Strips())
    else:
        first = Section("proof", "Proof", (verdict,), tables)
        report = report_of(replace(Source.of_session(session), words=words), [first])
    if where is not None:
        write_report(report, where)
    return report


def _table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    cells = [tuple(map(str, row)) for row in rows]
    return Table(header, cells, title, is_open=len(cells) <= _OPEN)
