"""Variables with a value per group of replicas: making them, shapes on the host, and reading them back."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.io import PyWeightsIO
from popsr.replicas import CommGroup, CommGroupType, VariableRetrievalMode, VariableSettings
from tests_py.support.helpers import Array, assert_same_bits

F32 = popsr.float32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Replica, Argument = errors.ReplicaError, errors.ArgumentTypeError


# Shapes


@pytest.mark.parametrize(
    ("assignment", "data_shape", "shape"),
    [
        ([0, 0, 0, 0], (2, 3), (2, 3)),
        ([0, 0, 0, 0], (1, 3), (1, 3)),  # one group: a leading 1 is a dimension like others
        ([0, 0, 0, 0], (), ()),
        ([0, 0, 1, 1], (2, 2, 3), (2, 3)),
        ([0, 1, 0, 1], (2,), ()),
        ([0, 1, 1, 0], (2, 1), (1,)),
        ([0, 1, 2, 3], (4, 0), (0,)),
        ([0], (1, 3), (1, 3)),
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", ["one_per_group", "all_replicas"])
def test_shapes(
    assignment: list[int], data_shape: tuple[int, ...], shape: tuple[int, ...], mode: Any
) -> None:
    ir = popsr.Ir(replication=len(assignment))
    with ir.main_graph:
        v = popsr.variable(
            np.zeros(data_shape, np.float32),
            replica_grouping=ir.replica_grouping_from_assignments(assignment),
            retrieval_mode=mode,
        )
        ops.relu(v)
    assert (v.shape, v.shape_on_replica, v.shape_on_host) == (shape, shape, data_shape)
    assert v.retrieval_mode == mode
    assert v.replica_grouping.assignment == assignment
    several = mode == "all_replicas" and len(set(assignment)) < len(assignment)
    read = popsr.Session(ir).get_tensor_data(v)
    assert read.shape == ((len(assignment), *shape) if several else data_shape)


@pytest.mark.parametrize(
    ("settings", "mode", "assignment"),
    [
        (VariableSettings(), "one_per_group", [0, 0, 0, 0]),
        (VariableSettings(CommGroup(CommGroupType.Consecutive, 2)), "one_per_group", [0, 0, 1, 1]),
        (
            VariableSettings(CommGroup(CommGroupType.Orthogonal, 2), VariableRetrievalMode.AllReplicas),
            "all_replicas",
            [0, 1, 0, 1],
        ),
        (VariableSettings(CommGroup(CommGroupType.Ungrouped, 0)), "one_per_group", [0, 1, 2, 3]),
    ],
    ids=str,
)
def test_settings_and_the_names_of_popart(settings: Any, mode: str, assignment: list[int]) -> None:
    ir = popsr.Ir(replication=4)
    groups = max(assignment) + 1
    data = (
        np.arange(3 * groups, dtype=np.float32).reshape(groups, 3) if groups > 1 else np.ones(3, np.float32)
    )
    with ir.main_graph:
        made = [popsr.variable(data, name="a", variable_settings=settings)]
    made.append(ir.main_graph.add_var_init("b", data, settings))
    made.append(ir.add_initialized_input(data, settings, "c"))
    made.append(ir.main_graph.addVarInit("d", data, settings))  # type: ignore[attr-defined]
    made.append(ir.addInitializedInput(data, settings))  # type: ignore[attr-defined]
    assert [v.id for v in made] == ["a", "b", "c", "d", "t"]
    for v in made:
        assert isinstance(v, popsr.Variable)
        assert (v.shape, v.shape_on_host, v.retrieval_mode) == ((3,), data.shape, mode)
        assert v.replica_grouping.assignment == assignment


def test_without_settings_popart_names_make_one_group() -> None:
    ir = popsr.Ir(replication=2)
    assert ir.add_initialized_input([1.0]).replica_grouping == ir.replica_grouping()
    assert ir.main_graph.add_var_init("w", [1.0]).id == "w"


def test_embedding_the_replication_factor() -> None:
    for embed in ("embed_replication_factor", "embedReplicationFactor"):
        for args in ((), (4,)):
            ir = popsr.Ir(replication=4)
            assert not ir._embeds_replication
            getattr(ir, embed)(*args)
            assert ir._embeds_replication
    with pytest.raises(Replica, match=r"^embed_replication_factor: not the Ir's .*, got 3, expected 4"):
        ir.embed_replication_factor(3)


# Data


def _stored(ir: popsr.Ir, v: popsr.Variable) -> Array:
    """The value on each replica."""
    with ir.main_graph:
        out = popsr.d2h_stream(v.shape, v.dtype)
        ops.host_store(out, v)
    with popsr.Session(ir) as session:
        return session.run()[out]


ROWS = [np.array([[1, 2], [3, 4]], np.float32), np.array([[5, 6], [7, 8]], np.float32)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.stack(ROWS),
        lambda: np.stack(ROWS).tolist(),
        lambda: np.stack(ROWS).astype(np.float64),
        lambda: np.asfortranarray(np.stack(ROWS)),
        lambda: np.stack(ROWS).astype(">f4"),
        lambda: iter(ROWS),
        lambda: (row.astype(np.float64) for row in ROWS),
        lambda: map(np.asfortranarray, ROWS),
        lambda: iter([ROWS[0].tolist(), ROWS[1]]),
    ],
    ids=["array", "list", "float64", "fortran", "big-endian", "iter", "generator", "map", "mixed"],
)
@pytest.mark.parametrize("assignment", [[0, 0, 1, 1], [0, 1, 1, 0], [0, 1]], ids=str)
def test_forms_of_data(make: Callable[[], Any], assignment: list[int]) -> None:
    ir = popsr.Ir(replication=len(assignment))
    with ir.main_graph:
        v = popsr.variable(make(), replica_grouping=ir.replica_grouping_from_assignments(assignment))
    assert (v.dtype, v.shape) == (F32, (2, 2))
    assert_same_bits(_stored(ir, v), np.stack(ROWS)[assignment])


def test_torch_rows() -> None:
    torch = pytest.importorskip("torch")
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        rows = [
            torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
            torch.tensor([3.0, 4.0], dtype=torch.bfloat16),
        ]
        v = popsr.variable(iter(rows), replica_grouping=ir.replica_grouping(group_size=1))
    assert v.dtype is popsr.bfloat16
    assert _stored(ir, v).astype(np.float32).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "value", [1.5, [1.0, 2.0], np.ones((2, 3), np.float16)], ids=["scalar", "list", "array"]
)
def test_an_iterator_of_one_group_has_one_value(value: Any) -> None:
    ir = popsr.Ir(replication=3)
    with ir.main_graph:
        v = popsr.variable(iter([value]))
    assert v.shape == np.shape(value)
    assert_same_bits(_stored(ir, v)[2], np.asarray(value, v.dtype.as_numpy()))


def test_iterators_are_read_once_and_to_their_end() -> None:
    drawn = []

    def rows() -> Iterator[Array]:
        for i in range(2):
            drawn.append(i)
            yield np.array([i], np.float32)

    ir = popsr.Ir(replication=4)
    with ir.main_graph:
        popsr.variable(rows(), replica_grouping=ir.replica_grouping(group_size=2))
    assert drawn == [0, 1]


Bad = tuple[str, Callable[[popsr.Ir], Any], type[Exception], str]


def _pairs(ir: popsr.Ir, data: Any, **options: Any) -> popsr.Variable:
    return popsr.variable(data, name="w", replica_grouping=ir.replica_grouping(group_size=2), **options)


def _settings(mode: VariableRetrievalMode = VariableRetrievalMode.OnePerGroup) -> VariableSettings:
    return VariableSettings(CommGroup(CommGroupType.Consecutive, 2), mode)


BAD: list[Bad] = [
    ("rank-0", lambda ir: _pairs(ir, 1.0), Shape, r"variable 'w': .* got shape \(\), expected \(2, \.\.\.\)"),
    ("missing-row", lambda ir: _pairs(ir, np.ones((1, 3))), Shape, r"got shape \(1, 3\), expected \(2, "),
    ("extra-row", lambda ir: _pairs(ir, np.ones((3, 3))), Shape, r"got shape \(3, 3\), expected \(2, "),
    ("row-a-replica", lambda ir: _pairs(ir, np.ones((4, 3))), Shape, r"got shape \(4, 3\), expected \(2, "),
    (
        "non-const-extra-row",
        lambda ir: popsr.variable(
            np.ones((3, 3)), replica_grouping=ir.replica_grouping_from_assignments([0, 1, 1, 0])
        ),
        Shape,
        r"got shape \(3, 3\), expected \(2, ",
    ),
    ("ragged", lambda ir: _pairs(ir, [[1.0], [1.0, 2.0]]), Shape, r"variable 'w': not an array"),
    (
        "too-few",
        lambda ir: _pairs(ir, iter(ROWS[:1])),
        Shape,
        r"variable 'w': too few rows, got no row 1 .*expected 2",
    ),
    ("none", lambda ir: _pairs(ir, iter([])), Shape, r"too few rows, got no row 0 .*expected 2"),
    (
        "too-many",
        lambda ir: _pairs(ir, iter([*ROWS, ROWS[0]])),
        Shape,
        r"too many rows, got row 2 .*expected 2",
    ),
    (
        "one-group-none",
        lambda ir: popsr.variable(iter([])),
        Shape,
        r"too few rows, got no row 0 .*expected 1",
    ),
    ("one-group-two", lambda ir: popsr.variable(iter(ROWS)), Shape, r"too many rows, got row 1 .*expected 1"),
    (
        "shapes-differ",
        lambda ir: _pairs(ir, iter([ROWS[0], ROWS[1][0]])),
        Shape,
        r"rows differ in shape, got \(2,\) in row 1, expected \(2, 2\)",
    ),
    (
        "dtypes-differ",
        lambda ir: _pairs(ir, iter([ROWS[0], ROWS[1].astype(np.int32)])),
        DType,
        r"rows differ in dtype, got int32 in row 1, expected float32",
    ),
    (
        "text-in-row",
        lambda ir: _pairs(ir, iter([ROWS[0], "no"])),
        DType,
        r"variable 'w': row 1: data of no supported dtype",
    ),
    ("mode", lambda ir: _pairs(ir, ROWS, retrieval_mode="all"), Attr, r"unknown retrieval_mode, got 'all'"),
    (
        "no-grouping",
        lambda ir: popsr.variable(ROWS, replica_grouping=[0, 0, 1, 1]),  # type: ignore[arg-type]
        Argument,
        r"variable: replica_grouping is not a ReplicaGrouping, got \[0, 0, 1, 1\]",
    ),
    (
        "other-ir",
        lambda ir: popsr.variable(ROWS, replica_grouping=popsr.Ir(2).replica_grouping()),
        Replica,
        r"variable: grouping of another replica count, got 2, expected 4",
    ),
    (
        "no-settings",
        lambda ir: popsr.variable(ROWS, variable_settings=ir.replica_grouping()),  # type: ignore[arg-type]
        Argument,
        r"variable: variable_settings is not a VariableSettings, got ReplicaGrouping",
    ),
    (
        "settings-and-grouping",
        lambda ir: _pairs(ir, ROWS, variable_settings=_settings()),
        Attr,
        r"variable: groups are given twice",
    ),
    (
        "settings-and-mode",
        lambda ir: popsr.variable(ROWS, retrieval_mode="one_per_group", variable_settings=_settings()),
        Attr,
        r"variable: groups are given twice",
    ),
    (
        "all-reduce",
        lambda ir: ir.add_initialized_input(ROWS, _settings(VariableRetrievalMode.AllReduceReplicas)),
        errors.UnsupportedError,
        r"AllReduceReplicas is not supported, expected OnePerGroup or AllReplicas",
    ),
    (
        "settings-do-not-tile",
        lambda ir: ir.add_initialized_input(ROWS, VariableSettings(CommGroup(CommGroupType.Consecutive, 3))),
        Replica,
        r"3.*4 replicas",
    ),
    (
        "settings-rows",
        lambda ir: ir.add_initialized_input(np.ones((4, 3)), _settings(), "w"),
        Shape,
        r"variable 'w': .*got shape \(4, 3\), expected \(2, ",
    ),
    (
        "subgraph",
        lambda ir: ir.create_empty_graph("g").add_var_init("w", [1.0]),
        errors.GraphError,
        r"variable: made in graph '.*g.*', expected the main graph",
    ),
    (
        "name",
        lambda ir: ir.add_initialized_input([1.0], None, 5),  # type: ignore[arg-type]
        Argument,
        r"variable: name is not a str, got 5",
    ),
]


@pytest.mark.parametrize(("make", "error", "text"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_variables_leave_no_trace(
    make: Callable[[popsr.Ir], Any], error: type[Exception], text: str
) -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph, pytest.raises(error, match=text) as raised:
        make(ir)
    assert "\n" not in str(raised.value)
    assert ir.main_graph.tensors == ()


# Storage


@pytest.mark.parametrize(("group_size", "copies"), [(None, 1), (64, 16), (1, 1024)], ids=str)
def test_a_copy_is_stored_per_group_and_not_per_replica(group_size: int | None, copies: int) -> None:
    ir = popsr.Ir(replication=1024)
    grouping = ir.replica_grouping(group_size=group_size)
    shape = (256,) if grouping.num_groups == 1 else (grouping.num_groups, 256)
    with ir.main_graph:
        rows = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)  # equal rows would be stored once
        v = popsr.variable(rows, replica_grouping=grouping)
        ops.add_(v, popsr.constant(1.0))
    session = popsr.Session(ir)
    assert session.memory()["variables"] == copies * 256 * 4
    assert session.storage(v).num_blocks == copies


# Reading back


class Drift:
    """Two groups of two replicas; ``w`` gets what each replica is fed, ``v`` stays."""

    def __init__(self, mode: Any = None, **options: Any) -> None:
        self.ir = popsr.Ir(replication=4)
        grouping = self.ir.replica_grouping(group_size=2)
        with self.ir.main_graph, popsr.in_sequence():
            self.x = popsr.h2d_stream((3,), F32)
            data = np.zeros((2, 3), np.float32)
            self.w = popsr.variable(data, name="w", replica_grouping=grouping, retrieval_mode=mode)
            self.v = popsr.variable(data, name="v", replica_grouping=grouping)
            ops.add_(self.w, ops.host_load(self.x))
            ops.add_(self.v, popsr.constant(1.0))
        self.session = popsr.Session(self.ir, **options)

    def run(self, *rows: float) -> None:
        data = np.zeros((4, 3), np.float32)
        data[:, 1] = rows
        self.session.run({self.x: data})


ReadWarnings = Callable[[], list[str]]


@pytest.fixture
def read_warnings() -> Iterator[ReadWarnings]:
    """Texts of the warnings L3 so far; the program drifts on purpose, so that L2 is expected."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda: [str(each.message) for each in caught if str(each.message).startswith("L3")]


