"""Ops that modify one tensor in an order that only the text of the program gives: they run in that order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import TensorByRef, errors, ops
from popsr.analysis import analyze
from popsr.ops import var_updates
from tests_py.support.helpers import Array, assert_same_bits, make_variable, rows

SHAPE = (4, 3)


def relu(x: Array) -> Array:
    return np.maximum(x, np.float32(0))


def two_calls(ir: popsr.Ir, v: popsr.Tensor) -> None:
    def double(t: TensorByRef) -> None:
        ops.add_(t, t)

    def shift(t: TensorByRef) -> None:
        ops.sub(t, popsr.constant(np.float32(3)))
        var_updates.accumulate_(t, popsr.constant(np.full(SHAPE, -3, np.float32)))

    ops.call(ir.create_graph(double, v), v)
    ops.call(ir.create_graph(shift, v), v)


def two_loops(ir: popsr.Ir, v: popsr.Tensor) -> None:
    def add(one: popsr.Tensor, t: TensorByRef) -> popsr.Tensor:
        ops.add_(t, one)
        return one

    def negate(one: popsr.Tensor, t: TensorByRef) -> popsr.Tensor:
        var_updates.accumulator_scale_(t, -2.0)
        return one

    one = popsr.constant(np.ones(SHAPE, np.float32))
    ops.repeat(ir.create_graph(add, one, v), 3, one, v)
    ops.repeat(ir.create_graph(negate, one, v), 1, one, v)


def call_by_mark(ir: popsr.Ir, v: popsr.Tensor) -> None:
    graph = ir.create_graph(lambda t: ops.relu_(t), v)
    ops.add_(v, popsr.constant(np.float32(-1)))
    info = ops.call_with_info(graph, v)
    info.set_parent_input_modified(info.graph_to_parent(graph.inputs[0]))
    ops.add_(v, popsr.constant(np.float32(-1)))


def marks(x: Array) -> Array:
    return relu(x - np.float32(1)) - np.float32(1)


@pytest.mark.parametrize("option", [None, "in_sequence"])
@pytest.mark.parametrize(
    ("build", "expect"),
    [
        (two_calls, lambda x: x + x - np.float32(3)),
        (two_loops, lambda x: (x + np.float32(3)) * np.float32(-2)),
        (call_by_mark, marks),
    ],
)
def test_calls_that_modify_one_tensor(
    build: Callable[[popsr.Ir, popsr.Tensor], None], expect: Callable[[Array], Array], option: Any
) -> None:
    data = np.arange(12, dtype=np.float32).reshape(SHAPE) - 5
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence(bool(option)):
        v = make_variable(data)
        build(ir, v)
    with popsr.Session(ir, "ipu_hw") as session:
        session.run()
        assert_same_bits(session.get_tensor_data(v), expect(data))
    assert bool([lint for lint in analyze(ir).warnings if lint.code == "L12"]) is (option is None)


class RandomProgram:
    """Reads and writes of a few variables and of views of them, beside the same in NumPy."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.ir = popsr.Ir(replication=1 + seed % 3)
        self.outputs: list[tuple[popsr.DeviceToHostStream, Array]] = []
        self.data = [self.rng.integers(-9, 9, SHAPE).astype(np.float32) for _ in range(3)]
        with self.ir.main_graph:
            self.variables = [make_variable(array, f"v{i}") for i, array in enumerate(self.data)]
            self.data = [array.copy() for array in self.data]
            memory = list(zip(self.variables, self.data, strict=True))
            for _ in range(self.rng.integers(4, 16)):
                t, array = memory[self.rng.integers(len(memory))]
                memory.append(self.step(t, array, *memory[self.rng.integers(3)]))

    def step(self, t: Any, array: Array, u: Any, other: Array) -> tuple[Any, Array]:
        kind = self.rng.integers(6)
        if kind == 0 and array.shape[0] > 1:  # a view
            low = int(self.rng.integers(array.shape[0] - 1))
            stop = int(self.rng.integers(low + 1, array.shape[0] + 1))
            return ops.slice_(t, low, stop), array[low:stop]
        if kind == 1:
            array[...] = relu(array)
            return ops.relu_(t), array
        if kind == 2 and array.shape == SHAPE:
            array += other
            return ops.add_(t, u), array
        if kind == 3:
            array *= np.float32(0.5)
            return var_updates.accumulator_scale_(t, 0.5), array
        if kind == 4:
            array -= np.float32(2)
            graph = self.ir.create_graph(subtract_two, t)
            ops.call(graph, t)
            return t, array
        stream = popsr.d2h_stream(array.shape, popsr.float32)
        ops.host_store(stream, t)
        self.outputs.append((stream, array.copy()))
        return ops.negate(t), -array


def subtract_two(t: TensorByRef) -> None:
    var_updates.accumulate_(t, popsr.constant(np.full(t.shape, -2, np.float32)))


def test_writes_run_in_program_order() -> None:
    """Random programs against NumPy, bit for bit, however they are run."""
    modes: list[dict[str, Any]] = [{}, {"dedup": False}, {"check": True}, {"num_threads": 2}]
    for seed in range(60):
        program = RandomProgram(seed)
        replicas = program.ir.replication_factor
        with popsr.Session(program.ir, "ipu_hw", **modes[seed % 4]) as session:
            got = session.run()
            for stream, expect in program.outputs:
                for row in rows(got[stream], replicas):
                    assert_same_bits(row, expect, f"seed {seed}")
            for variable, expect in zip(program.variables, program.data, strict=True):
                assert_same_bits(session.get_tensor_data(variable), expect, f"seed {seed}")


def test_the_option_refuses_what_the_lint_names() -> None:
    refused = 0
    for seed in range(60):
        ir = RandomProgram(seed).ir
        found = [lint for lint in analyze(ir).warnings if lint.code == "L12"]
        ir.options.enableInplaceAmbiguityChecking = True
        assert ir.options.enable_inplace_ambiguity_checking is True
        refused += bool(found)
        if not found:
            popsr.Session(ir)
            continue
        for use in (popsr.Session, analyze):
            with pytest.raises(errors.GraphError, match=r"^Inplacing ambiguity detected\. "):
                use(ir)
        ir.options.enable_inplace_ambiguity_checking = False
        popsr.Session(ir)
    assert 10 < refused < 60


def test_lints_use_a_check_of_the_program_as_it_is_now_only() -> None:
    ir = popsr.Ir()
    ir.options.enable_inplace_ambiguity_checking = True
    with ir.main_graph:
        v = make_variable(np.zeros(SHAPE, np.float32))
        ops.relu_(v)
    assert analyze(ir).warnings == ()  # that the check passed stands for L12
    ir.options.enable_inplace_ambiguity_checking = False
    with ir.main_graph:
        ops.relu_(v)
    assert [lint.code for lint in analyze(ir).warnings] == ["L12"]


def test_the_option_is_read_each_time() -> None:
    """Also when facts of the same program were computed before."""
    ir = popsr.Ir()
    with ir.main_graph:
        v = make_variable(np.zeros(SHAPE, np.float32))
        ops.relu_(v)
        ops.relu_(v)
    popsr.Session(ir)
    ir.options.enable_inplace_ambiguity_checking = True
    for mode in ("partition", "popart"):
        with pytest.raises(errors.GraphError, match="Inplacing ambiguity"):
            analyze(ir, mode=mode)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^options: enable_inplace_ambiguity_checking is not a bool, got 1"):
        ir.options.enableInplaceAmbiguityChecking = 1  # type: ignore[assignment]
