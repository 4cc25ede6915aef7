"""Literal values that popsr refuses: it is asked, with an empty program."""

from __future__ import annotations

import ast
import functools
import logging
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import popsr
from popsr._program.options.options import Options
from popsr._support.lazy import LazyModule
from popsr._support.text.nearest import nearest
from popsr.compat._check.values import Instance, Known, Value

__all__ = ["missing_op", "refused_argument", "refused_option"]

if TYPE_CHECKING:
    from popsr.compat.popart import _supported
else:  # programs of PopXL have no builder
    _supported = LazyModule("popsr.compat.popart._supported")

_MOST_REPLICAS = 4096  # larger programs are not made to ask


def refused_argument(function: Value, call: ast.Call) -> tuple[ast.expr, str] | None:
    """The argument of a call that popsr refuses, and its error."""
    if not isinstance(function, Known):
        return None
    if function.object is popsr.Ir:
        node = _argument(call, 0, "replication")
        error = None if node is None else _error_of_replication(*_literal(node))
    elif function.object is popsr.Session:
        node = _argument(call, 1, "device_desc")
        error = None if node is None else _error_of_device(*_literal(node))
    else:
        return None
    return None if node is None or error is None else (node, error)


def missing_op(call: ast.Call) -> tuple[str, str] | None:
    """Why a call of ``builder.aiOnnx``, ``builder.aiGraphcore`` or their kin has no op, and names that are like it."""
    method = call.func
    if not isinstance(method, ast.Attribute) or not isinstance(method.value, ast.Attribute):
        return None
    family, name = method.value.attr, method.attr
    try:
        known = _supported.methods_of(family)
    except ImportError:  # without onnx there are no builders
        return None
    if not known or known.get(name):
        return None
    if name in known:
        return f"op {family}.{name}: sessions of models refuse it", ""
    others = [each for each in _supported.FAMILIES if name in _supported.methods_of(each)]
    if others:
        return f"no op {family}.{name}", f"{others[0]}.{name}"
    return f"no op {family}.{name}", nearest(name, known)


def refused_option(owner: Value, name: str, value: ast.expr) -> str | None:
    """The error about a literal that is set as an option."""
    is_option = isinstance(owner, Instance) and owner.cls is Options
    return _error_of_option(name, *_literal(value)) if is_option else None


def _argument(call: ast.Call, index: int, name: str) -> ast.expr | None:
    if any(isinstance(each, ast.Starred) for each in call.args[: index + 1]):
        return None
    named = next((each.value for each in call.keywords if each.arg == name), None)
    return call.args[index] if len(call.args) > index else named


def _literal(node: ast.expr) -> tuple[Any, bool]:
    """Value of a string, number, bool or None, and whether it is one."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None, False
    return (value, True) if isinstance(value, (str, int, float, type(None))) else (None, False)


@functools.lru_cache(maxsize=None, typed=True)
def _error_of_replication(value: Any, is_literal: bool) -> str | None:
    if not is_literal or (isinstance(value, int) and value > _MOST_REPLICAS):
        return None
    return _error(lambda: popsr.Ir(value))


@functools.lru_cache(maxsize=None, typed=True)
def _error_of_device(value: Any, is_literal: bool) -> str | None:
    if not is_literal:
        return None
    ir = popsr.Ir()
    with ir.main_graph:
        popsr.constant(1.0) + 1.0
    return _error(lambda: popsr.Session(ir, value))


@functools.lru_cache(maxsize=None, typed=True)
def _error_of_option(name: str, value: Any, is_literal: bool) -> str | None:
    return (
        _error(lambda: setattr(Options(), name, value)) if is_literal and hasattr(Options(), name) else None
    )


def _error(attempt: Callable[[], object]) -> str | None:
    """The error of an attempt, without its warnings and log lines: the program itself is not run."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attempt()
    except popsr.errors.Error as error:
        return str(error)
    finally:
        logging.disable(disabled)
    return None