READ_BACKS: dict[str, Callable[[Drift], Any]] = {
    "get_tensor_data": lambda p: p.session.get_tensor_data(p.w),
    "get_tensors_data": lambda p: p.session.get_tensors_data([p.v, p.w]),
    "weights_to_host": lambda p: p.session.weights_to_host(),
    "read_weights": lambda p: p.session.read_weights(PyWeightsIO({"w": np.zeros((2, 3), np.float32)})),
    "save": lambda p: p.session._access.rows(p.w),
}


@pytest.mark.parametrize("name", READ_BACKS)
def test_reading_one_of_an_unequal_group_warns_once(name: str, read_warnings: ReadWarnings) -> None:
    program = Drift()
    with program.session:
        program.run(0, 0, 1, 2)
        for _ in range(2):
            READ_BACKS[name](program)
        assert program.session.get_tensor_data(program.w)[:, 1].tolist() == [0, 1]
        program.run(0, 1, 1, 1)
        READ_BACKS[name](program)
    (text,) = read_warnings()
    assert text.startswith(
        f"L3: {'get_tensor_data' if name == 'get_tensors_data' else name}: one value per group"
    )
    assert "replicas 2 and 3 of one group of 'w' differ at element 1" in text
    assert "2 of 4 replicas are not seen" in text


