"""Contracts of ops that cannot be read: what the user declares of callbacks, kernels and foreign calls."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from popsr._support.text.shown import shown
from popsr.bridge.jax._mesh import Axes, Spread
from popsr.errors import ArgumentTypeError, AttributeValueError, UnknownNameError

__all__ = ["Contract", "Contracts", "own_name"]

DETERMINISTIC, EQUAL = "deterministic", "equal over "
_EXPECTED = "'deterministic' or 'equal over AXIS, ...'"


@dataclass(frozen=True, slots=True)
class Contract:
    """A fact about an op that the user vouches for.

    Attributes:
        name: by which the user declares it.
        axes: replicas that differ in these alone have equal results; None if equal operands give equal results.
    """

    name: str
    axes: Axes | None

    def __str__(self) -> str:
        if self.axes is None:
            return f"{shown(self.name)} gives equal results for equal operands"
        return f"{shown(self.name)} gives equal results over {', '.join(self.axes)}"


class Contracts:
    """The contracts of a step, and the ops that they may be of.

    Args:
        declared: by name of an op, as the user gives them.
        spread: the axes of the mesh.
    Raises:
        ArgumentTypeError: they are no names and texts.
        AttributeValueError: a text that says nothing, or an axis that the mesh lacks.
    """

    def __init__(self, declared: Any, spread: Spread) -> None:
        """Without any op met."""
        given = {} if declared is None else declared
        if not isinstance(given, Mapping) or not all(isinstance(each, str) for each in given):
            raise ArgumentTypeError(
                f"from_jax: opaque is not a contract by name of an op, got {shown(declared)}, expected "
                "{name: 'deterministic'}"
            )
        self._of = {name: _read(name, text, spread) for name, text in given.items()}
        self._met: dict[str, None] = {}
        self._used: set[str] = set()

    def of(self, equation: Any) -> Contract | None:
        """The contract of an op: by its own name, else by its primitive's."""
        names = [name for name in (own_name(equation), equation.primitive.name) if name]
        self._met |= dict.fromkeys(names)
        for name in names:
            if name in self._of:
                self._used.add(name)
                return self._of[name]
        return None

    def require_used(self) -> None:
        """Check that each contract is of an op of the step.

        Raises:
            UnknownNameError: one is not.
        """
        for name in self._of:
            if name not in self._used:
                raise UnknownNameError(
                    f"from_jax: opaque of an op that the step lacks, or that is read, got {shown(name)}, expected one "
                    f"of {shown(list(self._met)) if self._met else 'no op, for all are read'}"
                )


def _read(name: str, text: object, spread: Spread) -> Contract:
    if text == DETERMINISTIC:
        return Contract(name, None)
    if not isinstance(text, str) or not text.startswith(EQUAL):
        raise AttributeValueError(
            f"from_jax: opaque of {shown(name)} says nothing, got {shown(text)}, expected {_EXPECTED}"
        )
    axes = tuple(axis.strip() for axis in text.removeprefix(EQUAL).split(","))
    for axis in axes:
        if axis not in spread.sizes:
            raise AttributeValueError(
                f"from_jax: opaque of {shown(name)} over an axis that the mesh lacks, got {shown(axis)}, expected one "
                f"of {shown([*spread.sizes])}"
            )
    return Contract(name, axes)


def own_name(equation: Any) -> str:
    """The name of the function, kernel or foreign function that an equation calls; empty where it has none."""
    params = equation.params
    if "target_name" in params:
        return str(params["target_name"])
    called = getattr(params.get("callback"), "callback_func", None)
    while isinstance(called, functools.partial):
        called = called.func
    if called is not None:
        return str(getattr(called, "__name__", type(called).__name__))
    name = params.get("name") or getattr(params.get("name_and_src_info"), "name", None)
    if isinstance(name, str):
        return name
    source = getattr(getattr(params.get("jaxpr"), "debug_info", None), "func_src_info", None)
    return str(source).partition(" ")[0] if source else ""
