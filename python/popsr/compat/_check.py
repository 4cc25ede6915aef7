"""``python -m popsr check``: what programs use of PopXL and popsr lacks, with file and line."""

from __future__ import annotations

import argparse
import ast
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from popsr._shown import shown
from popsr.compat._scan import Findings, scan
from popsr.errors import FileError

__all__ = ["main"]

_DESCRIPTION = """List every name, parameter and option of popxl, popxl_addons, popart and stochastorch that programs
use and popsr lacks, as far as that can be told without running them."""


def main(argv: Sequence[str]) -> int:
    """Print what is missing, a line each; returns 0 if nothing is, 2 if a file cannot be read, else 1."""
    parser = argparse.ArgumentParser("python -m popsr check", description=_DESCRIPTION)
    parser.add_argument("scripts", nargs="+", metavar="script.py")
    scripts = parser.parse_args(argv).scripts
    findings: list[Findings] = []
    problems: list[Exception] = []
    for script in scripts:
        try:
            findings.append(_findings(Path(script)))
        except SyntaxError as error:
            print(f"{script}:{error.lineno or 1}: syntax error: {error.msg}")
            problems.append(error)
        except FileError as error:
            print(f"popsr: {error}", file=sys.stderr)
            problems.append(error)
        else:
            for line, text in sorted(findings[-1].missing):
                print(f"{script}:{line}: {text}")
    missing = {text for found in findings for _, text in found.missing}
    print(_summary(findings, len(missing), len(problems)))
    if any(isinstance(error, FileError) for error in problems):
        return 2
    return int(bool(missing or problems))


def _findings(script: Path) -> Findings:
    try:
        source = script.read_bytes()
    except OSError as error:
        found = FileError(f"check: cannot read {shown(str(script))}, got {error.strerror or error}")
        found.errno = error.errno
        raise found from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the program's style
            program = ast.parse(source)
        return scan(program)
    except (MemoryError, RecursionError):
        raise SyntaxError("nested too deeply") from None
    except ValueError as error:  # null bytes, for some versions of Python
        raise SyntaxError(str(error)) from None


def _summary(findings: Sequence[Findings], missing: int, problems: int) -> str:
    used = len(set().union(*(found.used for found in findings)))
    summary = (
        f"{_count(len(findings), 'script')}: {_count(used, 'name')} used, {missing or 'nothing'} missing"
    )
    return f"{summary}; {_count(problems, 'script')} not read" if problems else summary


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
