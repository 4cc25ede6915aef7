"""Findings as programs read them: plain values, SARIF for code scanning, and annotations of GitHub's log."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

__all__ = ["Annotation", "Level", "finding_record", "github_line", "sarif_log"]

Level = Literal["error", "warning", "note"]

_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
_GITHUB: Mapping[Level, str] = {"error": "error", "warning": "warning", "note": "notice"}


class Annotation(NamedTuple):
    """A finding, where possible at a line of the user.

    Attributes:
        rule: short name of its kind, as "drift" or "L10".
        text: the finding in one line.
        location: ``file:line`` or ``file:line:column``; empty if no line is known.
        level: "error" if it makes the command's exit status other than 0.
    """

    rule: str
    text: str
    location: str = ""
    level: Level = "error"


def finding_record(each: Annotation) -> dict[str, Any]:
    """A finding as plain values; file, line and column are None where they are not known."""
    found = _position(each.location)
    place = (None, None, None) if found is None else (found.path, found.line, found.column or None)
    keys = ("rule", "level", "text", "file", "line", "column")
    return dict(zip(keys, (each.rule, each.level, each.text, *place), strict=True))


def github_line(each: Annotation) -> str:
    """A command of a workflow's log; see "Workflow commands" in GitHub's documentation."""
    found = _position(each.location)
    properties = {"title": f"popsr {each.rule}"}
    if found is not None:
        properties = {"file": found.path, "line": str(found.line)} | properties
        if found.column:
            properties["col"] = str(found.column)
    listed = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in properties.items())
    return f"::{_GITHUB[each.level]} {listed}::{_escaped(each.text)}"


def sarif_log(findings: Iterable[Annotation], errors: Iterable[Annotation], status: int) -> dict[str, Any]:
    """One run in SARIF 2.1.0.

    Args:
        findings: of the command.
        errors: why it could not read something; they are results too, as viewers show nothing else.
        status: the exit status.
    """
    refused = list(errors)
    found = [*refused, *findings]
    rules = [*dict.fromkeys(each.rule for each in found)]
    driver = {
        "name": "popsr",
        "semanticVersion": importlib.import_module("popsr").__version__,
        "rules": [{"id": rule, "shortDescription": {"text": _meaning(rule)}} for rule in rules],
    }
    notices = [{"level": "error", "message": {"text": each.text}, **_locations(each)} for each in refused]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"uri": Path.cwd().as_uri().rstrip("/") + "/"}},
        "invocations": [
            {
                "executionSuccessful": not refused,
                "exitCode": status,
                "toolExecutionNotifications": notices,
            }
        ],
        "results": [_sarif_result(each, rules.index(each.rule)) for each in found],
    }
    return {"$schema": _SARIF, "version": "2.1.0", "runs": [run]}


class _Position(NamedTuple):
    """A place in a file; lines and columns count from 1, and a column of 0 is the whole line."""

    path: str
    line: int
    column: int


def _position(location: str) -> _Position | None:
    """The place of ``file:line`` or ``file:line:column``; files below the current folder are relative to it."""
    path, numbers = location, list[int]()
    while len(numbers) < 2:
        head, mark, last = path.rpartition(":")
        if not mark or not last.isdecimal():
            break
        path, numbers = head, [int(last), *numbers]
    if not path or not numbers:
        return None
    line, column = (*numbers, 0)[:2]
    file, here = Path(path), Path.cwd()
    below = file.relative_to(here) if file.is_absolute() and file.is_relative_to(here) else file
    return _Position(below.as_posix(), max(line, 1), column)


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(c):02X}" if c in f"%\r\n{more}" else c for c in text)


def _meaning(rule: str) -> str:
    return _MEANINGS.get(rule, f"see: python -m popsr help {rule}" if rule[:1] == "L" else rule)


_MEANINGS = {
    "error": "something could not be read",
    "drift": "replicas of a declared group may differ",
    "undeclared": "initial values differ and no groups are declared",
    "same": "the step does not train as its reference does",
    "unknown": "a value could not be compared with the reference",
}
"""Rules that have no page of help."""


def _sarif_result(each: Annotation, index: int) -> dict[str, Any]:
    return {
        "ruleId": each.rule,
        "ruleIndex": index,
        "level": each.level,
        "message": {"text": each.text},
        **_locations(each),
    }


def _locations(each: Annotation) -> dict[str, Any]:
    found = _position(each.location)
    if found is None:
        return {}
    artifact: dict[str, Any] = {
        "uri": Path(found.path).as_uri() if os.path.isabs(found.path) else quote(found.path)
    }
    if not os.path.isabs(found.path):
        artifact["uriBaseId"] = "SRCROOT"
    region = {"startLine": found.line} | ({"startColumn": found.column} if found.column else {})
    return {"locations": [{"physicalLocation": {"artifactLocation": artifact, "region": region}}]}
