"""The command line of audits: ``python -m popsr audit``."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from popsr._support.text.annotations import Annotation
from popsr._support.text.answers import Answer, add_format, answer, parse
from popsr.bridge.audit._compare import audit
from popsr.bridge.audit._findings import AuditReport
from popsr.bridge.audit._hashes import audit_log
from popsr.errors import AttributeValueError

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Compare, and print what was found.

    Returns:
        0 when all is equal that should be; 1 when a parameter drifts; 2 when files are missing or wrong.
    """
    parser = argparse.ArgumentParser(
        prog="python -m popsr audit",
        description="Compare checkpoints or hash logs of all ranks of a job.",
    )
    parser.add_argument(
        "source", help="a folder, a pattern with {rank}, or logs that end in .jsonl", nargs="+"
    )
    parser.add_argument(
        "--groups",
        default="all",
        help="'all', 'none', sets as '{0,1}{2,3}', or a JSON or YAML file of patterns",
    )
    parser.add_argument("--ranks", type=int, help="number of ranks, if some have no files")
    add_format(parser)
    args = parse("audit", parser, argv)
    return answer(
        "audit",
        args.format,
        lambda: _answer(args),
        lambda kind: f"{kind}, expected files that can be compared",
    )


def _answer(args: argparse.Namespace) -> Answer:
    is_log = all(_is_log(Path(each)) for each in args.source)
    if not is_log and len(args.source) > 1:
        raise AttributeValueError(
            f"audit: got {len(args.source)} paths, expected one folder or pattern, or logs that end in .jsonl"
        )
    files = args.source if len(args.source) > 1 else args.source[0]
    compare = audit_log if is_log else audit
    report = compare(files, args.groups, ranks=args.ranks)
    status = 1 if report.drifts else 0 if report.ok else 2
    return Answer(status, lambda: str(report), lambda: _record(report), lambda: _annotations(report))


def _annotations(report: AuditReport) -> Iterator[Annotation]:
    """Drifts and notes; a checkpoint has no line."""
    for drift in report.drifts:
        yield Annotation("drift", str(drift))
    for note in report.notes:
        yield Annotation("incomplete", note)


def _record(report: AuditReport) -> dict[str, Any]:
    """Fields of the report as plain values."""
    return {"ok": report.ok, "summary": repr(report), **dataclasses.asdict(report)}


def _is_log(path: Path) -> bool:
    return path.suffix == ".jsonl" or (path.is_dir() and any(path.rglob("*.jsonl")))
