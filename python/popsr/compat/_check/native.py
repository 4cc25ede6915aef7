"""Parts of a program in C++: libraries that were never compiled, and operators that need an entry."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import NamedTuple

from popsr.compat._check.scopes import text_of
from popsr.compat._check.values import Foreign, Known, Value
from popsr.compat._device_libraries import load_library

__all__ = ["Native", "missing_library", "operator_without_entry"]

_OPENS = frozenset(("ctypes.CDLL", "ctypes.PyDLL", "ctypes.cdll.LoadLibrary", "ctypes.pydll.LoadLibrary"))


class Native(NamedTuple):
    """A finding about C++.

    Attributes:
        node: its place.
        kind: "library" or "operator".
        text: what it is.
        note: True if it does not keep the program from running.
    """

    node: ast.expr
    kind: str
    text: str
    note: bool


def missing_library(function: Value, call: ast.Call, script: Path) -> Native | None:
    """A shared object that a call opens by a literal path and that does not exist, here or beside the script."""
    opens = isinstance(function, Foreign) and function.path in _OPENS
    reads = isinstance(function, Known) and function.object is load_library
    name = text_of(call.args[0]) if call.args and (opens or reads) else None
    if (
        name is None or not name.endswith(".so") or (opens and os.sep not in name)
    ):  # the system looks for the last
        return None
    if Path(name).exists() or (script.parent / name).exists():
        return None
    text = f"no library {name}: never compiled, and popsr compiles no C++: run --with gives its operators"
    return Native(call.args[0], "library", text, reads)


def operator_without_entry(call: ast.Call) -> Native | None:
    """The operator that a call of ``customOp`` names; popsr runs a function in its place."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "customOp":
        return None
    given = {each.arg: each.value for each in call.keywords}
    name, domain = (
        given.get(key) or (call.args[place] if len(call.args) > place else None)
        for key, place in (("opName", 0), ("domain", 2))
    )
    texts = [None if each is None else text_of(each) for each in (name, domain)]
    if None in texts or name is None:
        return None
    text = f"operator {texts[0]} of {texts[1]}: needs a function of popsr.compat.custom_op, as of run --with"
    return Native(name, "operator", text, note=True)
