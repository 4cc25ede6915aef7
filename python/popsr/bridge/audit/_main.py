"""The command line of audits: ``python -m popsr audit``."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from popsr._support.host.arguments import read_path
from popsr._support.host.files import file_errors
from popsr._support.text.annotations import Annotation
from popsr._support.text.answers import Answer, add_format, answer, parse
from popsr.bridge.audit._between import between
from popsr.bridge.audit._compare import audit
from popsr.bridge.audit._findings import AuditReport
from popsr.bridge.audit._hashes import audit_log
from popsr.errors import AttributeValueError

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Compare, and print what was found.

    Returns:
        0 when all is equal that should be; 1 when a parameter drifts; 2 when a file cannot be read, whatever drifts, or
        when files are missing.
    """
    parser = argparse.ArgumentParser(
        prog="python -m popsr audit",
        description="Compare checkpoints or hash logs of all ranks of a job.",
    )
    parser.add_argument(
        "source", help="a folder, a pattern with {rank}, or logs that end in .jsonl", nargs="*"
    )
    parser.add_argument(
        "--groups",
        help="'all', 'none', sets as '{0,1}{2,3}', axes as 'dp', or a JSON or YAML file of patterns",
    )
    parser.add_argument("--ranks", type=int, help="number of ranks, if some have no files")
    parser.add_argument(
        "--between", nargs=2, metavar=("A", "B"), help="compare two jobs, folders or files, with each other"
    )
    parser.add_argument(
        "--whole", action="store_true", help="join the shards of each job, as of DeepSpeed ZeRO"
    )
    parser.add_argument("--html", metavar="PAGE", help="write the findings as a page, too")
    add_format(parser)
    args = parse("audit", parser, argv)
    return answer(
        "audit",
        args.format,
        lambda: _answer(args),
        lambda kind: f"{kind}, expected files that can be compared",
    )


def _answer(args: argparse.Namespace) -> Answer:
    report = _report(args)
    errors = [Annotation("error", f"audit: {each}") for each in report.damaged]
    status = 2 if errors else 1 if report.drifts else 0 if report.ok else 2
    if args.html is not None:
        _write(read_path("audit: html", args.html), report)
    return Answer(status, lambda: str(report), lambda: _record(report), lambda: _annotations(report), errors)


def _write(path: Path, report: AuditReport) -> None:
    page = f"<!DOCTYPE html><meta charset='utf-8'><title>popsr audit</title>{report._repr_html_()}\n"
    with file_errors("audit", "write", path):
        path.write_text(page, encoding="utf-8")


def _report(args: argparse.Namespace) -> AuditReport:
    if args.between is not None:
        if args.source or args.groups is not None or args.ranks is not None:
            raise AttributeValueError(
                "audit: --between takes two paths and no other sources, groups or ranks"
            )
        return between(*args.between, whole=args.whole)
    if not args.source:
        raise AttributeValueError(
            "audit: no source, expected a folder, a pattern with {rank}, logs, or --between"
        )
    is_log = all(_is_log(Path(each)) for each in args.source)
    if not is_log and len(args.source) > 1:
        raise AttributeValueError(
            f"audit: got {len(args.source)} paths, expected one folder or pattern, or logs that end in .jsonl"
        )
    files = args.source if len(args.source) > 1 else args.source[0]
    if not is_log:
        return audit(files, args.groups, ranks=args.ranks, whole=args.whole)
    if args.whole:
        raise AttributeValueError(
            "audit: logs of hashes have nothing to join, expected checkpoints with --whole"
        )
    return audit_log(files, "all" if args.groups is None else args.groups, ranks=args.ranks)


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
