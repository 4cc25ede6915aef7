"""Tables of another package's surface, and how popsr's differs from them.

A table has parts: ``exports package`` with names, and ``module package.module`` with a line for each name: functions
and methods with their parameters, ``class``, ``name: property``, ``name: value``, and constants.
"""

from __future__ import annotations

import builtins
import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import popsr
from tests_py import ROOT

Parameter = inspect.Parameter


class Table:
    """A table of a surface.

    Attributes:
        exports: names that packages export.
        modules: lines of modules.
    """

    def __init__(self, file: str) -> None:
        parts = dict(_parts(file))
        self.exports = {
            head[8:]: " ".join(lines).split() for head, lines in parts.items() if head[:7] == "exports"
        }
        self.modules = {head[7:]: lines for head, lines in parts.items() if head[:6] == "module"}


def _parts(file: str) -> Iterator[tuple[str, list[str]]]:
    """``exports popxl.ops`` or ``module popxl.graph``, and its lines."""
    text = (ROOT / "tests_py" / file).read_text()
    for part in text.split("\n\n")[1:]:
        head, *lines = part.strip().split("\n")
        yield head, [line.strip() for line in lines]


def problems(module: Any, lines: list[str]) -> list[str]:
    """Differences between a module and its lines of a table."""
    return [f"{line}: {found}" for line in lines if (found := problem(module, line))]


# One line of the table


def problem(module: Any, line: str) -> str:
    """Differences between a name and its line; empty if there are none."""
    name = re.match(r"(?:class )?([\w.]+)", line)[1]  # type: ignore[index]
    owner = module
    for part in name.split(".")[:-1]:
        owner = getattr(owner, part, None)
    last = name.rpartition(".")[2]
    if not hasattr(owner, last) and (owner is not module or last not in vars(type(owner))):
        return "missing"
    value = getattr(owner, last)
    if line.startswith("class "):
        return "" if inspect.isclass(value) else "no class"
    if line.endswith(": property"):
        return _property_problem(owner, last)
    if line.endswith(": value"):
        return ""
    if " = " in line and "(" not in line.split(" = ")[0]:
        return _constant_problem(module, value, line.split(" = ")[1])
    return _signature_problem(module, owner, last, line)


def _property_problem(owner: Any, name: str) -> str:
    static = inspect.getattr_static(owner, name)
    settable_or_not = isinstance(static, property) or inspect.isdatadescriptor(static)
    return "" if settable_or_not else "no property"


def _namespace(module: Any) -> dict[str, Any]:
    """Names that defaults and constants use: the module's, builtins where they have the same."""
    names = {name: getattr(module, name) for name in dir(module) if hasattr(module, name)}
    return {
        **popsr.dtypes.dtype._all,
        **names,
        **vars(builtins),
        **vars(typing),
        "np": np,
        "dtypes": popsr.dtypes,
    }


def _constant_problem(module: Any, value: Any, text: str) -> str:
    of_dtypes = vars(popsr.dtypes).get(text)  # popsr.dtypes.half = float16
    wanted = of_dtypes if of_dtypes is not None else eval(text, _namespace(module))
    return "" if type(value) is type(wanted) and value == wanted else f"got {value!r}"


def _signature_problem(module: Any, owner: Any, name: str, line: str) -> str:
    function = getattr(module, name) if owner is module else inspect.getattr_static(owner, name)
    function = getattr(function, "__func__", function)  # of a class method
    wanted = _parameters(line[line.index("(") :], _namespace(module))
    if line.endswith(".__init__(self)") and not inspect.isfunction(function):  # a class of the core
        with pytest.raises(popsr.Error, match="cannot be constructed"):
            owner()
        return ""
    if not callable(function):
        return "no function"
    if function is getattr(object, name, None):  # what every object has cannot be called by keyword
        return ""
    try:
        got = list(inspect.signature(function).parameters.values())
    except ValueError:
        got = _documented_parameters(function)
    return _difference(got, wanted)


def _parameters(text: str, namespace: dict[str, Any]) -> list[Parameter]:
    exec(f"def function{text}: ...", namespace)
    return list(inspect.signature(namespace["function"]).parameters.values())


def _documented_parameters(function: Any) -> list[Parameter]:
    """Of a function of the core: the first line of its docstring."""
    text = function.__doc__.split("\n")[0].split(" ->")[0]
    return _parameters(re.sub(r": [\w.\[\]| ]+", "", text[text.index("(") :]), {})


def _difference(got: list[Parameter], wanted: list[Parameter]) -> str:
    own = [each for each in got if each.name not in {other.name for other in wanted}]
    if any(each.kind is not Parameter.KEYWORD_ONLY for each in own):
        return f"popsr adds {', '.join(map(str, own))}"
    shared = [each for each in got if each not in own]
    for mine, theirs in zip(shared, wanted, strict=False):
        same = (mine.name, _kind(mine), repr(mine.default)) == (
            theirs.name,
            _kind(theirs),
            repr(theirs.default),
        )
        if not same:
            return f"got parameter {mine}"
    return "" if len(shared) == len(wanted) else f"got parameters {[each.name for each in got]}"


def _kind(parameter: Parameter) -> Any:
    """``self`` may be positional only."""
    return None if parameter.name == "self" else parameter.kind
