"""``enable_floating_point_checks``: the first op that makes infinities or NaNs of finite operands ends the run."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import popsr
from popsr import errors, ops, transforms
from popsr.ops import collectives, var_updates
from tests_py.ops import test_ops
from tests_py.ops.rows.inputs import Case
from tests_py.ops.rows.table import OPS
from tests_py.support.helpers import (
    FLOAT8,
    FLOATS,
    PUBLIC,
    Array,
    Streams,
    assert_same_bits,
    dtype,
    make_variable,
    np_dtype,
    plain,
)
from tests_py.support.oracles.float8 import form
from tests_py.support.programs.bit_judge import BitJudge, kernels, program_of, quiet
from tests_py.support.programs.random_programs import RandomProgram
from tests_py.support.unchecked import unchecked

F32, F16, BF16 = popsr.float32, popsr.float16, popsr.bfloat16
REPLICAS = 4
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "two threads": {"num_threads": 2},
    "no dedup": {"dedup": False},
    "check": {"check": True},
}
Body = Callable[[popsr.Tensor], Any]


def checked(replication: int = REPLICAS) -> popsr.Ir:
    ir = popsr.Ir(replication=replication)
    ir.options.enable_floating_point_checks = True
    return ir


class Program:
    """``body`` of what each replica is fed, 1 where nothing is said; an op after it, and a variable it may write."""

    def __init__(self, body: Body, shape: tuple[int, ...] = (2, 3), dtype: popsr.dtypes.dtype = F32) -> None:
        self.ir = checked()
        self.shape, self.dtype = shape, np_dtype(dtype.name)
        with self.ir.main_graph, popsr.in_sequence():
            self.x = popsr.h2d_stream(shape, dtype, "x")
            body(ops.host_load(self.x))
            self.after = popsr.variable(np.zeros((), np.float32), name="after")
            var_updates.accumulate_(self.after, popsr.constant(1.0, F32))

    def run(self, session: popsr.Session, *values: tuple[int, int, float]) -> None:
        """With values of (replica, element)."""
        data = np.ones((REPLICAS, int(np.prod(self.shape))), np.float32)
        for replica, element, value in values:
            data[replica, element] = value
        session.run({self.x: data.reshape(REPLICAS, *self.shape).astype(self.dtype)})

    def error(self, *values: tuple[int, int, float], **options: Any) -> str:
        """Text of the error, after which nothing ran."""
        with popsr.Session(self.ir, **options) as session:
            with pytest.raises(popsr.FloatingPointError) as caught:
                self.run(session, *values)
            assert session.get_tensor_data(self.after) == 0
            assert session.step == 0
            assert any("while running" in note for note in caught.value.__notes__)
        return str(caught.value)


def assert_says(text: str, op: str, value: str, element: str, replicas: str) -> None:
    place = rf"at element {re.escape(element)} of '.*' \w+\[.*\] on {replicas} at "
    pattern = f"{op}: result is not finite, got {value} {place}"
    assert re.match(pattern, text), text
    assert f"{__file__.rsplit('/', 1)[-1]}:" in text
    assert text.endswith("expected finite numbers of finite operands")


# Ops


def _own(array: Array) -> popsr.Variable:
    """A variable of each replica."""
    return make_variable(array, replica_grouping=popsr.gcg().ir.replica_grouping(1, 1))


def _repeated_sum(x: popsr.Tensor) -> None:
    total = _own(np.full((REPLICAS, 2, 3), 2e38, np.float32))
    var_updates.accumulate_(total, ops.mul(x, popsr.constant(1e38, F32)))


def _product(x: popsr.Tensor) -> None:
    """Folded into its consumer without the option."""
    total = _own(np.zeros((REPLICAS, 2, 2), np.float32))
    var_updates.accumulate_(total, ops.matmul(x, ops.transpose(x)))


def _remote(x: popsr.Tensor) -> None:
    buffer = popsr.remote_buffer((2, 3), F32, 1)
    ops.remote_store(buffer, 0, x)
    ops.exp(ops.remote_load(buffer, 0))


def _view(x: popsr.Tensor) -> None:
    ops.exp_(ops.transpose_(ops.add(x, popsr.constant(0.0, F32))))


def _group(x: popsr.Tensor) -> Any:
    return collectives.replicated_all_reduce(x, "add", popsr.gcg().ir.replica_grouping(group_size=2))


# Value fed to element 4 of replica 2, and the report about it.
CASES: dict[str, tuple[Body, float, tuple[str, str, str, str]]] = {
    "exp": (ops.exp, 100.0, ("exp", "inf", "[1, 1]", "replica 2")),
    "log of zero": (ops.log, 0.0, ("log", "-inf", "[1, 1]", "replica 2")),
    "sqrt of negative": (ops.sqrt, -1.0, ("sqrt", "nan", "[1, 1]", "replica 2")),
    "division": (lambda x: popsr.constant(-1.0, F32) / x, 0.0, ("div", "-inf", "[1, 1]", "replica 2")),
    "reduction": (lambda x: ops.sum(ops.concat([x, x], 1), 1), 3e38, ("sum", "inf", "1", "replica 2")),
    "to float16": (lambda x: ops.cast(x, F16), 65520.0, ("cast", "inf", "[1, 1]", "replica 2")),
    "to bfloat16": (lambda x: ops.cast(x, BF16), -3.4e38, ("cast", "-inf", "[1, 1]", "replica 2")),
    "in place": (ops.exp_, 100.0, ("exp_", "inf", "[1, 1]", "replica 2")),
    "variable": (_repeated_sum, 3.0, ("accumulate_", "inf", "[1, 1]", "replica 2")),
    "product": (_product, 2e19, ("matmul", "inf", "[1, 1]", "replica 2")),
    "remote": (_remote, 100.0, ("exp", "inf", "[1, 1]", "replica 2")),
    "view": (_view, 100.0, ("exp_", "inf", "[1, 1]", "replica 2")),
    "collective": (_group, 3.4028235e38, ("replicated_all_reduce", "inf", "[1, 1]", "replicas 2, 3")),
    "second op": (lambda x: ops.log(x - x + x), 0.0, ("log", "-inf", "[1, 1]", "replica 2")),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_errors_name_op_value_element_and_replicas(name: str, mode: str) -> None:
    body, value, said = CASES[name]
    feeds = [(2, 4, value)]
    if name == "collective":
        feeds.append((3, 4, 1e38))
    assert_says(Program(body).error(*feeds, **MODES[mode]), *said)


def test_the_first_replica_and_element_is_named() -> None:
    program = Program(ops.log)
    assert_says(program.error((3, 0, 0.0), (1, 5, 0.0), (1, 2, 0.0)), "log", "-inf", "[0, 2]", "replica 1")


def test_replicas_that_compute_the_same_are_named_together() -> None:
    for dedup in (True, False):
        ir = checked(12)
        with ir.main_graph:
            ops.log(popsr.variable(np.zeros(3, np.float32)))
        with (
            popsr.Session(ir, dedup=dedup) as session,
            pytest.raises(popsr.FloatingPointError, match=r"replicas 0, 1, 2, 3, 4, 5, 6, 7, \.\.\. at "),
        ):
            session.run()


OVERFLOWS = {"float64": 800.0, "float32": 100.0, "float16": 20.0, "bfloat16": 100.0}


@pytest.mark.parametrize("name", FLOATS)
def test_every_dtype(name: str) -> None:
    dtype = popsr.dtypes.dtype.from_name(name)
    program = Program(ops.exp, (5,), dtype)
    with popsr.Session(program.ir) as session:
        program.run(session)  # all finite
        largest = OVERFLOWS[name] / 2 if name != "float16" else 11.0
        program.run(session, (0, 0, largest))
    assert_says(program.error((1, 3, OVERFLOWS[name])), "exp", "inf", "3", "replica 1")
    overflow = Program(lambda x: ops.sqrt(-x), (5,), dtype)
    assert_says(overflow.error(), "sqrt", "nan", "0", "replicas 0, 1, 2, 3")  # they are fed the same


@pytest.mark.parametrize("name", FLOAT8)
def test_overflow_of_float8_is_found(name: str) -> None:
    """As infinity where the format has it, else as NaN."""

    def body(x: popsr.Tensor) -> popsr.Tensor:
        return ops.pow2scale_cast_to_fp8(x, popsr.constant(0, popsr.int32), dtype(name))

    program = Program(body, (4,), F16)
    with popsr.Session(program.ir) as session:
        program.run(session, (0, 1, 100.0))
    found = "nan" if form(name).infinity is None else "inf"
    assert_says(program.error((0, 1, 65000.0)), "pow2scale_cast_to_fp8", found, "1", "replica 0")


def test_random_numbers_that_overflow() -> None:
    ir = checked(1)
    with ir.main_graph:
        seed = popsr.constant(np.array([1, 2], np.uint32))
        ops.random_normal(seed, (100,), mean=65504.0, std=100.0, dtype=F16)
    with popsr.Session(ir) as session, pytest.raises(popsr.FloatingPointError, match=r"^random_normal: "):
        session.run()


def test_gradients_and_merged_collectives() -> None:
    """An op of a gradient graph, and one of several reductions that run at once."""
    ir = checked(2)
    with ir.main_graph, popsr.in_sequence():
        x = popsr.variable(np.zeros(4, np.float32), name="x")
        graph = ir.create_graph(lambda t: ops.sqrt(t), x)
        info = transforms.autodiff(graph)
        call = ops.call_with_info(graph, x)
        ops.call(info.graph, popsr.constant(np.ones(4, np.float32)), inputs_dict=info.inputs_dict(call))
    with popsr.Session(ir) as session, pytest.raises(popsr.FloatingPointError, match="in call of graph"):
        session.run()
    ir = checked(2)
    with ir.main_graph:
        for name, value in (("small", 1.0), ("large", 3e38)):
            t = popsr.variable(np.full(3, value, np.float32), name=name)
            collectives.replicated_all_reduce_(t, "add")
    assert transforms.merge_collectives(ir) == 1
    for options in MODES.values():
        with (
            popsr.Session(ir, **options) as session,
            pytest.raises(
                popsr.FloatingPointError, match=r"^replicated_all_reduce_.*replicas 0, 1 "
            ) as caught,
        ):
            session.run()
        assert "while running replicated_all_reduce_('large')" in str(caught.value.__notes__)


# Places


@pytest.mark.parametrize("dedup", [True, False])
def test_the_iteration_of_a_loop_is_named(dedup: bool) -> None:
    ir = checked(1)
    with ir.main_graph, popsr.in_sequence():
        x = popsr.variable(np.full(2, 1e38, np.float32))

        def body(t: popsr.TensorByRef) -> None:
            ops.add_(t, t)

        ops.repeat(ir.create_graph(body, x), 5, x)
    with popsr.Session(ir, dedup=dedup) as session:
        with pytest.raises(popsr.FloatingPointError, match=r"^add_: .* in repeat of graph .*, iteration 1, "):
            session.run()
        # As far as it was written.
        assert np.all(np.isinf(session.get_tensor_data(x)))


@pytest.mark.parametrize("mode", MODES)
def test_only_replicas_that_take_a_branch_are_looked_at(mode: str) -> None:
    def body(x: popsr.Tensor) -> None:
        ir = popsr.gcg().ir
        taken = ops.greater(ops.sum(x), popsr.constant(0.0, F32))
        log, root = (ir.create_graph(fn, x) for fn in (lambda t: ops.log(t), lambda t: ops.exp(t)))
        ops.conditional(taken, log, root, [x], [x])

    program = Program(body)
    with popsr.Session(program.ir, **MODES[mode]) as session:
        program.run(session, (1, 0, -50.0))  # no logarithm of it is taken
    text = program.error((1, 0, -50.0), (3, 1, 0.0), **MODES[mode])
    assert_says(text, "log", "-inf", "[0, 1]", "replica 3")
    assert " in conditional of graph" in text


# Exempt ops


def _masked(x: popsr.Tensor) -> None:
    mask = popsr.constant(np.where(np.arange(3) > 1, -np.inf, 0).astype(np.float32))
    ops.softmax(x + mask, -1)


def _undefined(x: popsr.Tensor) -> None:
    memory = ops.init((2, 3), F32, init_type="undef")
    ops.exp(memory)
    var_updates.copy_var_update_(memory, x)
    ops.exp(memory)


EXEMPT: dict[str, tuple[Body, float]] = {
    "fed": (lambda x: ops.relu(x), np.nan),
    "mask of constants": (_masked, 1.0),
    "operands": (lambda x: ops.exp(ops.cast(x, F16) - x), np.inf),
    "bool results": (lambda x: (ops.isnan(x), ops.isinf(x), ops.exp(x)), np.nan),
    "integers of them": (lambda x: ops.cast(x, popsr.int32), np.nan),
    "undefined memory": (_undefined, 1.0),
    "views": (lambda x: ops.slice_(ops.transpose_(x), 0, 1), np.nan),
    "collective": (lambda x: collectives.replicated_all_gather(x), np.nan),
}


@pytest.mark.parametrize("name", EXEMPT)
def test_exempt(name: str) -> None:
    body, value = EXEMPT[name]

    def alone(x: popsr.Tensor) -> None:
        body(x) if name != "operands" else ops.exp(ops.sub(x, x))

    program = Program(alone)
    for dedup in (True, False):
        with popsr.Session(program.ir, dedup=dedup) as session:
            program.run(session, (2, 4, value))
            assert session.get_tensor_data(program.after) == 1


def test_memory_that_is_overwritten_is_not_an_operand() -> None:
    """Whatever the variable held, the copy into it is judged by what is copied; a sum by both."""

    def body(x: popsr.Tensor) -> None:
        held = _own(np.full((REPLICAS, 2, 3), np.nan, np.float32))
        var_updates.copy_var_update_(held, x)
        ops.log(held)

    assert_says(Program(body).error((0, 0, 0.0)), "log", "-inf", "[0, 0]", "replica 0")


# The option


def test_the_option() -> None:
    options: Any = popsr.Ir().options
    assert unchecked(options).enable_floating_point_checks is False
    options.enableFloatingPointChecks = True
    assert options.enable_floating_point_checks is True
    assert options.enableFloatingPointChecks is True
    with pytest.raises(errors.ArgumentTypeError, match="enable_floating_point_checks is not a bool, got 1"):
        options.enableFloatingPointChecks = 1
    assert issubclass(popsr.FloatingPointError, (popsr.Error, builtins.FloatingPointError))
    assert popsr.FloatingPointError is errors.FloatingPointError


def test_it_is_read_when_the_session_is_made() -> None:
    program = Program(ops.log)
    program.ir.options.enable_floating_point_checks = False
    with popsr.Session(program.ir) as session:
        program.ir.options.enable_floating_point_checks = True
        program.run(session, (0, 0, 0.0))
        assert session.get_tensor_data(program.after) == 1


def test_a_session_goes_on_after_the_error() -> None:
    program = Program(ops.log)
    with popsr.Session(program.ir) as session:
        for _ in range(2):
            with pytest.raises(popsr.FloatingPointError):
                program.run(session, (0, 0, 0.0))
            program.run(session)
        assert session.step == 2
        assert session.get_tensor_data(program.after) == 2


# The registry


def _cases() -> Iterator[Any]:
    for op in PUBLIC:
        for case in OPS[op].cases:
            yield pytest.param(op, case, id=f"{op}-{case.label}" if case.label else op)


def _finite(array: Array) -> bool:
    array = plain(np.asarray(array))
    is_float = array.dtype.kind == "f" or array.dtype.name.startswith(("bfloat16", "float8", "float4"))
    return not is_float or bool(np.all(np.isfinite(array.astype(np.float64))))


@pytest.mark.parametrize(("op", "case"), list(_cases()))
def test_every_op_raises_where_its_result_is_not_finite(
    op: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of finite operands, and nowhere else; the bits are those without the option."""
    name = "float16" if "float16" in case.dtypes else case.dtypes[0]
    arrays = case.draw(np.random.default_rng(20261122), name)
    plain_run = test_ops.Run(op, case, arrays)
    results = [*plain_run.outputs, *plain_run.variables]
    make = popsr.Ir

    def checked_ir(*args: Any, **options: Any) -> popsr.Ir:
        ir = make(*args, **options)
        ir.options.enable_floating_point_checks = True
        return ir

    monkeypatch.setattr(popsr, "Ir", checked_ir)
    if all(map(_finite, arrays)) and not all(map(_finite, results)):
        with pytest.raises(popsr.FloatingPointError, match=f"^{op}: "):
            test_ops.Run(op, case, arrays)
        return
    run = test_ops.Run(op, case, arrays)
    for got, expect in zip([*run.outputs, *run.variables], results, strict=True):
        assert_same_bits(got, expect)


