"""Every op of the registry: its Python signature, its values, its effects, its gradient, its errors."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops, transforms
from tests_py.ops.rows.inputs import Case, Row, call_arguments, written_inputs
from tests_py.ops.rows.table import OPS
from tests_py.support.helpers import (
    ALL_DTYPES,
    FLOAT8,
    NUMBERS_AND_BOOL,
    PUBLIC,
    SCHEMAS,
    Array,
    Streams,
    as_list,
    assert_same_bits,
    dtype,
    make_variable,
    np_dtype,
    plain,
    python_op,
    random_array,
)
from tests_py.support.oracles import ops as oracles

SEED = 20260701


def _cases() -> Iterator[Any]:
    for op in PUBLIC:
        for case in OPS[op].cases if op in OPS else ():
            label = f"{op}-{case.label}" if case.label else op
            yield pytest.param(op, case, id=label)


def _members(ir: popsr.Ir, case: Case) -> tuple[Any, list[list[int]]]:
    assert case.group is not None
    group = ir.replica_grouping(*case.group)
    return group, [[r for r, g in enumerate(group.assignment) if g == k] for k in range(group.num_groups)]


class Run:
    """One case run once: the op modifies a variable where it modifies, and reads streams otherwise."""

    def __init__(self, op: str, case: Case, arrays: list[Array]) -> None:
        ir = popsr.Ir(replication=4 if case.group else 1)
        io = Streams()
        attrs = call_arguments(case)
        written = written_inputs(op, case)
        self.members: list[list[int]] | None = None
        with ir.main_graph, popsr.in_sequence():
            if case.group:
                attrs["group"], self.members = _members(ir, case)
            targets = [self._variable(ir, arrays[i]) for i in written]
            tensors: list[popsr.Tensor] = [
                targets[written.index(i)] if i in written else io.feed(array, replicated=bool(case.group))
                for i, array in enumerate(arrays)
            ]
            fn = python_op(op)
            results = as_list(case.call(fn, *tensors, **attrs) if case.call else fn(*tensors, **attrs))
            self.inferred = [(t.shape, t.dtype) for t in results]
            for tensor in (*results, *(t for i, t in enumerate(tensors) if i not in written)):
                io.fetch(tensor)
        with popsr.Session(ir) as session:
            fetched = io.run(session)
            self.variables = [plain(session.get_tensor_data(target)) for target in targets]
        self.outputs, self.inputs_after = fetched[: len(results)], fetched[len(results) :]
        # A variable that an op modifies without returning it is one more result.
        for (_, k), variable in zip(SCHEMAS[op]["effects"], self.variables, strict=False):
            if k >= len(results):
                self.outputs.append(variable)
                self.inferred.append((targets[0].shape, targets[0].dtype))

    @staticmethod
    def _variable(ir: popsr.Ir, data: Array) -> popsr.Variable:
        return make_variable(
            data, replica_grouping=ir.replica_grouping(1, 1) if ir.replication_factor > 1 else None
        )

    @property
    def variable(self) -> Array | None:
        """The variable that the op modified."""
        return self.variables[0] if self.variables else None

    def keywords(self, case: Case) -> dict[str, Any]:
        """Attributes for the oracle."""
        return dict(case.attrs) if self.members is None else {**case.attrs, "members": self.members}


def _check_exact(case: Case, arrays: list[Array], run: Run) -> None:
    wide = [a.astype(np.float32) if a.dtype.name in ("float16", "bfloat16") else a for a in arrays]
    expect = case.oracle(*wide, **run.keywords(case))
    expected = list(expect) if isinstance(expect, tuple) else [expect]
    assert len(run.outputs) == len(expected)
    for got, value in zip(run.outputs, expected, strict=True):
        assert_same_bits(got, np.asarray(oracles.round_once(value, got.dtype.name)))


def _check_near(case: Case, name: str, arrays: list[Array], run: Run) -> None:
    wide = [
        a.astype(np.longdouble) if a.dtype.kind == "f" or a.dtype.name == "bfloat16" else a for a in arrays
    ]
    compute = oracles.compute_type(name)
    with np.errstate(all="ignore"):
        expect = case.oracle(*wide, **case.attrs)
        expected = list(expect) if isinstance(expect, tuple) else [expect]
        if case.bound is not None:
            roundoff = np.ldexp(np.longdouble(1), -oracles.PRECISION[compute])
            bound = case.bound(*wide, u=roundoff, **case.attrs)
            bounds = list(bound) if isinstance(bound, tuple) else [bound]
        else:
            assert case.ulps is not None
            bounds = [case.ulps[compute] * oracles.unit_in_last_place(e, compute) for e in expected]
    assert len(run.outputs) == len(expected)
    for got, exact, allowed in zip(run.outputs, expected, bounds, strict=True):
        assert got.shape == np.shape(exact)
        exact, unit = np.asarray(exact), oracles.unit_in_last_place(np.abs(exact) + np.abs(allowed), name)
        # A narrow result is rounded once more.
        allowed = np.asarray(allowed) / unit + (0.5 if name != compute else 0.0)
        errors_in_ulps = oracles.ulp_errors(got, exact, name) * oracles.unit_in_last_place(exact, name) / unit
        worst = np.argmax(errors_in_ulps - allowed) if got.size else 0
        assert np.all(errors_in_ulps <= allowed), (
            f"got {got.flat[worst]!r}, expected {exact.flat[worst]!r}, inputs "
            f"{[a.flat[worst] if a.size == got.size else a.shape for a in arrays]}"
        )
        zeros = (got == 0) & (exact == 0)
        if case.ulps is not None:
            assert np.array_equal(np.signbit(got[zeros].astype(np.float32)), np.signbit(exact[zeros])), (
                "sign of zero"
            )


@pytest.mark.parametrize("op", PUBLIC)
def test_every_op_has_a_row(op: str) -> None:
    assert op in OPS, f"add a row for {op!r} to ops/rows/table.py"
    inputs = SCHEMAS[op]["inputs"]
    accepted = inputs[0]["dtypes"] if inputs else OPS[op].gives
    if SCHEMAS[op]["control"] == "none":
        covered = {name for case in OPS[op].cases for name in case.dtypes}
        assert covered == set(accepted), "the cases cover exactly the dtypes that the op accepts"


def test_names_say_what_writes_or_views() -> None:
    """PopXL's optimisers are named otherwise: they modify a time step or a variable."""
    for op in PUBLIC:
        writes = bool(SCHEMAS[op]["effects"]) or SCHEMAS[op]["view"]
        assert (op.endswith("_") or SCHEMAS[op]["family"] == "optimisers") == writes, op


