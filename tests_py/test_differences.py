"""docs/differences.md: each row has a test that exists, and what no other file tests is tested here."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import assert_same_bits, evaluate, make_variable

import popsr
from popsr import ops
from popsr.ops import collectives

F32 = popsr.float32
TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs/differences.md").read_text()
ROWS = [re.split(r" \| ", line.strip("| ")) for line in PAGE.splitlines() if line.startswith("| ")][2:]


def test_rows_have_four_cells_and_are_different() -> None:
    assert len(ROWS) > 40
    assert [row for row in ROWS if len(row) != 4 or not all(row)] == []
    assert len({(row[0], row[1]) for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("name", dict.fromkeys(row[3] for row in ROWS))
def test_tests_of_rows_exist(name: str) -> None:
    file, _, function = name.strip("`").partition("::")
    found = ast.parse((TESTS / file).read_text()).body
    assert function.startswith("test_")
    assert function in {each.name for each in found if isinstance(each, ast.FunctionDef)}


# --- rows that no other file tests ----------------------------------------------------------------------------------


def test_abs_is_an_operator() -> None:
    (result,) = evaluate(abs, [np.array([-1.5, 2.0], np.float32)])
    assert result.tolist() == [1.5, 2.0]


@pytest.mark.parametrize("assignment", [[0, 0, 1, 1], [0, 1, 1, 0]])
def test_rows_beyond_the_groups_are_refused(assignment: list[int]) -> None:
    ir = popsr.Ir(replication=4)
    grouping = ir.replica_grouping_from_assignments(assignment)
    with (
        ir.main_graph,
        pytest.raises(popsr.errors.ShapeError, match=r"got shape \(3, 5\), expected \(2, ...\)"),
    ):
        popsr.variable(np.zeros((3, 5)), F32, replica_grouping=grouping)
    assert ir.main_graph.variables == ()


def test_unused_variables_are_kept() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        unused = popsr.variable([1.0, 2.0], F32, "unused")
        ops.init((), F32)
    with popsr.Session(ir) as session:
        session.run()
        session.write_variable_data(unused, np.array([3.0, 4.0], np.float32))
        assert session.get_tensor_data(unused).tolist() == [3.0, 4.0]


def _of_replicas(data: np.ndarray[Any, Any], fn: Any) -> list[Any]:
    """A row a replica of what ``fn`` makes of ``data``, which has a row a replica."""
    return list(evaluate(fn, [data], replication=len(data), replicated=True)[0])


def test_collectives_take_any_groups() -> None:
    data = np.arange(8, dtype=np.float32).reshape(4, 2)

    def reduce(t: popsr.Tensor) -> popsr.Tensor:
        groups = popsr.gir().replica_grouping_from_assignments([0, 1, 1, 0])
        assert not groups.is_const
        return collectives.replicated_all_reduce(t, "add", groups)

    outer, inner = data[0] + data[3], data[1] + data[2]
    for got, expect in zip(_of_replicas(data, reduce), (outer, inner, inner, outer), strict=True):
        assert_same_bits(got, expect)


def test_mul_is_a_product() -> None:
    data = np.array([[2.0, 3.0], [5.0, 7.0]], np.float32)
    for got in _of_replicas(data, lambda t: collectives.replicated_all_reduce(t, "mul")):
        assert got.tolist() == [10.0, 21.0]


def test_axes_of_collectives_count_from_the_end() -> None:
    data = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for got in _of_replicas(data, lambda t: collectives.replicated_all_gather(t, axis=-1)):
        assert_same_bits(got, np.concatenate(data, axis=-1))
    for row, got in zip(
        data, _of_replicas(data, lambda t: collectives.replicated_slice(t, axis=-1)), strict=True
    ):
        assert got.shape == (3, 2)
        assert set(got.flat) < set(row.flat)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_gathered_values_are_stacked_along_any_axis(axis: int) -> None:
    data = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for got in _of_replicas(
        data, lambda t: collectives.replicated_all_gather(t, axis=axis, output_shape="new_axis")
    ):
        assert_same_bits(got, np.stack(data, axis))


@pytest.mark.parametrize("axis", [0, 1])
def test_sliced_axes_stay(axis: int) -> None:
    data = np.arange(4 * 4 * 4 * 3, dtype=np.float32).reshape(4, 4, 4, 3)
    parts = _of_replicas(data, lambda t: collectives.replicated_slice(t, axis=axis))
    for replica, got in enumerate(parts):
        assert_same_bits(got, np.take(data[replica], [replica], axis))


@pytest.mark.parametrize(
    ("transfers", "shape", "data"),
    [(1, (2,), 1.0), (1, (2,), [1.0]), (3, (2,), [1.0, 2.0, 3.0]), (1, (2, 1), [1.0])],
)
def test_data_of_streams_has_all_elements(transfers: int, shape: tuple[int, ...], data: Any) -> None:
    ir = popsr.Ir()
    ir.num_host_transfers = transfers
    with ir.main_graph:
        stream = popsr.h2d_stream(shape, F32)
        ops.host_load(stream)
    with (
        popsr.Session(ir) as session,
        pytest.raises(popsr.errors.ShapeError, match=r"run: shapes differ for stream 't'"),
    ):
        session.run({stream: np.array(data, np.float32)})


def test_variables_are_written_all_or_none() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        a, b = make_variable(np.zeros(2, np.float32), "a"), make_variable(np.zeros(2, np.float32), "b")
        ops.init((), F32)
    with popsr.Session(ir) as session:
        with pytest.raises(
            popsr.errors.ShapeError, match=r"shapes differ for 'b', got \(3,\), expected \(2,\)"
        ):
            session.write_variables_data({a: np.ones(2, np.float32), b: np.ones(3, np.float32)})
        assert session.get_tensor_data(a).tolist() == [0.0, 0.0]


def test_constants_stay_constants() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        graph = ir.create_graph(
            lambda t: t * popsr.constant([2.0, 3.0], F32, "c"), make_variable(np.ones(2, np.float32))
        )
    info = popsr.transforms.autodiff(graph)
    assert len(graph.outputs) == len(info.expected_inputs) == 1
    assert [t.name for t in info.graph.constants] == ["c"]