@pytest.mark.parametrize("name", FLOATS)
def test_the_scan_finds_every_position(name: str) -> None:
    """Also past its first chunk, and never what is merely large."""
    kind = np_dtype(name)
    largest = np.full(9000, ml_dtypes.finfo(kind).max, kind)
    ir, io = checked(1), Streams()
    with ir.main_graph:
        ops.negate(io.feed(largest))
    with popsr.Session(ir) as session:
        io.run(session)
    program = Program(ops.log, (9000,), popsr.dtypes.dtype.from_name(name))
    for at in (0, 4095, 4096, 8999):
        assert_says(program.error((0, at, 0.0)), "log", "-inf", str(at), "replica 0")


# Random programs


def test_random_programs_stop_at_the_same_place_however_they_run() -> None:
    """Shared or not, checked, on other threads and levels; what does not stop has the bits it has without."""
    stopped = finished = 0
    for seed in range(40):
        axes, steps = program_of(seed)
        if axes.rounding == "popart":  # which refuses some programs
            continue
        with quiet():
            program = RandomProgram(axes, seed)
            program.build(steps)
            judge = BitJudge(program, seed)
            plain_runs = list(judge.runs({"dedup": False, "num_threads": 1}))
            program.ir.options.enable_floating_point_checks = True
            expected = list(judge.runs({"dedup": False, "num_threads": 1}))
            for name, options, level in judge.ways():
                with kernels(level):
                    for got, expect in zip(judge.runs(options), expected, strict=True):
                        judge.compare(f"program {seed}, {name}", got, expect)
        for run, (got, expect) in enumerate(zip(expected, plain_runs, strict=False)):
            if got.error.startswith("FloatingPointError"):
                stopped += 1
            else:
                judge.compare(f"program {seed}, run {run}", got, expect)
                finished += 1
    assert min(stopped, finished) > 3