def test_every_row_has_an_op() -> None:
    assert set(OPS) == set(PUBLIC)


@pytest.mark.parametrize("op", PUBLIC)
def test_signature_is_that_of_the_schema(op: str) -> None:
    check_signature(python_op(op), SCHEMAS[op], OPS[op])


def check_signature(function: Callable[..., Any], schema: dict[str, Any], row: Row) -> None:
    """Parameters, their order and their defaults."""
    attrs = [attr for attr in schema["attrs"] if not attr["internal"]]
    # The graph or stream comes first, and the count of a repeat.
    leading = [
        a
        for a in attrs
        if a["type"] in ("graph", "stream", "remote buffer")
        or (schema["control"] != "none" and a["required"])
    ]
    inputs = schema["inputs"]
    order = [a["name"] for a in leading] + [i["name"] for i in inputs] + [a["name"] for a in attrs]
    expected = [row.renamed.get(name, name) for name in dict.fromkeys(order)]
    if row.parameters:
        assert sorted(row.parameters) == sorted(expected)
        expected = list(row.parameters)
    parameters = inspect.signature(function).parameters
    assert [name for name in parameters if name not in row.python_only] == expected
    for entry in inputs:
        parameter = parameters[row.renamed.get(entry["name"], entry["name"])]
        assert (parameter.kind is inspect.Parameter.VAR_POSITIONAL) == (entry["variadic"] and not row.listed)
    for name, value in row.defaults.items():
        assert parameters[name].default == value
    for entry in [*inputs, *attrs]:
        name = row.renamed.get(entry["name"], entry["name"])
        if name in row.defaults:
            continue
        optional = entry.get("optional", False) or not entry.get("required", True)
        default = parameters[name].default
        # None stands for the schema's default. Factors that are a number or a tensor have two optional entries.
        allowed = [None, entry.get("default")] if optional else [inspect.Parameter.empty]
        if name in row.required:
            allowed = [inspect.Parameter.empty]
        if optional and isinstance(default, float):
            allowed += [a["default"] for a in attrs if a["name"] == entry["name"]]
        assert any(default is value or default == value for value in allowed), name
    assert inspect.getdoc(function), "documented"


