"""docs/differences.md: each row names tests that exist, and what no other file tests is tested here.

The last cell of a row has names of tests as pytest gives them: ``file.py::test_name``, or ``file.py::test_name[id]``
for one case of a table; several are separated by commas.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr.ops import collectives
from tests_py import ROOT
from tests_py.support.helpers import FLOAT8, assert_same_bits, evaluate, make_variable, np_dtype
from tests_py.support.unchecked import unchecked

F32 = popsr.float32
TESTS = ROOT / "tests_py"
PAGE = (TESTS.parent / "docs/differences.md").read_text()
ROWS = [
    re.split(r" \| ", line.strip("| "))
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| PopXL does"))
]
NAMES = list(dict.fromkeys(name for row in ROWS for name in re.findall(r"`(.*?)`", row[-1])))


def test_rows_have_four_cells_and_are_different() -> None:
    assert len(ROWS) > 90
    assert [row for row in ROWS if len(row) != 4 or not all(row)] == []
    assert [row for row in ROWS if not re.fullmatch(r"`[^`]+`(, `[^`]+`)*", row[3])] == []
    assert len({(row[0], row[1]) for row in ROWS}) == len(ROWS)


@pytest.fixture(scope="module")
def collected(request: pytest.FixtureRequest) -> list[str]:
    """The tests of this run, and those of files that it has not, or not whole, among those that the page names."""
    here = [item.nodeid.removeprefix("tests_py/") for item in request.session.items]
    files = sorted({name.partition("::")[0] for name in NAMES if not is_in(name, here)})
    if not files:
        return here
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    result = subprocess.run(command, cwd=TESTS, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-1000:]
    return here + [line.removeprefix("tests_py/") for line in result.stdout.splitlines() if "::" in line]


def is_in(name: str, tests: list[str]) -> bool:
    return any(test == name or test.startswith(f"{name}[") for test in tests)


@pytest.mark.parametrize("name", NAMES)
def test_tests_of_rows_exist(name: str, collected: list[str]) -> None:
    assert is_in(name, collected)


# Rows that no other file tests


def test_abs_is_an_operator() -> None:
    (result,) = evaluate(abs, [np.array([-1.5, 2.0], np.float32)])
    assert result.tolist() == [1.5, 2.0]


def test_ops_run_in_the_order_in_which_they_were_made(capfd: pytest.CaptureFixture[str]) -> None:
    order = [3, 0, 7, 1, 5, 2, 6, 4]
    ir = popsr.Ir()
    with ir.main_graph:
        numbers = [popsr.constant(k) for k in range(len(order))]
        for k in order:
            ops.print_tensor(numbers[k], "made")
    with popsr.Session(ir) as session:
        session.run()
    assert [int(k) for k in re.findall(r"made: (\d)", capfd.readouterr().err)] == order


def test_variables_of_the_environment_change_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POPXL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("POPXL_OFFLINE_DEVICE", "no such device")
    (result,) = evaluate(ops.relu, [np.array([-1.0, 2.0], np.float32)])
    assert result.tolist() == [0.0, 2.0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("assignment", [[0, 0, 1, 1], [0, 1, 1, 0]])
def test_rows_that_are_not_those_of_the_groups_are_refused(assignment: list[int], rows: int) -> None:
    ir = popsr.Ir(replication=4)
    grouping = ir.replica_grouping_from_assignments(assignment)
    with (
        ir.main_graph,
        pytest.raises(popsr.errors.ShapeError, match=rf"got shape \({rows}, 5\), expected \(2, ...\)"),
    ):
        popsr.variable(np.zeros((rows, 5)), F32, replica_grouping=grouping)
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


def test_remote_variables_are_not_operands() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        remote = popsr.remote_variable(np.ones(2, np.float32), popsr.remote_buffer((2,), F32))
        sharded, _ = popsr.replica_sharded_variable(np.ones(2, np.float32))
        for each in (remote, sharded):
            with pytest.raises(popsr.errors.GraphError, match=r"^relu: input t is for the host only"):
                ops.relu(each)
    assert ir.main_graph.ops == ()


@pytest.mark.parametrize("assignment", [[0, 0, 1, 1], [0, 1, 1, 0], [0, 1, 2, 3]])
def test_sizes_of_groups_are_ints(assignment: list[int]) -> None:
    grouping = popsr.Ir(replication=4).replica_grouping_from_assignments(assignment)
    assert type(grouping.group_size) is type(grouping.num_groups) is int
    assert grouping.group_size * grouping.num_groups == 4


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
        assert_same_bits(got, unchecked(np.stack)(data, axis))


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


def test_gradients_that_nothing_needs_are_inputs() -> None:
    """And there is no warning, which would fail this test."""
    ir = popsr.Ir()
    graph = ir.create_graph(lambda t: [t * t, ops.detach(t)], popsr.TensorSpec((2,), F32))
    info = popsr.transforms.autodiff(graph)
    assert [each.fwd_tensor for each in info.expected_inputs[:2]] == list(graph.outputs)


@pytest.mark.parametrize("name", ["float16", "float32"])
def test_partial_sums_are_float32(name: str) -> None:
    """Sums of ones in float16 would stop at 2048."""
    ones = np.ones(4096, np.float16)
    partials = popsr.dtypes.dtype.from_name(name)
    (result,) = evaluate(lambda a, b: ops.matmul(a, b, partials_type=partials), [ones, ones])
    assert float(result) == 4096.0


def test_torch_has_all_types() -> None:
    torch = pytest.importorskip("torch")
    names = {"uint16": "uint16", "uint32": "uint32", "uint64": "uint64"}
    names |= {name: np_dtype(name).name for name in FLOAT8}
    for name, other in names.items():
        assert popsr.dtypes.dtype.from_name(name).as_torch() is getattr(torch, other)
