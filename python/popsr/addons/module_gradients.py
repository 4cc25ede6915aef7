"""Values that a module hands from ``build`` to ``build_grad``, and the gradients that it gives its variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from popsr._program.create_graph import graph_input
from popsr._program.handles import is_retired
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_flag, read_mapping, read_text
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, ShapeError, StateError, UnknownNameError

__all__ = ["Aux", "VarGrad"]


@public
class Aux:
    """Tensors that ``build`` leaves for ``build_grad``, by key."""

    def __init__(self, values: Mapping[str, Any] | None = None, is_readable: bool = False) -> None:
        """With values, as ``build_grad`` sees them."""
        self._values = dict(read_mapping("Aux", "values", values))
        self._is_readable = read_flag("Aux: is_readable", is_readable)
        self._inputs: dict[Tensor, Tensor] = {}  # of the forward graph to the gradient graph's
        self._exposed: list[Tensor] = []  # outputs of the forward graph for gradient graphs only

    def __setitem__(self, key: str, value: Any) -> None:
        read_text("aux: key", key)
        if self._is_readable:
            raise StateError(f"aux: written in build_grad, got {shown(key)}, expected build to do so")
        self._values[key] = value

    def __getitem__(self, key: str) -> Any:
        if not self._is_readable:
            raise StateError(f"aux: read in build, got {shown(key)}, expected build_grad to do so")
        if not is_a(key, str) or key not in self._values:
            raise UnknownNameError(
                f"aux: no such key, got {shown(key)}, expected one of {list(self._values)}"
            )
        value = self._values[key]
        if not isinstance(value, Tensor):
            return value
        if value not in self._inputs or is_retired(self._inputs[value]):
            name = value.name.rpartition("/")[2]
            made = graph_input(value.shape, value.dtype, name, False, value.meta_shape)
            self._inputs[value] = made
        return self._inputs[value]

    def _for_grad(self) -> Aux:
        return Aux(self._values, True)

    def __repr__(self) -> str:
        return f"Aux({self._values!r})"


@public
class VarGrad:
    """Gradients of variables by dotted name, checked as they are set."""

    def __init__(self, variables: Mapping[str, Tensor] | None = None) -> None:
        """No gradients yet; ``variables`` are those that may get one."""
        self._variables = dict(read_mapping("VarGrad", "variables", variables))
        self._gradients: dict[str, Tensor] = {}

    def __setitem__(self, key: str, value: Tensor) -> None:
        if not is_a(key, str) or key not in self._variables:
            raise UnknownNameError(
                f"var_grad: no such variable, got {shown(key)}, expected one of {list(self._variables)}"
            )
        if not isinstance(value, Tensor):
            raise ArgumentTypeError(
                f"var_grad: the gradient of {shown(key)} is not a Tensor, got {shown(value)}"
            )
        check_shape(f"the gradient of {key!r}", value, self._variables[key])
        self._gradients[key] = value

    def __getitem__(self, key: str) -> Tensor:
        if not is_a(key, str) or key not in self._gradients:
            raise UnknownNameError(
                f"var_grad: no gradient yet, got {shown(key)}, expected one of {list(self._gradients)}"
            )
        return self._gradients[key]


def check_shape(what: str, gradient: Tensor, tensor: Tensor) -> None:
    """Refuse a gradient that has not the shape of its tensor.

    Args:
        what: the gradient, for the message.
        gradient: the gradient.
        tensor: what it is the gradient of.
    """
    if (gradient.shape, gradient.meta_shape) != (tensor.shape, tensor.meta_shape):
        meta = f" with meta_shape {tensor.meta_shape}" if tensor.meta_shape else ""
        raise ShapeError(
            f"build_grad: wrong shape of {what}, got {gradient.shape}, expected {tensor.shape}{meta}"
        )