@pytest.mark.parametrize(("op", "case"), list(_cases()))
def test_values(op: str, case: Case) -> None:
    rng = np.random.default_rng(SEED)
    for name in case.dtypes:
        arrays = case.draw(rng, name)
        before = [array.copy() for array in arrays]
        run = Run(op, case, arrays)
        try:
            for got, (shape, inferred) in zip(run.outputs, run.inferred, strict=True):
                assert got.shape == ((4, *shape) if case.group else shape)
                assert got.dtype == inferred.as_ml_dtypes()
            if case.ulps is None and case.bound is None:
                _check_exact(case, before, run)
            else:
                _check_near(case, name, before, run)
            written = written_inputs(op, case)
            kept = [array for i, array in enumerate(before) if i not in written]
            for after, original in zip(run.inputs_after, kept, strict=True):
                assert_same_bits(after, original, "an input changed")
            for (_, k), variable in zip(SCHEMAS[op]["effects"], run.variables, strict=False):
                assert_same_bits(variable, run.outputs[k], "the variable is not what the op returned")
        except AssertionError as error:
            error.add_note(f"{op} of {name}")
            raise


@pytest.mark.parametrize("op", [op for op in PUBLIC if op in OPS and OPS[op].inplace_of])
def test_inplace_equals_pure(op: str) -> None:
    rng = np.random.default_rng(SEED)
    twin = OPS[op].inplace_of
    assert twin is not None
    assert op == twin + "_"
    changed = False
    for case in OPS[op].cases:
        for name in case.dtypes:
            arrays = case.draw(rng, name)
            pure, inplace = Run(twin, case, arrays), Run(op, case, arrays)
            assert inplace.variable is not None
            assert_same_bits(inplace.variable, pure.outputs[0], f"{name} {case.label}")
            changed |= not np.array_equal(inplace.variable, arrays[0])
    assert changed, "some variable really changes"


@pytest.mark.skipif(os.environ.get("POPSR_ISA") == "v2", reason="level v2 has no fused multiply-add")
def test_matmul_is_one_chain_of_fused_multiply_adds() -> None:
    rng = np.random.default_rng(SEED)
    a, b = random_array(rng, (9, 70), "float32"), random_array(rng, (70, 33), "float32")
    case = Case(lambda *_: [a, b], oracles.fma_chain)
    assert_same_bits(Run("matmul", case, [a, b]).outputs[0], oracles.fma_chain(a, b))
    # Batch invariance: a row's bits do not depend on the rows beside it.
    for rows in (1, 2, 5):
        assert_same_bits(Run("matmul", case, [a[:rows], b]).outputs[0], oracles.fma_chain(a, b)[:rows])


# Gradients


