"""The answer of a command: text for people, or JSON, SARIF or GitHub's annotations for programs, and the exit status.

A command that finds nothing ends with 0, one that finds something with 1, and one that cannot read its input with 2. So
it is in each form, and standard output is one document, also of errors.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, NoReturn

from popsr._support.text.annotations import Annotation, finding_record, github_line, sarif_log
from popsr._support.text.one_line import one_line
from popsr._support.text.raised import place_of, without_frames_of_popsr
from popsr.errors import Error

__all__ = ["FORMAT", "Answer", "add_format", "answer", "document", "error_of", "parse", "plain"]

FORMATS = ("text", "json", "sarif", "github")

FORMAT = 1
"""Number of the form of JSON; keys are only added to it."""


class Answer(NamedTuple):
    """A command's answer; what a form does not need is not made.

    Attributes:
        status: the exit status.
        text: makes the text.
        record: makes the attributes of what was found, for JSON.
        findings: makes the findings.
        errors: why some of the input could not be read.
    """

    status: int
    text: Callable[[], str]
    record: Callable[[], Mapping[str, Any]]
    findings: Callable[[], Iterable[Annotation]]
    errors: Sequence[Annotation] = ()


def answer(command: str, form: str, work: Callable[[], Answer], otherwise: Callable[[str], str]) -> int:
    """Run a command, and print its answer.

    Args:
        command: its name.
        form: one of ``FORMATS``.
        work: reads, and compares or proves. Except in text, what it prints goes to stderr.
        otherwise: makes the text about an exception of others' code from its kind: ``x.py raised {kind}``.
    Returns:
        The exit status.
    """
    found = Answer(2, str, dict, tuple)
    try:
        with contextlib.nullcontext() if form == "text" else contextlib.redirect_stdout(sys.stderr):
            found = work()
            text = _written(command, form, found)
    except (Exception, SystemExit) as error:
        if not isinstance(error, Error):
            without_frames_of_popsr(error)
            traceback.print_exception(error)
        found = Answer(2, str, dict, tuple, [error_of(error, lambda kind: f"{command}: {otherwise(kind)}")])
        text = _written(command, form, found)
    for each in found.errors:
        print(f"popsr: {each.text}", file=sys.stderr)
    if text:
        print(text)
    return found.status


def error_of(error: BaseException, otherwise: Callable[[str], str]) -> Annotation:
    """An error as an annotation, where possible at the user's line.

    Args:
        error: an error of popsr, which is told in its words, or another exception.
        otherwise: makes the text of the kind of an exception.
    """
    text = str(error) if isinstance(error, Error) else otherwise(_kind(error))
    return Annotation("error", one_line(text), place_of(error))


def _kind(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}{f' ({one_line(words, 200)})' if words else ''}"


def _written(command: str, form: str, found: Answer) -> str:
    if form == "json":
        return json.dumps(document(command, found), indent=2, allow_nan=False)
    if form == "sarif":
        return json.dumps(sarif_log(found.findings(), found.errors, found.status), indent=2)
    if form == "github":  # the text is the step's log, and each command is a line of its own
        lines = [*map(github_line, found.errors), *map(github_line, found.findings()), found.text()]
        return "\n".join(filter(None, lines))
    return found.text()


def document(command: str, found: Answer) -> dict[str, Any]:
    """The object of ``--format json``, which ``docs/_static/findings.schema.json`` describes."""
    above = {
        "format": FORMAT,
        "popsr": importlib.import_module("popsr").__version__,
        "command": command,
        "status": found.status,
        "errors": [*map(finding_record, found.errors)],
        "findings": [*map(finding_record, found.findings())],
    }
    own: dict[str, Any] = plain(found.record())
    return above | own


def plain(value: Any) -> Any:
    """A value in lists, dictionaries, texts and numbers that JSON has; of numbers that it lacks None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, int):  # and bool
        return value
    if isinstance(value, Integral):  # of NumPy
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return [plain(each) for each in value]
    return value


# Arguments


def add_format(parser: argparse.ArgumentParser) -> None:
    """Give a command the options ``--format`` and ``--json``."""
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="text; json; sarif, for code scanning; github, which marks lines of a pull request in a workflow's log",
    )
    parser.add_argument(
        "--json", action="store_const", dest="format", const="json", help="print JSON, as --format json"
    )


_Read = Callable[[argparse.ArgumentParser, Sequence[str]], argparse.Namespace]


def parse(
    command: str, parser: argparse.ArgumentParser, argv: Sequence[str], read: _Read | None = None
) -> Any:
    """The arguments of a command, whose errors are in the form that they ask for.

    Args:
        command: its name.
        parser: has ``add_format``.
        argv: the arguments.
        read: reads them with the parser. Default: all.
    """
    form = _asked_form(argv)

    def refuse(message: str) -> NoReturn:
        parser.print_usage(sys.stderr)
        found = Answer(2, str, dict, tuple, [Annotation("error", f"{command}: {one_line(message)}")])
        print(f"{parser.prog}: error: {message}", file=sys.stderr)
        text = _written(command, form, found)
        if text:
            print(text)
        parser.exit(2)

    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_args(list(argv)) if read is None else read(parser, argv)


def _asked_form(argv: Sequence[str]) -> str:
    """The form among arguments that may be wrong."""
    found = "text"
    for before, each in zip(("", *argv), argv, strict=False):
        if each == "--json":
            found = "json"
        elif each.startswith("--format="):
            found = each.removeprefix("--format=")
        elif before == "--format":
            found = each
    return found if found in FORMATS else "text"
