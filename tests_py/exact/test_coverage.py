"""Each op of the registry has an exact meaning, or is in the list of those without."""

from __future__ import annotations

import pytest

import popsr
from popsr import errors, ops
from popsr._support.fields import Numbers
from popsr.bridge._exact import run_exact
from popsr.ops._exact import COLLECTIVES, MEANINGS, WITHOUT
from tests_py.support.helpers import SCHEMAS


def _takes_floats(op: str) -> bool:
    return any("float32" in each["dtypes"] or "float16" in each["dtypes"] for each in SCHEMAS[op]["inputs"])


@pytest.mark.parametrize("op", SCHEMAS)
def test_every_op_has_a_meaning_or_a_reason(op: str) -> None:
    schema = SCHEMAS[op]
    of_program = schema["control"] != "none" or schema["view"] or op in ("host_load", "host_store")
    meant = op in MEANINGS or op in COLLECTIVES or of_program
    assert not (meant and op in WITHOUT)
    assert meant or op in WITHOUT or not _takes_floats(op)


def test_no_meaning_is_of_no_op() -> None:
    assert not ({*MEANINGS, *COLLECTIVES, *WITHOUT} - {*SCHEMAS})


def test_ops_without_meaning_are_refused_by_name_and_line() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        t, grid = popsr.variable([[[[1.0]]]]), popsr.variable([[[[0.5, 0.5]]]])
        ops.grid_sample(t, grid)
    with pytest.raises(
        errors.UnsupportedError, match=r"numbers decide .* got op 'grid_sample' at .*test_coverage"
    ):
        run_exact(ir, {})


def test_undefined_numbers_are_not_compared() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        t = popsr.variable([1.0])
        ops.greater(t * popsr.constant(-1e30), popsr.constant(0.0))
    with pytest.raises(errors.UnsupportedError, match="an undefined number is compared, got op 'greater'"):
        run_exact(ir, {t._id: [Numbers.draw((1,), "t", 0)]})
