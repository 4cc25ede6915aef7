"""popsr.addons: variables of factories whose data is in memory-mapped files."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, ops
from popsr.addons.remote import create_remote_buffer
from tests_py.support.helpers import assert_same_bits, dtype, np_dtype

Array = np.ndarray[Any, Any]
F32 = popsr.float32


def factory(shape: tuple[int, ...] = (2, 3), name: str = "w", kind: str = "float32", **options: Any) -> Any:
    """A factory whose items are 1, 2, 3, ...; the test call that every factory makes takes 0."""
    items = itertools.count()
    return addons.VariableFactory(
        lambda: np.full(shape, next(items), np_dtype(kind)), dtype(kind), name, **options
    )


def session_of(ir: popsr.Ir) -> popsr.Session:
    """A session of a program that may have no ops yet."""
    with ir.main_graph:
        ops.init((1,), F32)
    return popsr.Session(ir)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "int32"])
@pytest.mark.parametrize(("group_size", "leading"), [(4, ()), (2, (2,)), (1, (4,))])
@pytest.mark.parametrize("shape", [(2, 3), ()])
def test_files_hold_a_row_for_each_group(
    kind: str, group_size: int, leading: tuple[int, ...], shape: tuple[int, ...], tmp_path: Path
) -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph:
        each = factory(shape, kind=kind, replica_grouping=ir.replica_grouping(group_size=group_size))
        variable = each.create_tensor("name", memmap_dir=tmp_path)
    rows = np.arange(1, 1 + (leading or (1,))[0]).reshape(leading + (1,) * len(shape))
    wanted = np.broadcast_to(rows, leading + shape).astype(np_dtype(kind))
    assert (tmp_path / "name.npy").read_bytes() == wanted.tobytes()
    assert_same_bits(session_of(ir).get_tensor_data(variable), wanted)


def test_a_file_that_exists_is_opened_and_no_item_is_used(tmp_path: Path) -> None:
    saved = np.arange(6, dtype=np.float32).reshape(2, 3)
    (tmp_path / "w.npy").write_bytes(saved.tobytes())
    ir = popsr.Ir()
    with ir.main_graph:
        each = factory()
        variable = each.create_tensor(memmap_dir=tmp_path)
        following = each.create_tensor("plain")
    session = session_of(ir)
    assert_same_bits(session.get_tensor_data(variable), saved)
    assert session.get_tensor_data(following)[0, 0] == 1


@pytest.mark.parametrize("read_only", [False, True])
def test_files_are_written_through_unless_they_are_for_reading(read_only: bool, tmp_path: Path) -> None:
    for run in range(2):
        ir = popsr.Ir()
        with ir.main_graph:
            variable = factory().create_tensor(memmap_dir=tmp_path, read_only_if_exists=read_only)
            ops.add_(variable, popsr.constant(np.float32(10)))
        with popsr.Session(ir) as session:
            session.run()
            wanted = 1 + 10 if run == 0 or read_only else 1 + 20
            if run == 0 or not read_only:
                session.weights_to_host()
        assert np.fromfile(tmp_path / "w.npy", np.float32).tolist() == [wanted] * 6


def test_empty_files_hold_zeros_and_use_no_item(tmp_path: Path) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        each = factory()
        each.create_tensor("zeros", empty=True, memmap_dir=tmp_path)
        each.create_tensor("ones", memmap_dir=tmp_path)
    assert (tmp_path / "zeros.npy").read_bytes() == bytes(24)
    assert np.fromfile(tmp_path / "ones.npy", np.float32).tolist() == [1] * 6


def test_trees_have_a_file_for_each_leaf_named_by_its_key(tmp_path: Path) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        factories = addons.NamedVariableFactories.from_dict(
            {"fc.w": factory((2,)), "fc.b": factory((3,)), "0.w": factory((1,))}
        )
        factories.init("model", memmap_dir=tmp_path)
    sizes = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    assert sizes == {"model.fc.w.npy": 8, "model.fc.b.npy": 12, "model.0.w.npy": 4}


@pytest.mark.parametrize("shard_over", [1, 2])
def test_variables_in_remote_memory_have_files_of_whole_values(shard_over: int, tmp_path: Path) -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        each = factory((2, 3))
        buffer = create_remote_buffer(popsr.TensorSpec((2, 3), F32), 1, ir.replica_grouping(), shard_over)
        variable = each.create_remote_tensor(buffer, 0, memmap_dir=tmp_path)
        loaded = ops.remote_load(buffer, 0)
        ops.remote_store(buffer, 0, loaded + loaded)
    assert (tmp_path / "w.npy").read_bytes() == np.ones((2, 3), np.float32).tobytes()
    with popsr.Session(ir) as session:
        session.run()
    assert_same_bits(session.get_tensor_data(variable), np.full((2, 3), 2, np.float32))
    assert np.fromfile(tmp_path / "w.npy", np.float32).tolist() == [2] * 6


def test_a_file_that_could_not_be_filled_is_not_left_behind(tmp_path: Path) -> None:
    """It would be taken for the data the next time."""
    with popsr.Ir().main_graph:
        each = addons.VariableFactory(iter([np.ones(2, np.float32), np.ones(3, np.float32)]), F32, "w")
        each.create_tensor("good", memmap_dir=tmp_path)
        with pytest.raises(errors.ShapeError):
            each.create_tensor("bad", memmap_dir=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["good.npy"]


def _write(folder: Path, data: bytes) -> Path:
    (folder / "w.npy").write_bytes(data)
    return folder


REFUSED: list[tuple[Callable[[Path], Any], type[Exception], str]] = [
    (
        lambda folder: factory().create_tensor(memmap_dir=_write(folder, b"123")),
        errors.FileError,
        "^VariableFactory 'w': file of another size, got 3 bytes in '.*', expected 24$",
    ),
    (
        lambda folder: factory().create_tensor(memmap_dir=folder / "missing"),
        errors.FileError,
        "^VariableFactory 'w': cannot open '.*missing/w.npy', got No such file or directory$",
    ),
    (
        lambda folder: factory(name=None).create_tensor(memmap_dir=folder),  # type: ignore[arg-type]
        errors.AttributeValueError,
        "^VariableFactory: a file needs a name, got memmap_dir '",
    ),
]


@pytest.mark.parametrize(("call", "error", "match"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refused(call: Callable[[Path], Any], error: type[Exception], match: str, tmp_path: Path) -> None:
    ir = popsr.Ir()
    with ir.main_graph, pytest.raises(error, match=match) as caught:
        call(tmp_path)
    assert isinstance(caught.value, popsr.Error)
    assert ir.main_graph.tensors == ()
