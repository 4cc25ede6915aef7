"""What updates of variables refuse, before anything is added to the program."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import popsr
from popsr import errors
from popsr.ops import var_updates

F32 = popsr.float32


class Operands:
    """Tensors for a call that is refused."""

    def __init__(self) -> None:
        """Of the current graph."""
        self.m, self.v, self.w = (popsr.graph_input((3,), F32) for _ in range(3))
        self.t, self.one = popsr.graph_input((), F32), popsr.graph_input((1,), F32)
        self.two = popsr.graph_input((2,), F32)
        self.half, self.index = popsr.graph_input((), popsr.bfloat16), popsr.graph_input((2,), popsr.int32)
        self.whole = popsr.graph_input((3,), popsr.int32)


_V, _S, _D, _T = errors.AttributeValueError, errors.ShapeError, errors.DTypeError, errors.ArgumentTypeError
Bad = tuple[Callable[[Operands], Any], type[Exception], str]
BAD: dict[str, Bad] = {
    "decay without weight": (
        lambda o: var_updates.adam_updater(o.m, o.v, weight_decay=0.1),
        _V,
        r"^adam_updater: weight is missing, got weight_decay 0\.1, expected the weight that decays$",
    ),
    "tensor decay without weight": (
        lambda o: var_updates.lamb_updater(o.m, o.v, weight_decay=o.one),
        _V,
        r"^lamb_updater: weight is missing, got weight_decay Tensor",
    ),
    "adamax decay without weight": (
        lambda o: var_updates.adamax_updater(o.m, o.v, None, o.t, 0.1),
        _V,
        r"^adamax_updater: weight is missing",
    ),
    "step without beta1": (
        lambda o: var_updates.adam_updater(o.m, o.v, None, o.t, beta2=0.9),
        _V,
        r"^adam_updater: beta1 is missing, got neither a number nor a tensor, expected one of them$",
    ),
    "step without beta2": (
        lambda o: var_updates.lamb_updater(o.m, o.v, None, o.t, beta1=0.9),
        _V,
        r"^lamb_updater: beta2 is missing",
    ),
    "adamax without step": (
        lambda o: var_updates.adamax_updater(o.m, o.v),
        _V,
        r"^adamax_updater: time_step is missing, got none, expected a tensor$",
    ),
    "adamax without beta": (
        lambda o: var_updates.adamax_updater(o.m, o.v, None, o.t, beta1=None),  # type: ignore[arg-type]
        _V,
        r"^adamax_updater: beta1 is missing",
    ),
    "no epsilon": (
        lambda o: var_updates.adam_updater(o.m, o.v, epsilon=None),  # type: ignore[arg-type]
        _V,
        r"^adam_updater: epsilon is missing",
    ),
    "step of two": (
        lambda o: var_updates.adam_updater(o.m, o.v, None, o.two, None, 0.9, 0.9),
        _S,
        r"^adam_updater: time_step is not a scalar, got f32\[2\], expected one element$",
    ),
    "narrow step": (
        lambda o: var_updates.adam_updater(o.m, o.v, None, o.half, None, 0.9, 0.9),
        _D,
        r"^adam_updater: input time_step has the wrong dtype, got bf16\[\]",
    ),
    "beta of two": (
        lambda o: var_updates.adam_updater(o.m, o.v, None, o.t, None, o.two, 0.9),
        _S,
        r"^adam_updater: beta1 is not a scalar, got f32\[2\]",
    ),
    "epsilon of two": (
        lambda o: var_updates.adam_updater(o.m, o.v, epsilon=o.two),
        _S,
        r"^adam_updater: epsilon is not a scalar",
    ),
    "epsilon of letters": (
        lambda o: var_updates.adam_updater(o.m, o.v, epsilon="x"),  # type: ignore[arg-type]
        errors.Error,
        r"^adam_updater: .*epsilon",
    ),
    "moments of different shapes": (
        lambda o: var_updates.adam_updater(o.m, o.two),
        _S,
        r"^adam_updater: operands differ in shape, got f32\[3\] and f32\[2\]",
    ),
    "weight of another shape": (
        lambda o: var_updates.adam_updater(o.m, o.v, o.two, weight_decay=0.1),
        _S,
        r"^adam_updater: operands differ in shape, got f32\[3\] and f32\[2\]",
    ),
    "a number as weight": (
        lambda o: var_updates.adam_updater(o.m, o.v, 1.0),  # type: ignore[arg-type]
        _T,
        r"^adam_updater: weight is not a Tensor, got float 1\.0, expected a Tensor$",
    ),
    "a constant step": (
        lambda o: var_updates.adam_updater(o.m, o.v, None, popsr.constant(0.0), None, 0.9, 0.9),
        errors.GraphError,
        r"^adam_updater: input time_step is modified but constant",
    ),
    "mode": (
        lambda o: var_updates.create_adamupdater(o.m, o.v, {}, "sgd"),  # type: ignore[arg-type]
        _V,
        r"^create_adamupdater: unknown mode, got 'sgd'",
    ),
    "no rate": (
        lambda o: var_updates.adam_var_update(o.m, o.v, o.one, o.one),
        _V,
        r"^adam_var_update: learning_rate is missing, got neither a number nor a tensor, expected one of them$",
    ),
    "norm of two": (
        lambda o: var_updates.adam_var_update(o.m, o.v, o.one, o.two, 0.1),
        _S,
        r"^adam_var_update: r2 is not a scalar, got f32\[2\], expected one element$",
    ),
    "bound of two": (
        lambda o: var_updates.adam_var_update(o.m, o.v, o.one, o.one, 0.1, o.two),
        _S,
        r"^adam_var_update: max_weight_norm is not a scalar",
    ),
    "step of another shape": (
        lambda o: var_updates.adam_var_update(o.m, o.two, o.one, o.one, 0.1),
        _S,
        r"^adam_var_update: operands differ in shape",
    ),
    "integers": (
        lambda o: var_updates.adam_var_update(o.whole, o.v, o.one, o.one, 0.1),
        _D,
        r"^adam_var_update: input t has the wrong dtype, got i32\[3\]",
    ),
    "squares of another shape": (
        lambda o: var_updates.accumulate_square_(o.m, o.two),
        _S,
        r"^accumulate_square_: operands differ in shape",
    ),
    "no factor": (
        lambda o: var_updates.accumulate_moving_average_(o.m, o.v, None),  # type: ignore[arg-type]
        _V,
        r"^accumulate_moving_average_: f is missing",
    ),
    "factor of two": (
        lambda o: var_updates.accumulate_moving_average_square_(o.m, o.v, o.two),
        _S,
        r"^accumulate_moving_average_square_: f is not a scalar",
    ),
    "average of integers": (
        lambda o: var_updates.accumulate_moving_average_(o.whole, o.v, 0.5),
        _D,
        r"^accumulate_moving_average_: input t has the wrong dtype, got i32\[3\]",
    ),
    "sparse shape": (
        lambda o: var_updates.sparse_accumulate_(o.m, o.v, o.index),
        _S,
        r"^sparse_accumulate_: X does not match, got f32\[3\] and indices i32\[2\] for f32\[3\], "
        r"expected a shape of \[2\]$",
    ),
    "sparse axis": (
        lambda o: var_updates.sparse_accumulate_(o.m, o.two, o.index, 1),
        _V,
        r"^sparse_accumulate_: axis .*got 1",
    ),
    "sparse scalar": (
        lambda o: var_updates.sparse_accumulate_(o.t, o.two, o.index),
        _V,
        r"^sparse_accumulate_: axis",
    ),
    "sparse indices": (
        lambda o: var_updates.sparse_accumulate_(o.m, o.two, o.two),
        _D,
        r"^sparse_accumulate_: input indices has the wrong dtype, got f32\[2\]",
    ),
    "sparse factor": (
        lambda o: var_updates.sparse_accumulate_(o.m, o.two, o.index, f=o.two),
        _S,
        r"^sparse_accumulate_: f is not a scalar",
    ),
    "sparse weight": (
        lambda o: var_updates.sparse_accumulate_(o.m, o.two, o.index, W=1),  # type: ignore[arg-type]
        _T,
        r"^sparse_accumulate_: W is not a Tensor, got int 1",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_refused_before_anything_is_added(name: str) -> None:
    build, error, match = BAD[name]
    ir = popsr.Ir()
    with ir.create_empty_graph() as graph:
        operands = Operands()
        with pytest.raises(error, match=re.compile(match, re.MULTILINE)) as caught:  # notes follow
            build(operands)
        assert isinstance(caught.value, errors.Error)
        assert "\n" not in str(caught.value)
        assert not str(caught.value).endswith(".")
        assert not graph.ops, "nothing was appended"
