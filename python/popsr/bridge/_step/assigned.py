"""Variables of the user's program, from its source: the target of the one assignment that a line belongs to."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator

from popsr._support.text.frames import file_and_line

__all__ = ["variable_at"]

_LATER = (ast.Lambda, ast.GeneratorExp, ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)
"""Expressions whose parts may run at another time than their statement, or for another variable."""


def variable_at(location: str) -> str:
    """The variable for which a line computes, as the source writes it; empty where that is not certain.

    It is certain of a line that belongs to one statement, an assignment to one target, all parts of which run as it
    does: a line of a loop's head, of two statements, of several targets or with a function in it has none.

    Args:
        location: ``file:line``, or a line of a cell.
    """
    file, line = file_and_line(location)
    return _targets("".join(linecache.getlines(file))).get(line, "") if line else ""


@functools.lru_cache(32)
def _targets(source: str) -> dict[int, str]:
    """The variable of each line that has one."""
    try:
        statements = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.stmt)]
    except (SyntaxError, ValueError, RecursionError):
        return {}
    owners: dict[int, list[ast.stmt]] = {}
    for each in statements:
        for line in {line for part in _own(each) for line in _lines(part)}:
            owners.setdefault(line, []).append(each)
    return {
        line: target for line, [first, *more] in owners.items() if not more and (target := _target(first))
    }


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """A statement without those inside of it: its keyword, and its expressions."""
    yield statement
    for each in ast.iter_child_nodes(statement):
        waiting = [each]
        while waiting:
            node = waiting.pop()
            if not isinstance(node, ast.stmt):
                yield node
                waiting += ast.iter_child_nodes(node)


def _lines(part: ast.AST) -> range:
    first = getattr(part, "lineno", 0)
    is_compound = isinstance(part, ast.stmt) and hasattr(part, "body")
    is_group = isinstance(part, (ast.ExceptHandler, ast.match_case))
    last = first if is_compound or is_group else getattr(part, "end_lineno", None) or first
    return range(first, last + 1) if first else range(0)


def _target(statement: ast.stmt) -> str:
    """The target of an assignment; empty of other statements, and where parts of it run at another time."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        target = statement.target
    else:
        return ""
    is_certain = _is_simple(target) and not any(isinstance(each, _LATER) for each in ast.walk(statement))
    return ast.unparse(target) if is_certain else ""


def _is_simple(target: ast.expr) -> bool:
    """True for a name, an attribute, or an item of a constant key."""
    if isinstance(target, ast.Attribute):
        return _is_simple(target.value)
    if isinstance(target, ast.Subscript):
        return isinstance(target.slice, ast.Constant) and _is_simple(target.value)
    return isinstance(target, ast.Name)
