"""Every op: its exact meaning, run on floats, gives what its kernel gives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors
from popsr.ops._exact import WITHOUT
from tests_py.exact.floats import float_numbers, values_of
from tests_py.exact.programs import exact_outputs, kernel_outputs
from tests_py.ops.rows.inputs import Case, call_arguments, written_inputs
from tests_py.ops.rows.table import OPS
from tests_py.ops.test_ops import Differentiated, _members, _smooth_cases
from tests_py.support.helpers import PUBLIC, SCHEMAS, Array, Streams, as_list, make_variable, python_op

SEED = 20261129


def _cases() -> Iterator[Any]:
    for op in PUBLIC:
        for case in OPS[op].cases:
            if "special" not in case.label and SCHEMAS[op]["control"] == "none":
                label = f"{op}-{case.label}" if case.label else op
                yield pytest.param(op, case, id=label)


# Random functions of several numbers, and formats that round much: their values are not those of the kernel.
OTHERS = re.compile(r"(atan2|fmod|increment_mod)|cast-normal-to-float(8_e8m0|4)|pow2scale_cast_to_fp8-.*-31$")
# Forms that may be refused: digits of numbers, margins, extremes that start from nothing, planes that are too large.
REFUSED = re.compile(
    r"(fft|interpolate|resize)-threads|conv-long|max_pool-margins|cast-to-u?int|(grouped_)?scatter_reduce-"
)


def check(op: str, case: Case, ir: popsr.Ir, io: Streams, least: float = 0) -> None:
    """Compare the results, unless the op is refused and may be."""
    expected = kernel_outputs(ir, io)
    with float_numbers():
        try:
            _, found = exact_outputs(ir, io)
        except errors.UnsupportedError:
            assert op in WITHOUT or REFUSED.match(f"{op}-{case.label}")
            return
        assert_near(found, expected, least)


class Program:
    """One case: the op modifies a variable where it modifies, and reads streams otherwise."""

    def __init__(self, op: str, case: Case, arrays: list[Array]) -> None:
        self.ir = ir = popsr.Ir(replication=4 if case.group else 1)
        self.io = Streams()
        attrs = call_arguments(case)
        written = written_inputs(op, case)
        with ir.main_graph, popsr.in_sequence():
            if case.group:
                attrs["group"], _ = _members(ir, case)
            groups: dict[str, Any] = {"replica_grouping": ir.replica_grouping(1, 1)} if case.group else {}
            tensors = [
                make_variable(array, **groups)
                if i in written
                else self.io.feed(array, replicated=bool(case.group))
                for i, array in enumerate(arrays)
            ]
            fn = python_op(op)
            for tensor in as_list(case.call(fn, *tensors, **attrs) if case.call else fn(*tensors, **attrs)):
                self.io.fetch(tensor)
            self.variables = [tensors[i] for i in written]
            for variable in self.variables:
                self.io.fetch(variable)


ERRORS = {"float64": 1e-9, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1e-2}


def assert_near(found: list[list[Any]], expected: list[list[Array]], least: float = 0) -> None:
    """Equal up to rounding, on all replicas."""
    for rows, wanted in zip(found, expected, strict=True):
        for got, want in zip(rows, wanted, strict=True):
            values, exact = values_of(got), np.asarray(want)
            assert values.shape == exact.shape
            if exact.dtype.kind == "f" or "float" in exact.dtype.name:
                error = max(ERRORS.get(exact.dtype.name, 0.2), least)
                np.testing.assert_allclose(values, exact.astype(np.float64), rtol=error, atol=error)
            else:
                np.testing.assert_array_equal(values, exact)


@pytest.mark.parametrize(("op", "case"), list(_cases()))
def test_meaning_is_that_of_the_kernel(op: str, case: Case) -> None:
    name = next((each for each in ("float64", "float32", "int32", "bool") if each in case.dtypes), None)
    if name is None or OTHERS.match(f"{op}-{case.label}"):
        return
    arrays = case.draw(np.random.default_rng(SEED), name)
    if any(
        array.dtype.kind == "f" and not (np.abs(array.astype(np.float64)) < 1e6).all() for array in arrays
    ):
        return  # infinities and extremes have tests of their own
    program = Program(op, case, arrays)
    dtypes = (name, *(array.dtype.name for array in arrays))
    check(op, case, program.ir, program.io, max(ERRORS.get(each, 0) for each in dtypes))


@pytest.mark.parametrize(("op", "case"), list(_smooth_cases()))
def test_meaning_of_gradients(op: str, case: Case) -> None:
    if OTHERS.match(f"{op}-{case.label}"):
        return
    arrays = case.draw(np.random.default_rng(SEED), "float64")
    built = Differentiated(op, case, arrays)
    check(op, case, built.ir, built.io)
