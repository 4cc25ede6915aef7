"""The gradient of each op: as the registry declares it, as its row states it, and as autodiff gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import TensorSpec, errors, ops, transforms
from tests_py.ops.rows.inputs import Case, call_arguments
from tests_py.ops.rows.table import OPS
from tests_py.support.helpers import (
    FLOATS,
    PUBLIC,
    SCHEMAS,
    Array,
    Streams,
    assert_same_bits,
    dtype,
    python_op,
)

EVERY, FIRST, OTHERS, ZEROS, NONE, THROWS, MODIFIES, NOTHING = (
    "of every floating input",
    "of the first input",
    "of all but the first input",
    "zeros",
    "stops",
    "throws",
    "the op modifies",
    "no floating tensor on both sides",
)

# By Row.grad, but for rows that state which inputs have one.
STATED = {
    **dict.fromkeys(("finite", "own part", "stated"), EVERY),
    **dict.fromkeys(("throws", "bool"), THROWS),
    "zeros": ZEROS,
    "stops": NONE,
    "modifies": MODIFIES,
    "nothing": NOTHING,
}


def gradient_table(schemas: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Outcomes by op, as the registry declares them."""
    return {schema["name"]: _declared(schema) for schema in schemas if not schema["internal"]}


def _declared(schema: dict[str, Any]) -> str:
    floats = [i for i, each in enumerate(schema["inputs"]) if set(each["dtypes"]) & set(FLOATS)]
    if schema["effects"]:
        return MODIFIES
    if schema["gradient"] in ("zeros", "error"):
        return ZEROS if schema["gradient"] == "zeros" else THROWS
    if schema["gradient"] == "none":
        return NONE if floats and not schema["observable"] else NOTHING
    rules = schema["differentiated"]
    if isinstance(rules, bool) or set(floats) <= set(rules):
        return EVERY
    return FIRST if rules == floats[:1] else OTHERS


TABLE = gradient_table(SCHEMAS.values())
MESSAGES = {
    "unable to provide required gradient": NONE,
    "has no gradient": THROWS,
    "contains a modifying op": MODIFIES,
}


def _arrays(case: Case) -> list[Array]:
    """Inputs, of float64 where the case has them."""
    name = "float64" if "float64" in case.dtypes else case.dtypes[0]
    arrays = case.draw(np.random.default_rng(0), name)
    return [array[0] for array in arrays] if case.group else arrays


def _case(op: str) -> Case:
    """The case with most floating inputs."""

    def floats(case: Case) -> int:
        return sum(array.dtype.name in FLOATS for array in _arrays(case))

    return max(OPS[op].cases, key=floats)


def _graph(op: str, case: Case) -> popsr.Graph:
    """The op on inputs of that case."""
    ir = popsr.Ir(replication=4 if case.group else 1)
    attrs = call_arguments(case)
    if case.group:
        attrs["group"] = ir.replica_grouping(*case.group)
    fn = python_op(op)

    def body(*xs: popsr.Tensor) -> Any:
        return case.call(fn, *xs, **attrs) if case.call else fn(*xs, **attrs)

    specs = [TensorSpec(array.shape, dtype(array.dtype.name)) for array in _arrays(case)]
    with ir.main_graph:
        return ir.create_graph(body, *specs)


def _outcome_of(graph: popsr.Graph, required: popsr.Tensor) -> str:
    """EVERY for a gradient, else which error it is."""
    try:
        transforms.autodiff(graph, grads_required=[required])
    except errors.GraphError as error:
        return next(outcome for text, outcome in MESSAGES.items() if text in str(error))
    return EVERY


def _outcome(op: str) -> str:
    graph = _graph(op, _case(op))
    wanted = [t for t in graph.inputs if t.dtype.is_floating_point]
    found = [_outcome_of(graph, t) for t in wanted]
    if len(set(found)) == 1:
        return found[0]
    assert {found[0], *found[1:]} == {EVERY, NONE}
    assert len(set(found[1:])) == 1
    return FIRST if found[0] == EVERY else OTHERS


