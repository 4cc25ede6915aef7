"""``python -m popsr check``: what programs use of PopXL and popsr lacks, with file, line and column."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import popsr
from popsr._support.host.garbage import collected_rarely
from popsr._support.text.annotations import Annotation, finding_record
from popsr._support.text.answers import Answer, add_format, answer, error_of, parse
from popsr.compat._check.project import Project, python_files
from popsr.compat._check.scan import Finding, scan
from popsr.errors import FileError

__all__ = ["main"]

_DESCRIPTION = """List every name, parameter, option and value of popxl, popxl_addons, popart, popdist and stochastorch
that programs use and popsr lacks or refuses, and what else of them no longer imports, as far as that can be told
without running them. Modules that a program imports from beside it are read too."""
_EPILOG = """exit status: 0 if the programs run as far as names go, 1 if not, 2 if a file cannot be read. Lines with
"note:" do not count."""


@dataclass
class _Report:
    """All that is said."""

    files: list[Path] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    unreadable: list[FileError] = field(default_factory=list)
    not_read: int = 0

    @property
    def missing(self) -> int:
        """Number of different causes that keep the programs from running."""
        return len({each.text for each in self.findings if not each.note and each.kind != "syntax"})

    @property
    def notes(self) -> list[Finding]:
        """Findings that do not keep the programs from running."""
        return [each for each in self.findings if each.note]

    @property
    def runs(self) -> bool:
        """True if all files were read and nothing is missing."""
        return not self.missing and not self.not_read


def main(argv: Sequence[str]) -> int:
    """Print what is missing, a line each; returns 0 if nothing is, 2 if a file cannot be read, else 1."""
    parser = argparse.ArgumentParser("python -m popsr check", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument(
        "scripts", nargs="+", metavar="path", help="a script, or a folder with scripts in it and below"
    )
    add_format(parser)
    options = parse("check", parser, argv)
    return answer(
        "check", options.format, lambda: _answer(options.scripts), lambda kind: f"{kind}, expected programs"
    )


def _answer(scripts: Sequence[str]) -> Answer:
    with collected_rarely():
        report = _read([Path(each) for each in scripts])
    return Answer(
        2 if report.unreadable else int(not report.runs),
        lambda: "\n".join([*map(_line, report.findings), _summary(report)]),
        lambda: _as_json(report),
        lambda: map(_annotation, report.findings),
        [error_of(each, str) for each in report.unreadable],
    )


def _read(paths: Sequence[Path]) -> _Report:
    """Read all files, and then each with what all others do."""
    project, report = Project(), _Report()
    for path in paths:
        try:
            for file in python_files(path):
                project.add(file, path if path.is_dir() else None)
        except FileError as error:
            project.problems.append((path, error))
    result = scan(project)
    report.used = result.used
    for path, problem in project.problems:
        if isinstance(problem, SyntaxError):
            place = problem.lineno or 1, problem.offset or 1
            result.found.append(Finding(path, *place, "syntax", f"syntax error: {problem.msg}"))
        elif isinstance(problem, FileError):
            report.unreadable.append(problem)
    failed = {path for path, _ in project.problems}
    report.not_read = len(failed)
    report.files = [each.path for each in project.modules.values() if each.path not in failed]
    order = {each.path: i for i, each in enumerate(project.modules.values())}
    report.findings = sorted(result.found, key=lambda each: (order[each.path], each))
    return report


def _line(finding: Finding) -> str:
    found = _annotation(finding)
    return f"{found.location}: {'note: ' if finding.note else ''}{found.text}"


def _annotation(finding: Finding) -> Annotation:
    hint = f"; did you mean {finding.suggestion}?" if finding.suggestion else ""
    place = f"{finding.path}:{finding.line}:{finding.column}"
    return Annotation(finding.kind, f"{finding.text}{hint}", place, "note" if finding.note else "error")


def _as_json(report: _Report) -> dict[str, object]:
    """The object that docs/old_programs.md describes."""
    return {
        "popsr": popsr.__version__,
        "files": [str(each) for each in report.files],
        "findings": [
            finding_record(_annotation(each))
            | {
                "path": str(each.path),
                "line": each.line,
                "column": each.column,
                "kind": each.kind,
                "text": each.text,
                "suggestion": each.suggestion or None,
                "note": each.note,
            }
            for each in report.findings
        ],
        "summary": {
            "scripts": len(report.files),
            "names": len(report.used),
            "missing": report.missing,
            "notes": len(report.notes),
            "not_read": report.not_read,
            "runs": report.runs,
        },
    }


def _summary(report: _Report) -> str:
    counts = [_count(len(report.files), "script"), f"{_count(len(report.used), 'name')} used"]
    if report.missing:
        counts.append(f"{report.missing} missing")
    if report.not_read:
        counts.append(f"{_count(report.not_read, 'file')} not read")
    if report.notes:
        counts.append(_count(len(report.notes), "note"))
    verdict = "runs as far as names go" if report.runs else "does not run yet"
    return f"check: {', '.join(counts)}: {verdict}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
