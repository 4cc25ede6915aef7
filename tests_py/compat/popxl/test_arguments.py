"""Arguments as programs of PopXL give them: specs in the main graph, no IPU, integers for floats, None for defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import analysis, errors, ops
from popsr._program.context import get_current_context
from popsr.ops import var_updates
from tests_py.support.helpers import Streams, assert_same_bits

F32, I32 = popsr.float32, popsr.int32

# Inputs of the main graph


def _with_input() -> tuple[popsr.Ir, popsr.Tensor, popsr.Variable]:
    """A program on 4 replicas with an input of the main graph that nothing reads, and a variable that an op writes."""
    ir = popsr.Ir(replication=4)
    with ir.main_graph:
        v = popsr.variable(np.ones(2, np.float32), name="v")
        x = popsr.graph_input(**v.spec)
        var_updates.accumulate_(v, popsr.constant(np.ones(2, np.float32)))
    return ir, x, v


def test_the_main_graph_takes_inputs() -> None:
    ir, x, v = _with_input()
    with ir.main_graph:
        named = popsr.graph_input(**popsr.TensorSpec((3,), popsr.float16, (6,)), name="named", by_ref=True)
    assert (x.spec, x.name, named.name) == (v.spec, "t", "named")
    assert named.spec.to_dict() == {"shape": (3,), "dtype": popsr.float16, "meta_shape": (6,)}
    assert ir.main_graph.inputs == (x, named)
    assert popsr.prove(ir).ok
    with popsr.Session(ir) as session:
        session.run()
        assert session.get_tensor_data(v).tolist() == [2, 2]


READERS: dict[str, Callable[[popsr.Ir], Any]] = {
    "session": popsr.Session,
    "prove": popsr.prove,
    "analyze": analysis.analyze,
    "assumptions": lambda ir: analysis.analyze(ir, equal={}),
    "popart": lambda ir: analysis.analyze(ir, mode="popart"),
    "communication": lambda ir: analysis.communication(ir, ranks=2),
}


@pytest.mark.parametrize("reader", READERS)
def test_no_op_reads_an_input_without_a_value(reader: str) -> None:
    ir, x, v = _with_input()

    def double(t: popsr.Tensor) -> popsr.Tensor:
        return t + t

    with ir.main_graph:
        (y,) = ops.call(ir.create_graph(double, x.spec), x)
        var_updates.accumulate_(v, y)
    with pytest.raises(
        errors.GraphError, match=r"^call at .*: an input of the main graph has no value, got Tensor"
    ):
        READERS[reader](ir)


@pytest.mark.parametrize("mode", ["partition", "popart"])
def test_nothing_is_said_of_an_input_without_a_value(mode: Any) -> None:
    ir, x, _ = _with_input()
    with pytest.raises(errors.GraphError, match=r"^partition: an input of the main graph has no value"):
        analysis.analyze(ir, mode).partition(x)


def test_assumptions_do_not_hide_an_unordered_write() -> None:
    ir, _, v = _with_input()
    ir.options.enable_inplace_ambiguity_checking = True
    with ir.main_graph:
        ops.relu(v)
    for reader in ("analyze", "assumptions"):
        with pytest.raises(errors.GraphError, match="Inplacing ambiguity"):
            READERS[reader](ir)


# No IPU


def test_none_is_the_current_ipu() -> None:
    with popsr.Ir().main_graph:
        context = get_current_context()
        outside = context.ipu_id
        x = popsr.constant(1.0) + 1.0
        with popsr.ipu(2):
            y = ops.ipu_copy(x, None)
            assert ops.ipu_copy(x, context.ipu_id).ipu == y.copy_to_ipu(None).ipu == y.ipu == 2
            with popsr.ipu(outside):
                assert ops.ipu_copy(x, context.ipu_id).ipu == 0
            assert context.ipu_id == 2
        assert outside is None
        assert ops.ipu_copy(y, outside).ipu == y.copy_to_ipu(outside, outside).ipu == 0
        assert popsr.variable(1.0).copy_to_ipu(outside, 1).ipu == 0


# Integers for floats


def _grad(grad: Any) -> popsr.Tensor:
    probs = popsr.constant([[0.25, 0.75]], F32)
    return ops.nll_loss_with_softmax_grad(probs, popsr.constant([1], I32), grad)[1]


def _var_update(x: Any, r1: Any, r2: Any, rate: Any, norm: Any) -> popsr.Tensor:
    t = popsr.variable(np.array([1, 2], np.float32))
    r1, r2 = (r if isinstance(r, popsr.Tensor) else popsr.constant(r, I32) for r in (r1, r2))
    return var_updates.adam_var_update(t, x, r1, r2, rate, norm)


def _float() -> popsr.Tensor:
    return popsr.constant([1.5, -2.0], F32)


# Functions of scalars and arrays; of each the arguments.
FORMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "scaled_add": (lambda y, a, b: ops.scaled_add(_float(), y, a, b), ([3, 4], 2, 3)),
    "scaled_add_": (
        lambda y, a, b: ops.scaled_add_(popsr.variable(np.ones(2, np.float32)), y, a, b),
        ([3, 4], 2, 3),
    ),
    "loss": (_grad, (2,)),
    "adam_var_update": (_var_update, ([3, 4], 9, 4, 2, 2)),
    "accumulate_": (
        lambda x, f: var_updates.accumulate_(popsr.variable(np.ones(2, np.float32)), x, f),
        ([3, 4], 2),
    ),
    "adam_updater": (
        lambda decay, epsilon: var_updates.adam_updater(
            _float(), popsr.constant([4.0, 9.0], F32), _float(), weight_decay=decay, epsilon=epsilon
        ),
        (2, 1),
    ),
}
KINDS: dict[str, Callable[[Any], Any]] = {
    "numbers": lambda x: popsr.constant(x, I32) if isinstance(x, list) else x,
    "numpy": lambda x: popsr.constant(x, I32) if isinstance(x, list) else np.int64(x),
    "int32": lambda x: popsr.constant(x, I32),
    "int64": lambda x: popsr.constant(x, popsr.int64),
    "uint8": lambda x: popsr.constant(x, popsr.uint8),
}


@pytest.mark.parametrize("form", FORMS)
def test_integers_are_the_floats_that_they_equal(form: str) -> None:
    function, arguments = FORMS[form]
    ir, io = popsr.Ir(), Streams()
    with ir.main_graph, popsr.in_sequence():
        io.fetch(function(*(popsr.constant(x, F32) for x in arguments)))
        for kind in KINDS.values():
            io.fetch(function(*map(kind, arguments)))
    with popsr.Session(ir) as session:
        expect, *got = io.run(session)
    for name, each in zip(KINDS, got, strict=True):
        assert_same_bits(each, expect, name)
    assert not np.array_equal(expect, np.zeros_like(expect))


# None for a default


def _image(*shape: int) -> popsr.Tensor:
    return popsr.constant(np.ones(shape or (1, 2, 5, 5), np.float32))


WITH_NONE: dict[str, Callable[..., popsr.Tensor]] = {
    "conv": lambda **none: ops.conv(_image(), _image(2, 2, 3, 3), **none),
    "conv_transpose": lambda **none: ops.conv_transpose(_image(), _image(2, 2, 3, 3), **none),
    "average_pool": lambda **none: ops.average_pool(_image(), (2, 2), **none),
    "max_pool": lambda **none: ops.max_pool(_image(), (2, 2), **none),
    "interpolate": lambda **none: ops.interpolate(_image(), **none),
    "argmax": lambda **none: ops.argmax(_image(), **none),
    "argmin": lambda **none: ops.argmin(_image(), **none),
    "cumsum": lambda **none: ops.cumsum(_image(), **none),
    "groupedgather": lambda **none: ops.groupedgather(_image(), popsr.constant([0], I32), **none),
}


def _made(function: Callable[..., popsr.Tensor], **none: None) -> tuple[dict[str, Any], tuple[int, ...]]:
    ir = popsr.Ir()
    with ir.main_graph:
        result = function(**none)
    return ir.main_graph.ops[-1].attributes, result.shape


@pytest.mark.parametrize("op", WITH_NONE)
def test_none_is_the_default(op: str) -> None:
    """Each parameter that may be None although its default is another."""
    names = [
        name
        for name, each in inspect.signature(getattr(ops, op)).parameters.items()
        if each.default is not inspect.Parameter.empty and "None" in str(each.annotation)
    ]
    assert names
    for name in names:
        assert _made(WITH_NONE[op], **{name: None}) == _made(WITH_NONE[op]), name


def test_shapes_are_those_of_the_defaults() -> None:
    shapes: dict[str, Any] = {op: _made(function)[1] for op, function in WITH_NONE.items()}
    assert shapes == {
        "conv": (1, 2, 3, 3),
        "conv_transpose": (1, 2, 7, 7),
        "average_pool": (1, 2, 4, 4),
        "max_pool": (1, 2, 4, 4),
        "interpolate": (1, 2, 5, 5),
        "argmax": (2, 5, 5),
        "argmin": (2, 5, 5),
        "cumsum": (1, 2, 5, 5),
        "groupedgather": (1, 2, 5, 5),
    }