@pytest.mark.parametrize("name", READ_BACKS)
def test_strict_sessions_refuse_to_read_one_of_an_unequal_group(
    name: str, read_warnings: ReadWarnings
) -> None:
    program = Drift(strict=("L3",))
    with program.session:
        program.run(0, 0, 1, 1)
        READ_BACKS[name](program)
        program.run(0, 3, 0, 0)
        with pytest.raises(Replica, match=r"replicas 0 and 1 of one group of 'w' differ at element 1"):
            READ_BACKS[name](program)
        assert program.session.get_tensor_data(program.v).tolist() == [[2] * 3] * 2
        assert read_warnings() == []
    assert len(read_warnings()) == 1  # leaving never raises
    with pytest.raises(Replica, match="one value per group is read back"):
        program.session.get_tensor_data(program.w)  # the host copy lacks a value
    with program.session:  # entering makes the group equal
        assert program.session.get_tensor_data(program.w)[:, 1].tolist() == [0, 1]


@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # w drifts on purpose
def test_weights_to_host_refused_changes_no_host_copy() -> None:
    program = Drift(strict=("L3",))
    with program.session:
        program.run(1, 2, 3, 4)
        with pytest.raises(Replica, match=r"^weights_to_host: "):
            program.session.weights_to_host()
        program.session.weights_from_host()
        assert program.session.get_tensor_data(program.w).tolist() == [[0] * 3] * 2
        assert program.session.get_tensor_data(program.v).tolist() == [[0] * 3] * 2