@pytest.mark.parametrize("op", PUBLIC)
def test_rows_state_what_the_registry_declares(op: str) -> None:
    assert op in OPS, f"{op!r} has no row in ops/rows, which says what its gradient is"
    some = {"every": STATED[OPS[op].grad], "first": FIRST, "all but the first": OTHERS}
    assert some[OPS[op].grad_of] == TABLE[op]


@pytest.mark.parametrize("op", [op for op in PUBLIC if TABLE[op] != NOTHING])
def test_outcome_is_that_of_the_table(op: str) -> None:
    declared, found = TABLE[op], _outcome(op)
    if declared == ZEROS:
        assert found == EVERY
    elif declared == THROWS and OPS[op].grad == "bool":
        assert found == NONE  # a bool result can have no gradient: asking for one is an error anyway
    else:
        assert found == declared


@pytest.mark.parametrize("op", [op for op in PUBLIC if TABLE[op] == NOTHING])
def test_nothing_to_differentiate(op: str) -> None:
    schema = SCHEMAS[op]
    takes = any(set(each["dtypes"]) & set(FLOATS) for each in schema["inputs"])
    assert not schema["has_grad"]
    assert not takes or schema["observable"]


# Outcomes

F64 = popsr.float64
BESIDE: dict[str, tuple[Callable[[popsr.Tensor], popsr.Tensor], bool]] = {
    # what is added to x * x, and whether it throws
    "scaled_add": (lambda x: ops.scaled_add(x, x, 2.0, 3.0), False),
    "detach": (ops.detach, False),
    "reshape_": (lambda x: ops.reshape_(x, (3,)), False),
    "repeat": (lambda x: ops.repeat(popsr.gir().create_graph(ops.exp, x), 2, x)[0], False),
    "replicated_all_reduce": (ops.collectives.replicated_all_reduce, False),
    "integers": (lambda x: ops.cast(ops.cast(x, popsr.int32), F64), False),
    "equal": (lambda x: ops.cast(ops.equal(x, x), F64), False),
    "sign": (ops.sign, False),
    "slice_": (lambda x: ops.slice_(x, 0, 3), True),
    "replicated_reduce_scatter": (ops.collectives.replicated_reduce_scatter, True),
}


@pytest.mark.parametrize("name", BESIDE)
def test_beside_an_op_that_differentiates(name: str) -> None:
    """An op without gradient adds nothing; one that throws does so although there is another way."""
    build, throws = BESIDE[name]
    ir, io = popsr.Ir(), Streams()
    data = np.array([1.5, -2.0, 3.0])
    with ir.main_graph, popsr.in_sequence():
        x = io.feed(data)
        graph = ir.create_graph(lambda x: ops.add(ops.mul(x, x), build(x)), x)
        if throws:
            with pytest.raises(errors.GraphError, match=f"{name} has no gradient"):
                transforms.autodiff(graph)
            return
        info = transforms.autodiff(graph)
        call = ops.call_with_info(graph, x)
        seed = popsr.constant(np.ones(3), F64)
        io.fetch(ops.call(info.graph, seed, inputs_dict=info.inputs_dict(call))[0])
    with popsr.Session(ir) as session:
        assert_same_bits(io.run(session)[0], 2 * data)


@pytest.mark.parametrize("name", FLOATS)
def test_casts_between_floats_alone_have_gradients(name: str) -> None:
    for source, target in ((name, "float32"), (name, "float64"), (name, "int32"), ("int32", name)):
        with popsr.Ir().main_graph:
            spec = TensorSpec((2,), dtype(source))
            graph = popsr.gir().create_graph(lambda x: ops.cast(x, dtype(target)), spec)  # noqa: B023
        has = source in FLOATS and target in FLOATS
        assert (_outcome_of(graph, graph.inputs[0]) == EVERY) == has
