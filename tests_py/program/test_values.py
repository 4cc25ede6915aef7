"""Values can be pickled, copied, compared and hashed; programs and sessions refuse with a reason."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import pickletools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import popsr
from popsr import errors, ops
from popsr.addons import NamedTensors
from popsr.replicas import (
    CommGroup,
    CommGroupType,
    Partition,
    ReplicaGrouping,
    VariableRetrievalMode,
    VariableSettings,
)

GROUPING = ReplicaGrouping.from_stride(8, 2, 4)
MODE = VariableRetrievalMode.AllReplicas

VALUES: dict[str, Callable[[], Any]] = {
    "Partition": lambda: Partition.from_labels([0, 1, 0, 2]),
    "ReplicaGrouping": lambda: GROUPING,
    "ReplicaGrouping of no constant stride": lambda: ReplicaGrouping.from_assignment([0, 1, 1, 0]),
    "CommGroup": lambda: CommGroup(CommGroupType.Orthogonal, 2),
    "CommGroupType": lambda: CommGroupType.Consecutive,
    "VariableRetrievalMode": lambda: MODE,
    "VariableSettings": VariableSettings,
    "VariableSettings of a CommGroup": lambda: VariableSettings(CommGroup(CommGroupType.Ungrouped), MODE),
    "VariableSettings of a grouping": lambda: VariableSettings(GROUPING, MODE),
    "VariableSettings of a stride": lambda: VariableSettings(2, 4, MODE),
    "TensorSpec": lambda: popsr.TensorSpec((2, 3), popsr.bfloat16),
    "dtype": lambda: popsr.float8_143,
    "bool": lambda: popsr.bool,
    "float16": lambda: popsr.float16,
    "Key": lambda: popsr.sr.Key(3).fold_in("weights").at(2),
}


def program() -> tuple[popsr.Ir, popsr.Variable]:
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.ones((2, 3), np.float32), name="layer.w")
        stream = popsr.d2h_stream((2, 3), popsr.float32, "out")
        ops.host_store(stream, ops.relu(w))
    return ir, w


@pytest.mark.parametrize("name", VALUES)
def test_copies_equal_the_value(name: str) -> None:
    value = VALUES[name]()
    pickled = [pickle.loads(pickle.dumps(value, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for other in (
        copy.copy(value),
        copy.deepcopy(value),
        copy.deepcopy([value])[0],
        *pickled,
        VALUES[name](),
    ):
        assert type(other) is type(value)
        assert other == value
        assert hash(other) == hash(value)
        assert repr(other) == repr(value)


def test_pickles_of_before_modules_moved_load() -> None:
    """Written by the version of 2026-11-28, in protocol 4."""
    pickles = json.loads(Path(__file__).with_name("pickles.json").read_text())
    for name, text in pickles.items():
        value = pickle.loads(base64.b64decode(text))
        assert value == {**VALUES, "TensorLocation": popsr.TensorLocation}[name](), name


@pytest.mark.parametrize("name", VALUES)
def test_pickles_name_public_modules(name: str) -> None:
    """Later versions read them, however the core is built."""
    texts = [
        str(arg) for _, arg, _ in pickletools.genops(pickle.dumps(VALUES[name](), 4)) if isinstance(arg, str)
    ]
    modules = {text for text in texts if text.startswith("popsr")}
    assert modules
    assert not any(module.startswith("popsr._core") for module in modules)


def test_pickles_are_read_by_other_processes() -> None:
    values = {name: make() for name, make in VALUES.items()}
    code = "import pickle, sys; print({k: repr(v) for k, v in pickle.load(sys.stdin.buffer).items()})"
    result = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(values), capture_output=True, check=True
    )
    assert result.stdout.decode().strip() == str({name: repr(value) for name, value in values.items()})


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_any_partition_survives(labels: list[int]) -> None:
    partition = Partition.from_labels(labels)
    assert pickle.loads(pickle.dumps(partition)) == partition == copy.deepcopy(partition)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.sampled_from(list(VariableRetrievalMode)))
def test_any_grouping_and_settings_survive(
    stride: int, size: int, times: int, mode: VariableRetrievalMode
) -> None:
    grouping = ReplicaGrouping.from_stride(stride * size * times, stride, size)
    for value in (
        grouping,
        grouping.transpose(),
        VariableSettings(grouping, mode),
        VariableSettings(stride, size, mode),
    ):
        assert pickle.loads(pickle.dumps(value)) == value == copy.copy(value)


def test_a_checkpoint_is_a_value(tmp_path: Path) -> None:
    ir, w = program()
    with popsr.Session(ir) as session:
        popsr.io.save_safetensors(session, str(tmp_path / "w.safetensors"))
    checkpoint = popsr.io.load_safetensors(str(tmp_path / "w.safetensors"))
    for other in (pickle.loads(pickle.dumps(checkpoint)), copy.copy(checkpoint), copy.deepcopy(checkpoint)):
        assert repr(other) == repr(checkpoint)
        assert other.replication_factor == 4
        assert dict(other.settings) == dict(checkpoint.settings)
        assert np.array_equal(other[w.name], checkpoint[w.name])


def handles() -> dict[str, Any]:
    ir, w = program()
    graph = ir.main_graph
    stream = next(iter(ir.get_all_d2h_streams()))
    return {"Graph": graph, "Variable": w, "Op": graph.ops[0], "stream": stream, "Ir": ir}


@pytest.mark.parametrize("name", ["Graph", "Variable", "Op", "stream", "Ir", "Session", "PartitionAnalysis"])
def test_parts_of_programs_are_not_pickled(name: str) -> None:
    of_program = handles()
    ir = of_program["Ir"]
    more = {"Session": lambda: popsr.Session(ir), "PartitionAnalysis": lambda: popsr.analysis.analyze(ir)}
    value = more[name]() if name in more else of_program[name]
    with pytest.raises(
        errors.ArgumentTypeError, match=r"^pickle: programs and sessions are not values, got .*, expec"
    ):
        pickle.dumps(value)


@pytest.mark.parametrize("name", ["Graph", "Variable", "Op", "stream"])
def test_copies_of_handles_are_the_same_handle(name: str) -> None:
    value = handles()[name]
    assert copy.copy(value) == value


@pytest.mark.parametrize("name", ["Graph", "Variable", "Op", "stream", "PartitionAnalysis"])
def test_parts_of_programs_are_not_copied_deeply(name: str) -> None:
    of_program = handles()
    value = of_program[name] if name in of_program else popsr.analysis.analyze(of_program["Ir"])
    with pytest.raises(
        errors.ArgumentTypeError,
        match=r"^copy: programs and sessions are not values, got .*, expected itself, ",
    ):
        copy.deepcopy([value])


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("make", [lambda ir: ir, popsr.Session], ids=["Ir", "Session"])
def test_programs_and_sessions_are_not_copied(
    make: Callable[[Any], Any], copied: Callable[[Any], Any]
) -> None:
    with pytest.raises(
        errors.ArgumentTypeError, match=r"^copy: programs and sessions are not values, got .*, expected"
    ):
        copied(make(program()[0]))


def test_trees_of_tensors_are_copied() -> None:
    _, w = program()
    tree = NamedTensors.from_dict({"w": w})
    assert copy.deepcopy(tree).w is w
    assert copy.copy(tree).w is w