class Differentiated:
    """An op in a graph, that graph's gradient graph, and calls of both."""

    def __init__(
        self, op: str, case: Case, arrays: list[Array], *, provided: list[Array] | None = None
    ) -> None:
        self.ir = popsr.Ir(replication=4 if case.group else 1)
        self.io = Streams()
        attrs = call_arguments(case)
        fn = python_op(op)
        with self.ir.main_graph, popsr.in_sequence():
            if case.group:
                attrs["group"] = _members(self.ir, case)[0]
            self.tensors = [self.io.feed(array, replicated=bool(case.group)) for array in arrays]

            def body(*xs: popsr.Tensor) -> Any:
                return case.call(fn, *xs, **attrs) if case.call else fn(*xs, **attrs)

            self.graph = self.ir.create_graph(body, *self.tensors)
            inputs = self.graph.inputs
            kinds = {np_dtype(name) for name in ("float64", *FLOAT8)}
            self.wanted = [i for i, a in enumerate(arrays) if a.dtype in kinds]
            self.info = transforms.autodiff(self.graph, grads_required=[inputs[i] for i in self.wanted])
            call = ops.call_with_info(self.graph, *self.tensors)
            self.outputs = call.outputs[: len(self.graph.outputs)]
            rng = np.random.default_rng(1)
            self.seeds = [rng.standard_normal(t.shape) for t in call.outputs[:1]]
            fed = [self.io.feed(seed) for seed in self.seeds]
            gradients = ops.call(self.info.graph, *fed, inputs_dict=self.info.inputs_dict(call))
            for tensor in (self.outputs[0], *gradients):
                self.io.fetch(tensor)


def _smooth_cases() -> Iterator[Any]:
    for op in PUBLIC:
        for case in OPS[op].cases if op in OPS else ():
            if case.smooth and "float64" in case.dtypes and not SCHEMAS[op]["effects"]:
                yield pytest.param(op, case, id=f"{op}-{case.label}" if case.label else op)


@pytest.mark.parametrize(("op", "case"), list(_smooth_cases()))
def test_gradient_by_finite_differences(op: str, case: Case) -> None:
    assert OPS[op].grad == "finite"
    rng = np.random.default_rng(SEED)
    arrays = case.draw(rng, "float64")
    built = Differentiated(op, case, arrays)
    step = 1e-6
    directions = [rng.standard_normal(arrays[i].shape) for i in built.wanted]
    with popsr.Session(built.ir) as session:
        results = []
        for sign in (0, 1, -1):
            for stream, array in zip(built.io.inputs, arrays, strict=False):
                built.io.inputs[stream] = array
            for i, direction in zip(built.wanted, directions, strict=True):
                stream = list(built.io.inputs)[i]
                built.io.inputs[stream] = arrays[i] + sign * step * direction
            results.append(built.io.run(session))
    (_, *gradients), (up, *_), (down, *_) = results
    difference = float(np.sum(built.seeds[0] * (up - down))) / (2 * step)
    products = [g * d for g, d in zip(gradients, directions, strict=True)]
    slope = sum(float(np.sum(p)) for p in products)
    scale = 1.0 + sum(float(np.sum(np.abs(p))) for p in products)
    assert abs(slope - difference) < 1e-6 * scale, (slope, difference)
    assert any(np.any(g != 0) for g in gradients), "some gradient is not zero"


@pytest.mark.parametrize("op", [op for op in PUBLIC if op in OPS and OPS[op].grad == "zeros"])
def test_gradient_of_zeros(op: str) -> None:
    case = OPS[op].cases[0]
    arrays = case.draw(np.random.default_rng(SEED), "float64")
    built = Differentiated(op, case, arrays)
    with popsr.Session(built.ir) as session:
        _, gradient = built.io.run(session)
    assert_same_bits(gradient, np.zeros_like(arrays[0]))


@pytest.mark.parametrize("op", [op for op in PUBLIC if op in OPS])
def test_gradient_is_what_the_row_says(op: str) -> None:
    row, schema = OPS[op], SCHEMAS[op]
    if row.grad in ("finite", "zeros", "own part", "stated"):
        assert schema["has_grad"] or schema["control"] in ("call", "conditional")
        assert row.grad != "finite" or any(case.smooth for case in row.cases)
        return
    assert not schema["has_grad"]
    if row.grad == "nothing":
        floats = [i for i in schema["inputs"] if "float32" in i["dtypes"]]
        assert not floats or schema["observable"], "only what gives nothing back has no gradient to ask for"
        return
    assert (row.grad == "modifies") == bool(schema["effects"])
    assert (row.grad in ("throws", "bool")) == bool(schema["grad_throws"])
    match = {
        "stops": "unable to provide required gradient",
        "throws": f"{op} has no gradient",
        "bool": "unable to provide .* expected a floating tensor on the way",
        "modifies": "contains a modifying op",
    }[row.grad]
    case = next((case for case in row.cases if "float64" in case.dtypes), row.cases[0])
    name = "float64" if "float64" in case.dtypes else case.dtypes[0]
    arrays = case.draw(np.random.default_rng(SEED), name)
    with pytest.raises(errors.GraphError, match=match):
        Differentiated(op, case, arrays)


