"""Checkpoints: what is saved comes back, into as many replicas as there are."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import popsr
from popsr import ops
from popsr.replicas import VariableRetrievalMode
from tests_py.checkpoints.cases import (
    FORMATS,
    ONNX,
    SAFETENSORS,
    Format,
    Program,
    assert_same_arrays,
    saved,
    small_program,
    weights,
)
from tests_py.support.helpers import (
    ALL_DTYPES,
    Array,
    assert_same_bits,
    make_variable,
    np_dtype,
    random_array,
)

both_formats = pytest.mark.parametrize("format", FORMATS, ids=str)


# Round trips


@both_formats
@pytest.mark.parametrize("name", ALL_DTYPES)
def test_every_dtype_and_shape_comes_back(tmp_path: Path, format: Format, name: str) -> None:
    rng = np.random.default_rng(1)
    program = Program(4)
    shapes: dict[str, tuple[int, ...]] = {
        "scalar": (),
        "one_element": (1,),
        "empty": (0, 3),
        "matrix": (5, 3),
        "deep": (1, 2, 1, 3, 2),
    }
    if format is SAFETENSORS and name == "float4_e2m1fn":  # which has whole bytes of these
        shapes = {"empty": (0, 3), "one_byte": (2,), "matrix": (5, 4), "deep": (1, 2, 1, 3, 2)}
    for key, shape in shapes.items():
        program.add(key, random_array(rng, shape, name))
    for key, shape in shapes.items():
        program.add(f"grouped_{key}", random_array(rng, (2, *shape), name), program.ir.replica_grouping(2))
    session = program.session()
    found = format.load(saved(tmp_path, format, session))
    assert_same_arrays(found, weights(session))
    assert_same_arrays(format.load(saved(tmp_path, format, program.ir, "ir")), weights(session))


@both_formats
def test_all_bits_of_floats_come_back(tmp_path: Path, format: Format) -> None:
    """NaNs with their payload, infinities, subnormals, both zeros."""
    program = Program(1)
    for name in ("float16", "bfloat16"):
        program.add(name, np.arange(2**16, dtype=np.uint16).view(np_dtype(name)))
    program.add("float32", np.random.default_rng(0).integers(0, 2**32, 999, np.uint32).view(np.float32))
    found = format.load(saved(tmp_path, format, program.session()))
    assert np.array_equal(found["float16"].view(np.uint16), np.arange(2**16))
    assert np.array_equal(found["bfloat16"].view(np.uint16), np.arange(2**16))
    expect = np.random.default_rng(0).integers(0, 2**32, 999, np.uint32)
    assert np.array_equal(found["float32"].view(np.uint32), expect)


ASSIGNMENTS = [
    [0] * 8,
    [0, 0, 0, 0, 1, 1, 1, 1],
    [0, 1, 0, 1, 0, 1, 0, 1],
    [0, 1, 0, 1, 2, 3, 2, 3],
    list(range(8)),
    [0, 1, 1, 0, 0, 1, 1, 0],
    [0, 0, 1, 1, 0, 0, 1, 1],
]


@both_formats
@pytest.mark.parametrize("mode", ["one_per_group", "all_replicas"])
@pytest.mark.parametrize("assignment", ASSIGNMENTS, ids=lambda a: "".join(map(str, a)))
def test_groups_and_modes_come_back(tmp_path: Path, format: Format, assignment: list[int], mode: str) -> None:
    program = Program(8, embed=True)
    grouping = program.ir.replica_grouping_from_assignments(assignment)
    groups = grouping.num_groups
    data = np.arange(6 * groups, dtype=np.float32).reshape((groups, 2, 3) if groups > 1 else (2, 3))
    variable = program.add("w", data, grouping, mode)
    session = program.session()
    path = saved(tmp_path, format, session)
    found = format.load(path)
    assert_same_bits(found["w"], data)  # a row per group, whatever the mode
    assert found.replication_factor == 8
    assert found.settings["w"].replica_grouping(8) == grouping
    all_replicas = mode == "all_replicas"
    assert found.settings["w"].retrieval_mode == VariableRetrievalMode(int(all_replicas))
    assert found.unknown == ""
    expect = session.get_tensor_data(variable)
    fresh = program.session()
    fresh._access.set_rows({variable: np.zeros_like(data)})
    fresh.reset_host_weights(path)
    assert_same_bits(fresh.get_tensor_data(variable), expect)


@both_formats
def test_a_session_saves_the_newest_values_and_an_ir_the_first(tmp_path: Path, format: Format) -> None:
    program = small_program()
    with program.session() as session:
        session.run()
        session.run()
        assert format.load(saved(tmp_path, format, session))["one"] == 2
        assert format.load(saved(tmp_path, format, program.ir))["one"] == 0
    session.write_variable_data(program.variables["one"], np.float32(7))
    assert format.load(saved(tmp_path, format, session))["one"] == 7


@both_formats
@pytest.mark.parametrize("attached", [True, False])
@pytest.mark.parametrize("options", [{}, {"dedup": False}], ids=str)
@pytest.mark.parametrize("assignment", ASSIGNMENTS, ids=lambda a: "".join(map(str, a)))
def test_variables_written_by_a_run_are_saved(
    tmp_path: Path, format: Format, assignment: list[int], options: Any, attached: bool
) -> None:
    """From where it is: whole, in a remote buffer, in shards that do not fit; also of all replicas."""
    ir = popsr.Ir(replication=8)
    grouping = ir.replica_grouping_from_assignments(assignment)
    groups = grouping.num_groups
    data = np.arange(7 * groups, dtype=np.float32).reshape((groups, 7) if groups > 1 else 7)
    with ir.main_graph, popsr.in_sequence():
        plain = popsr.variable(data, name="plain", replica_grouping=grouping)
        rows = popsr.variable(data, name="rows", replica_grouping=grouping, retrieval_mode="all_replicas")
        buffer = popsr.remote_buffer((7,), popsr.float32)
        popsr.remote_variable(data, buffer, 0, name="remote", replica_grouping=grouping)
        _, shard = popsr.replica_sharded_variable(data, name="sharded", replica_grouping=grouping)
        one = popsr.constant(np.float32(1))
        for variable in (plain, rows, shard):
            ops.add_(variable, one)
        ops.remote_store(buffer, 0, ops.add(ops.remote_load(buffer, 0), one))
    session = popsr.Session(ir, **options)
    with session:
        session.run()
        if attached:
            path = saved(tmp_path, format, session)
    found = format.load(path if attached else saved(tmp_path, format, session))
    assert_same_arrays(found, dict.fromkeys(("plain", "rows", "remote", "sharded"), data + 1))
    assert_same_bits(session.get_tensor_data(plain), data + 1)


@both_formats
def test_mapped_data_is_saved(tmp_path: Path, format: Format) -> None:
    mapped = np.memmap(tmp_path / "data", np.float32, "w+", shape=(2, 3))
    mapped[...] = np.arange(6).reshape(2, 3)
    program = Program(2)
    with program.ir.main_graph:
        popsr.variable(mapped, name="m")
        popsr.variable(mapped, name="rows", replica_grouping=program.ir.replica_grouping(1, 1))
    for source in (program.ir, program.session()):
        found = format.load(saved(tmp_path, format, source))
        assert_same_bits(found["m"], np.asarray(mapped))
        assert_same_bits(found["rows"], np.asarray(mapped))


names = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=9
)


@both_formats
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_program_comes_back(tmp_path: Path, format: Format, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    program = Program(4, embed=data.draw(st.booleans()))
    for name in data.draw(st.lists(names, max_size=4)):
        shape = tuple(data.draw(st.lists(st.integers(0, 4), max_size=3)))
        kind = data.draw(st.sampled_from(ALL_DTYPES))
        if format is SAFETENSORS and kind == "float4_e2m1fn":  # which has whole bytes of these
            shape = (*shape, 2)
        program.add(name, random_array(rng, shape, kind))
    session = program.session()
    expect = weights(session)
    path = saved(tmp_path, format, session)
    assert_same_arrays(format.load(path), expect)
    with program.session() as other:
        other.run()
        other.reset_host_weights(path)
        assert_same_arrays(weights(other), expect)


@both_formats
def test_the_step_is_saved_so_training_goes_on_with_the_same_random_numbers(
    tmp_path: Path, format: Format
) -> None:
    def train(session: popsr.Session, runs: int) -> None:
        with session:
            for _ in range(runs):
                session.run()

    ir = popsr.Ir(replication=2)
    ir.options.enable_stochastic_rounding = True
    with ir.main_graph, popsr.in_sequence():
        w = make_variable(np.ones(64, np_dtype("bfloat16")), "w")
        ops.add_(w, popsr.constant(np.full(64, 1e-3), popsr.bfloat16))
    straight, first, second = popsr.Session(ir), popsr.Session(ir), popsr.Session(ir)
    train(straight, 6)
    train(first, 3)
    path = saved(tmp_path, format, first)
    assert format.load(path).step == 3
    second.reset_host_weights(path)
    train(second, 3)
    assert second.step == 6
    assert_same_bits(second.get_tensor_data(w), straight.get_tensor_data(w))
    assert format.load(saved(tmp_path, format, ir)).step is None


# Other replicas


@both_formats
@pytest.mark.parametrize("replication", [1, 2, 16])
def test_one_group_loads_into_any_number_of_replicas(
    tmp_path: Path, format: Format, replication: int
) -> None:
    path = saved(tmp_path, format, _one_group(8, 3).session())
    target = _one_group(replication, 0)
    with target.session() as session:
        session.reset_host_weights(path)
        assert np.all(session.get_tensor_data(target.variables["w"]) == 3)
        rows = session.get_tensor_data(target.variables["all"])
        assert rows.shape == ((replication, 2) if replication > 1 else (2,))
        assert np.all(rows == 3)


def _one_group(replication: int, value: float) -> Program:
    program = Program(replication, embed=True)
    program.add("w", np.full((2, 2), value, np.float32))
    program.add("all", np.full(2, value, np.float32), mode="all_replicas")
    return program


@both_formats
def test_as_many_groups_load_into_another_number_of_replicas(tmp_path: Path, format: Format) -> None:
    def program(replication: int, data: Array) -> Program:
        result = Program(replication, embed=True)
        result.add("w", data, result.ir.replica_grouping(1, replication // 2))
        result.add("all", data, result.ir.replica_grouping(replication // 2, 2).transpose(), "all_replicas")
        return result

    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    path = saved(tmp_path, format, program(8, data).session())
    target = program(4, np.zeros_like(data))
    session = target.session()
    session.reset_host_weights(path)
    assert_same_bits(session.get_tensor_data(target.variables["w"]), data)
    assert_same_bits(session.get_tensor_data(target.variables["all"]), data[[0, 0, 1, 1]])


def test_an_attached_session_gets_the_weights_onto_the_device(tmp_path: Path) -> None:
    program = small_program()
    path = saved(tmp_path, ONNX, program.session())
    with program.session() as session:
        session.run()
        session.reset_host_weights(path)
        session.run()
        assert session.get_tensor_data(program.variables["one"]) == 1


def test_resetting_has_popart_name_and_takes_strings(tmp_path: Path) -> None:
    session = small_program().session()
    session.resetHostWeights(str(saved(tmp_path, ONNX, session)))  # type: ignore[attr-defined]


# Files


@both_formats
def test_new_files_get_the_usual_mode_and_old_ones_keep_theirs(tmp_path: Path, format: Format) -> None:
    before = os.umask(0o027)
    try:
        path = saved(tmp_path, format, small_program().session())
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    saved(tmp_path, format, small_program().session())
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert list(tmp_path.iterdir()) == [path]
