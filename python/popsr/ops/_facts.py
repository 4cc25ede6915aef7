"""Facts of ops in words: the section ``Facts:`` that the registry adds to the docstring of each op's function.

The section follows ``Returns:``. Functions get it when they are defined, so ``help`` and the pages of the site have it;
nobody writes it or keeps it up to date.
"""

from __future__ import annotations

import functools
import re
import sys
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

from popsr import _core, dtypes
from popsr._support.records import OpSchema
from popsr._support.text.entry_points import public_call

__all__ = ["facts", "in_place", "operand_dtypes", "public_op", "with_facts"]

_F = TypeVar("_F", bound=Callable[..., Any])

_WIDTH = 98
_MARGIN = "    " if sys.version_info < (3, 13) else ""  # of docstrings; later versions of Python take it away
_SECTION = re.compile(rf"^{_MARGIN}([A-Z]\w*):$", re.MULTILINE)


def public_op(function: _F) -> _F:
    """Decorate the public function of the op of its name: a ``public_call`` with the op's facts in its docstring."""
    if function.__doc__ is not None:  # as with python -OO
        schemas, name = _schemas(), function.__name__
        function.__doc__ = with_facts(function.__doc__, facts(schemas[name], schemas.get(f"{name}_")))
    return public_call(function)


@functools.cache
def _schemas() -> dict[str, OpSchema]:
    return {schema["name"]: schema for schema in _core.op_schemas()}


def facts(schema: OpSchema, form: OpSchema | None) -> dict[str, str]:
    """The facts of an op by their names.

    Args:
        schema: of the op.
        form: of its form in place, if there is one.
    """
    itself_or_name, colon, rest = in_place(schema, form).partition(":")
    is_name = itself_or_name not in ("", "itself")
    found = {
        "dtypes": operand_dtypes(schema),
        "gradient": schema["gradient"],
        "replicas": schema["partition"],
        "rounding": _rounding(schema),
        "in place": f"``{itself_or_name}``{colon}{rest}" if is_name else itself_or_name,
    }
    return {name: text for name, text in found.items() if text}


def with_facts(docstring: str, found: dict[str, str]) -> str:
    """The docstring with a section of facts in its place: after ``Returns:``, else before what follows ``Args:``."""
    lines = [f"{_MARGIN}Facts:"]
    for name, text in found.items():
        line = f"{name}: {text}"
        wrapped = [line] if len(line) <= _WIDTH else textwrap.wrap(line, _WIDTH)  # which takes long
        lines += [f"{_MARGIN}    {wrapped[0]}", *(f"{_MARGIN}        {rest}" for rest in wrapped[1:])]
    section = "\n".join(lines)
    heads = list(_SECTION.finditer(docstring))
    returns = next((head.start() for head in heads if head[1] == "Returns"), -1)
    later = [head.start() for head in heads if head.start() > returns and head[1] != "Args"]
    if later:
        return f"{docstring[: later[0]]}{section}\n{docstring[later[0] :]}"
    end = "\n" if heads else "\n\n"  # the summary is followed by a blank line
    return f"{docstring.rstrip()}{end}{section}\n{_MARGIN}"


def _rounding(schema: OpSchema) -> str:
    if schema["control"] != "none":
        return "by the ops of the graphs it runs"
    return "stochastic where stochastic rounding is on" if schema["rounding"] else "never stochastic"


def in_place(schema: OpSchema, form: OpSchema | None) -> str:
    """The name of the form in place, or "itself"; empty if there is none."""
    if schema["effects"]:
        return "itself"
    if form is None:
        return ""
    return f"{form['name']}: a view" if form["view"] else str(form["name"])


def operand_dtypes(schema: OpSchema) -> str:
    """The dtypes of all operands, or of each, in words."""
    kinds = {each["name"]: _kinds(tuple(each["dtypes"])) for each in schema["inputs"]}
    if len(set(kinds.values())) < 2:
        return "".join(set(kinds.values()))
    return "; ".join(
        f"{', '.join(n for n in kinds if kinds[n] == kind)}: {kind}" for kind in dict.fromkeys(kinds.values())
    )


@functools.cache
def _kinds(names: tuple[str, ...]) -> str:
    """A set of dtypes in words."""
    left, words = set(names), []
    for word, group in _groups():
        if group <= left:
            words.append(word)
            left -= group
    return ", ".join([*words, *sorted(left)])


@functools.cache
def _groups() -> list[tuple[str, set[str]]]:
    known = dtypes.dtype._all
    carriers = {name for name, kind in known.items() if kind._is_carrier}
    float8 = {name for name in known if name.startswith("float8")} - carriers
    floats = {name for name, kind in known.items() if kind.is_floating_point} - float8 - carriers
    ints = {name for name, kind in known.items() if kind.is_int}
    return [
        ("all", floats | ints | float8 | carriers | {"bool"}),
        ("numbers", floats | ints),
        ("floats", floats),
        ("ints", ints),
        ("float8", float8),
        ("carriers", carriers),
    ]