# Errors


def _tensors(ir: popsr.Ir, op: str) -> tuple[Case, list[popsr.Tensor], dict[str, Any]]:
    """Good arguments of an op, in the current graph."""
    case = OPS[op].cases[0]
    name = case.dtypes[0]
    arrays = case.draw(np.random.default_rng(SEED), name)
    if case.group:
        arrays = [array[0] for array in arrays]
    specs = [popsr.graph_input(array.shape, dtype(array.dtype.name)) for array in arrays]
    return case, specs, call_arguments(case)


def _call_ops() -> list[str]:
    """Ops whose tensors are arguments of their Python function."""
    return [op for op in PUBLIC if op in OPS and SCHEMAS[op]["inputs"] and OPS[op].cases[0].call is None]


@pytest.mark.parametrize("op", _call_ops())
def test_wrong_dtype(op: str) -> None:
    ir = popsr.Ir(replication=4)
    with ir.create_empty_graph():
        case, tensors, attrs = _tensors(ir, op)
        for i, tensor in enumerate(tensors):
            entry = SCHEMAS[op]["inputs"][min(i, len(SCHEMAS[op]["inputs"]) - 1)]
            for name in sorted(set(ALL_DTYPES) - set(entry["dtypes"])):
                bad = popsr.graph_input(tensor.shape, dtype(name))
                with pytest.raises(errors.DTypeError, match=rf"^{op}: .*{entry['name']}.* expected one of"):
                    python_op(op)(*tensors[:i], bad, *tensors[i + 1 :], **attrs)
        assert case.dtypes


@pytest.mark.parametrize("op", _call_ops())
def test_not_a_tensor(op: str) -> None:
    ir = popsr.Ir(replication=4)
    with ir.create_empty_graph():
        _, tensors, attrs = _tensors(ir, op)
        for i in range(len(tensors)):
            with pytest.raises(errors.ArgumentTypeError, match=rf"^{op}: .*not a Tensor.*'nonsense'"):
                python_op(op)(*tensors[:i], "nonsense", *tensors[i + 1 :], **attrs)


@pytest.mark.parametrize("op", _call_ops())
def test_tensor_of_another_graph(op: str) -> None:
    ir = popsr.Ir(replication=4)
    with ir.create_empty_graph() as graph:
        _, tensors, attrs = _tensors(ir, op)
    with ir.create_empty_graph() as other:
        _, strangers, _ = _tensors(ir, op)
    with graph:
        with pytest.raises(
            errors.GraphError, match=rf"^{op}: .*another graph.*{other.id.replace('(', '.')[:-2]}"
        ):
            python_op(op)(strangers[0], *tensors[1:], **attrs)
        python_op(op)(*tensors, **attrs)


@pytest.mark.parametrize("op", [op for op in PUBLIC if op in OPS])
def test_arity(op: str) -> None:
    fn = python_op(op)
    parameters = inspect.signature(fn).parameters.values()
    with popsr.Ir().main_graph:
        if any(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in parameters):
            with pytest.raises(TypeError, match=rf"{op}\(\) missing"):
                fn()
        if not any(p.kind is p.VAR_POSITIONAL for p in parameters):
            with pytest.raises(TypeError, match=rf"{op}\(\) takes"):
                fn(*[None] * (len(parameters) + 1))
        with pytest.raises(
            TypeError, match=rf"{op}\(\) .*unexpected keyword argument 'nonsense'|{op}\(\) missing"
        ):
            fn(nonsense=1)


def test_maximum_needs_an_operand() -> None:
    with popsr.Ir().main_graph, pytest.raises(errors.Error, match=r"^maximum: "):
        ops.maximum()


def test_dtype_names_match_numpy() -> None:
    for name in NUMBERS_AND_BOOL:
        assert np_dtype(name).name == name
