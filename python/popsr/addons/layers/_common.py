"""Common parts of the layers: initial values, and data of layers of torch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from popsr import dtypes
from popsr._program.tensor import Tensor, Variable
from popsr._support.host.arguments import is_a, read_a
from popsr._support.host.float_environment import in_default_environment
from popsr._support.text.shown import shown
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.utils import WeightsDict
from popsr.errors import AttributeValueError, ShapeError
from popsr.utils import to_numpy

__all__ = ["fitted", "map_bias", "read_operand", "torch_data", "truncated_normal", "variable_of"]

Array = np.ndarray[Any, Any]


@in_default_environment
def truncated_normal(shape: Iterable[int], std: float = 0.02, bound: float = 2.0) -> Array:
    """Normal numbers without those that are further than ``bound`` standard deviations from 0.

    Drawn by NumPy's global generator, which ``numpy.random.seed`` sets; what lies outside is drawn anew.

    Args:
        shape: of the result.
        std: standard deviation before numbers are left out.
        bound: in standard deviations.
    Returns:
        float32 array.
    """
    values = np.random.standard_normal(tuple(shape))  # noqa: NPY002 - as programs seed it
    outside = np.abs(values) > bound
    while outside.any():
        values[outside] = np.random.standard_normal(np.count_nonzero(outside))  # noqa: NPY002
        outside = np.abs(values) > bound
    return (std * values).astype(np.float32)


def read_operand(where: str, x: Tensor, least: int) -> Tensor:
    """The operand of a layer, if it has enough axes.

    Raises:
        ShapeError: it has fewer.
    """
    if read_a(f"{where}: x", x, Tensor).rank < least:
        raise ShapeError(f"{where}: x has too few axes, got shape {x.shape}, expected at least {least} axes")
    return x


def torch_data(where: str, layer: Any, name: str, dtype: dtypes.dtype) -> Array:
    """A parameter of a layer of torch as an array.

    Raises:
        ValueError: the layer has none of that name.
    """
    parameter = getattr(layer, name, None)
    if parameter is None:
        raise AttributeValueError(
            f"{where}.torch_mapping: the layer has no {name}, got {type(layer).__name__}, expected one with it"
        )
    return to_numpy(parameter, dtype)


def variable_of(where: str, variables: NamedTensors, name: str) -> Variable:
    """A variable of a layer.

    Raises:
        ArgumentTypeError: ``variables`` is not a tree of tensors.
        ValueError: there is none of that name, or it is not a variable.
    """
    read_a(f"{where}.torch_mapping: variables", variables, NamedTensors)
    found: Any = variables.get(name) if name in variables else None
    if not is_a(found, Variable):
        raise AttributeValueError(
            f"{where}.torch_mapping: no such variable, got {shown(found)} for {shown(name)} among "
            f"{variables.keys_flat()}, expected names of variables"
        )
    variable: Variable = found
    return variable


def fitted(data: Array, variable: Variable) -> Array:
    """Data in the shape of a variable, where one of both has all elements on one axis; others as they are."""
    shape = variable.shape_on_host
    return data.reshape(shape) if data.size == math.prod(shape) and 1 in (data.ndim, len(shape)) else data


def map_bias(
    where: str, weights: WeightsDict, variables: NamedTensors, layer: Any, dtype: dtypes.dtype
) -> WeightsDict:
    """``weights`` with the bias too, if the variables have one.

    Raises:
        ValueError: only one side has a bias.
    """
    if "bias" in variables:
        variable = variable_of(where, variables, "bias")
        weights[variable] = fitted(torch_data(where, layer, "bias", dtype), variable)
    elif getattr(layer, "bias", None) is not None:
        raise AttributeValueError(
            f"{where}.torch_mapping: no variable for the bias, got {variables.keys_flat()}, expected 'bias' too"
        )
    return weights