def test_no_report_for_equal_or_fully_shown_groups(read_warnings: ReadWarnings) -> None:
    program = Drift("all_replicas", strict=("L3",))
    with program.session:
        program.run(1, 2, 3, 4)
        assert program.session.get_tensor_data(program.w)[:, 1].tolist() == [1, 2, 3, 4]
        buffer = np.zeros((4, 3), np.float32)
        program.session.read_weights(PyWeightsIO({program.w: buffer}))
        assert buffer[:, 1].tolist() == [1, 2, 3, 4]
        with pytest.raises(Replica, match=r"^save: .*replicas 0 and 1 of one group of 'w'"):
            program.session._access.rows(program.w)
    assert program.session.get_tensor_data(program.w)[:, 1].tolist() == [1, 2, 3, 4]
    with pytest.raises(Replica, match=r"^save: .*replicas 0 and 1 of one group of 'w'"):
        program.session._access.rows(program.w)
    assert read_warnings() == []


@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # w drifts on purpose
def test_rows_kept_of_all_replicas_are_compared_too() -> None:
    program = Drift("all_replicas", strict=("L3",), weights_to_host_on_exit=False)
    with program.session:
        program.run(1, 2, 3, 3)
        program.session.weights_to_host()
        program.run(1, 1, 1, 1)
    assert program.session.get_tensor_data(program.w)[:, 1].tolist() == [1, 2, 3, 3]
    with pytest.raises(Replica, match=r"^save: .*replicas 0 and 1 of one group of 'w' differ at element 1"):
        program.session._access.rows(program.w)


def test_each_program_is_reported_once(read_warnings: ReadWarnings) -> None:
    for count in (1, 2):
        program = Drift()
        for session in (program.session, popsr.Session(program.ir)):
            program.session = session
            with session:
                program.run(1, 2, 3, 4)
                session.get_tensor_data(program.w)
        assert len(read_warnings()) == count


# Rows for checkpoints


@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # w drifts on purpose
@pytest.mark.parametrize("mode", ["one_per_group", "all_replicas"])
def test_rows_of_groups_go_out_and_in_whatever_the_mode(mode: str) -> None:
    program = Drift(mode)
    session = program.session
    new = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    session._access.set_rows({program.w: new})
    assert_same_bits(session._access.rows(program.w), new)
    with session:
        program.run(1, 1, 2, 2)
        assert session._access.rows(program.w)[:, 1].tolist() == [3, 7]
        session._access.set_rows({program.w: new + 1})
        assert_same_bits(session._access.rows(program.w), new + 1)
        assert session.get_tensor_data(program.v).tolist() == [[1] * 3] * 2
        program.run(0, 0, 0, 0)
        assert session._access.rows(program.w).flags.c_contiguous
    assert_same_bits(session._access.rows(program.w), new + 1)
