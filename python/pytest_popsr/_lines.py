"""Tracebacks that pytest shows of a finding: one entry, at the line of the user's program that it is about."""

from __future__ import annotations

import ast
import linecache
from types import TracebackType

from popsr._support.text.frames import file_and_line

__all__ = ["entry_at"]

_ABOVE = 12
"""Lines of a function that are shown above one of its lines."""


def entry_at(error: BaseException, location: str) -> TracebackType | None:
    """A traceback that ends at a line, as if the error were raised there; None if that line cannot be read.

    Args:
        error: is raised and caught, which changes its own traceback.
        location: ``file:line``.
    """
    file, line = file_and_line(location)
    if not line or not linecache.getline(file, line):
        return None
    first, name = _function(file, line)
    code = compile(_raise_at(linecache.getline(file, line), line - first + 1), file, "exec")
    code = code.replace(co_name=name, co_firstlineno=first)  # lines of code are counted from its first
    before, error.__traceback__ = error.__traceback__, None
    try:
        exec(code, {"error": error, "__name__": name})
    except BaseException as raised:
        traceback, error.__traceback__ = raised.__traceback__, before
        return None if traceback is None else traceback.tb_next
    return None


def _raise_at(source: str, number: int) -> ast.Module:
    """``raise error`` in the place of a line, as tracebacks mark columns."""
    tree = ast.parse("raise error")
    text = source.rstrip().encode()
    for each in ast.walk(tree):
        if isinstance(each, (ast.stmt, ast.expr)):
            each.lineno = each.end_lineno = number
            each.col_offset, each.end_col_offset = len(text) - len(text.lstrip()), len(text)
    return tree


def _function(file: str, line: int) -> tuple[int, str]:
    """First line that is shown, and name, of the innermost function that has a line."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return line, "<module>"
    around = [
        each
        for each in ast.walk(tree)
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
        and each.lineno <= line <= (each.end_lineno or 0)
    ]
    if not around:
        return line, "<module>"
    inner = max(around, key=lambda each: each.lineno)
    return max(inner.lineno, line - _ABOVE), inner.name
