"""Ops on arrays: a program with one op, run at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from popsr._program.ir import Ir
from popsr._program.streams import d2h_stream
from popsr._program.tensor import Tensor
from popsr._program.variables.variables import variable
from popsr._session.session import Session
from popsr._support.host.arguments import read_call, read_int
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, ShapeError
from popsr.ops.program.host_io import host_store

__all__ = ["evaluate"]

Array = NDArray[Any]


@public
def evaluate(function: Callable[..., Any], *operands: Any, replicas: int = 1, **options: Any) -> Any:
    """Call a function of tensors with arrays, and return its results as arrays.

    Makes a program of one graph, runs it once and forgets it, so it is for examples and tests, not for speed.
    ``popsr.ops`` works, and any function that makes ops of tensors in the current graph.

    Args:
        function: takes tensors and returns a tensor, a tuple or list of tensors, or None.
        operands: arrays and lists of numbers become variables, so that ops in place accept them, and so do the items of
            tuples. Types of 64 bits become 32 bits wide, as for ``popsr.variable``. Everything else is passed as it is,
            a number also: ``np.float32(2)`` makes a tensor.
        replicas: the number of replicas. With more than one, each operand has a leading axis with a row for each
            replica, and so have results.
        options: keywords of ``function``. Arrays become variables; lists do not, as attributes of ops are lists.
    Returns:
        An array for a tensor, of its dtype (ml_dtypes' where NumPy has none); a list for several; None for None.
    Raises:
        ArgumentTypeError: ``function`` is not callable, or returns something else.
        ShapeError: an operand has no row for each replica.
        Error: as ``function`` raises.
    Example:
        >>> evaluate(ops.add, [1.0, 2.0], [10.0, 20.0])
        array([11., 22.], dtype=float32)
        >>> evaluate(ops.collectives.replicated_all_reduce, [[1.0], [2.0]], replicas=2)
        array([[3.],
               [3.]], dtype=float32)
    """
    read_call("evaluate: function", function)
    ir = Ir(read_int("evaluate: replicas", replicas, least=1))
    with ir.main_graph:
        results = function(
            *(_tensors(ir, operand) for operand in operands),
            **{
                name: _variable(ir, v) if isinstance(v, (np.ndarray, np.generic)) else v
                for name, v in options.items()
            },
        )
        given = [results] if isinstance(results, Tensor) else [] if results is None else results
        if not isinstance(given, (list, tuple)) or not all(isinstance(t, Tensor) for t in given):
            raise ArgumentTypeError(f"evaluate: function returned {shown(results)}, expected tensors")
        streams = [d2h_stream(t.shape, t.dtype) for t in given]
        for stream, t in zip(streams, given, strict=True):
            host_store(stream, t)
    if not streams:
        return results
    with Session(ir) as session:
        stored = session.run()
    arrays = [_with_arithmetic(stored[stream], t) for stream, t in zip(streams, given, strict=True)]
    return arrays[0] if isinstance(results, Tensor) else arrays


def _tensors(ir: Ir, operand: Any) -> Any:
    if isinstance(operand, tuple):
        return tuple(_tensors(ir, each) for each in operand)
    if isinstance(operand, (np.ndarray, np.generic, list)):
        return _variable(ir, operand)
    return operand


def _variable(ir: Ir, value: Any) -> Tensor:
    array = np.asarray(value)
    if ir.replication_factor == 1:
        return variable(array)
    if not array.ndim or array.shape[0] != ir.replication_factor:
        raise ShapeError(
            f"evaluate: operand has no row for each replica, got shape {array.shape}, expected "
            f"[{ir.replication_factor}, ...]"
        )
    return variable(array, replica_grouping=ir.replica_grouping(group_size=1))


def _with_arithmetic(array: Array, t: Tensor) -> Array:
    return array if array.dtype.names is None else array.view(t.dtype.as_ml_dtypes())
