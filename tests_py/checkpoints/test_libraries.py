"""Checkpoints and the libraries of their formats: both read what the other wrote; what the files say of replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popsr import errors, io
from popsr.replicas import CommGroup, CommGroupType, VariableRetrievalMode, VariableSettings
from tests_py.checkpoints.cases import (
    ONNX,
    SAFETENSORS,
    Program,
    assert_same_arrays,
    saved,
    small_program,
    weights,
)
from tests_py.support.helpers import (
    ALL_DTYPES,
    CARRIERS,
    FLOAT8,
    NUMBERS_AND_BOOL,
    assert_same_bits,
    np_dtype,
    random_array,
    run_python,
)

# Contents of the file


def test_onnx_metadata_has_popart_keys(tmp_path: Path) -> None:
    import onnx

    program = small_program(4, embed=True)
    program.add("u", np.zeros(4, np.int32), program.ir.replica_grouping(1, 1), "all_replicas")
    program.add("o", np.zeros(2, np.int32), program.ir.replica_grouping(2))
    program.add("n", np.zeros(2), program.ir.replica_grouping_from_assignments([0, 1, 1, 0]))
    model = onnx.load(saved(tmp_path, ONNX, program.ir))
    texts = {entry.key: entry.value for entry in model.metadata_props}
    assert texts.pop("popsr.digest").startswith("crc32-4mib:")
    assert texts == {"__replicationFactor": "4"}
    assert {
        tensor.name: {entry.key: entry.value for entry in tensor.metadata_props}
        for tensor in model.graph.initializer
        if tensor.name in "gwuon"
    } == {
        "w": _popart("All", "0"),
        "g": _popart("Consecutive", "2"),
        "o": _popart("Orthogonal", "2"),
        "u": _popart("Ungrouped", "0", "AllReplicas"),
        "n": {"popsr.assignment": "0,1,1,0", "__variableRetrievalMode": "OnePerGroup"},
    }
    wide = Program(8, embed=True)
    wide.add("x", np.zeros(4), wide.ir.replica_grouping(2, 2))
    found = onnx.load(saved(tmp_path, ONNX, wide.ir)).graph.initializer[1].metadata_props
    assert (found[0].key, found[0].value) == ("popsr.strideAndGroupSize", "2,2")


def _popart(kind: str, size: str, mode: str = "OnePerGroup") -> dict[str, str]:
    return {"__commGroupType": kind, "__commGroupSize": size, "__variableRetrievalMode": mode}


def test_without_the_factor_a_file_says_what_it_does_not(tmp_path: Path) -> None:
    found = io.load_onnx(saved(tmp_path, ONNX, small_program().session()))
    assert found.replication_factor is None
    assert not found.settings
    assert repr(found).endswith("groups are unknown, see .unknown]")
    for text in (found.unknown, str(found)):
        assert "embed_replication_factor" in text
        assert "reset_host_weights" in text
    assert found["g"].shape == (2, 2)


def test_a_factor_without_groups_leaves_them_unknown(tmp_path: Path) -> None:
    import onnx

    model = _model([onnx.numpy_helper.from_array(np.zeros((2, 2)), "x")])
    model.metadata_props.add(key="__replicationFactor", value="2")
    onnx.save(model, tmp_path / "w.onnx")
    found = io.load_onnx(tmp_path / "w.onnx")
    assert found.replication_factor == 2
    assert found.unknown == "no groups are saved for 'x'"


def test_checkpoints_print_their_contents(tmp_path: Path) -> None:
    path = saved(tmp_path, SAFETENSORS, small_program().session())
    assert repr(io.load_safetensors(path)) == f"Checkpoint['{path}': 4 tensors, replication factor 4]"
    found = io.load_safetensors(path).settings["g"]
    assert found == VariableSettings(
        CommGroup(CommGroupType.Consecutive, 2), VariableRetrievalMode.OnePerGroup
    )


def test_unknown_tensor_of_a_checkpoint_is_a_key_error_with_close_names(tmp_path: Path) -> None:
    found = io.load_safetensors(saved(tmp_path, SAFETENSORS, small_program().session()))
    with pytest.raises(
        errors.UnknownNameError, match=r"no such tensor in .*, got 'gg', expected one of \['g'"
    ):
        found["gg"]
    assert "gg" not in found
    assert found.get("gg") is None


# Other libraries


def _model(tensors: list[Any], **options: Any) -> Any:
    from onnx import helper

    return helper.make_model(helper.make_graph([], "g", [], [], tensors), **options)


@pytest.mark.parametrize("embed", [False, True])
def test_onnx_accepts_and_reads_our_files(tmp_path: Path, embed: bool) -> None:
    import onnx

    rng = np.random.default_rng(2)
    program = Program(4, embed=embed)
    for name in ALL_DTYPES:
        program.add(name, random_array(rng, (2, 3), name), program.ir.replica_grouping(2))
        program.add(f"empty_{name}", random_array(rng, (0,), name))
    path = saved(tmp_path, ONNX, program.ir)
    onnx.checker.check_model(path, full_check=True)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    expect = weights(program.session())
    for tensor in onnx.load(path).graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if tensor.data_type == onnx.TensorProto.BFLOAT16:  # as float32 in older versions
            array = array.astype(np_dtype("bfloat16"))
        assert_same_bits(array, expect[tensor.name])


def test_safetensors_reads_our_files(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    from safetensors.numpy import load_file

    rng = np.random.default_rng(3)
    program = Program(4)
    unknown = ("bfloat16", *FLOAT8, *CARRIERS)  # which the library has no array for
    for name in sorted(set(ALL_DTYPES) - set(unknown)):
        program.add(name, random_array(rng, (2, 3), name), program.ir.replica_grouping(2))
        program.add(f"empty_{name}", random_array(rng, (0,), name))
    path = saved(tmp_path, SAFETENSORS, program.ir)
    assert_same_arrays(load_file(path), weights(program.session()))
    for name in unknown:
        program.add(name, random_array(rng, (2, 3), name))
    with safetensors.safe_open(saved(tmp_path, SAFETENSORS, program.ir), "np") as file:
        assert file.metadata()["__replicationFactor"] == "4"
        assert file.metadata()["int32/__commGroupType"] == "Orthogonal"
        assert sorted(file.keys()) == sorted(program.variables)
        found = {name: file.get_slice(name) for name in unknown}
        assert all(each.get_shape() == [2, 3] for each in found.values())
        names = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e8m0fnu": "F8_E8M0"}
        names["float4_e2m1fn"] = "F4"  # the others have ml_dtypes' names
        for name, each in found.items():
            foreign = np_dtype(name).name
            assert each.get_dtype() == names.get(foreign, foreign.replace("float8", "F8").upper())


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "numbers"])
@pytest.mark.parametrize("name", NUMBERS_AND_BOOL)
def test_files_of_plain_onnx_load(tmp_path: Path, name: str, raw: bool) -> None:
    import onnx
    from onnx import helper

    code = onnx.TensorProto.DataType.Value({"float32": "FLOAT", "float64": "DOUBLE"}.get(name, name.upper()))
    rng = np.random.default_rng(4)
    arrays = {f"x{i}": random_array(rng, shape, name) for i, shape in enumerate([(), (0,), (3, 2)])}
    tensors = [
        helper.make_tensor(key, code, array.shape, array.tobytes() if raw else array.reshape(-1), raw)
        for key, array in arrays.items()
    ]
    onnx.save(_model(tensors), tmp_path / "w.onnx")
    assert_same_arrays(io.load_onnx(tmp_path / "w.onnx"), arrays)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_float8_of_plain_libraries_loads(tmp_path: Path, kind: str) -> None:
    import ml_dtypes
    import onnx
    from onnx import helper

    array = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, kind))
    code = onnx.TensorProto.DataType.Value(kind.replace("_", "").upper())
    raw = helper.make_tensor("raw", code, [256], array.tobytes(), raw=True)
    numbers = onnx.TensorProto(name="numbers", data_type=code, dims=[256], int32_data=range(256))
    onnx.save(_model([raw, numbers]), tmp_path / "w.onnx")
    found = io.load_onnx(tmp_path / "w.onnx")
    for name in ("raw", "numbers"):
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name].view(np.uint8), np.arange(256))


def test_files_of_plain_safetensors_load(tmp_path: Path) -> None:
    safetensors_numpy = pytest.importorskip("safetensors.numpy")
    rng = np.random.default_rng(5)
    arrays = {
        n: random_array(rng, (3, 2), n) for n in sorted(set(ALL_DTYPES) - {"bfloat16", "float4_e2m1fn"})
    }
    arrays["scalar"], arrays["empty"] = np.array(1.5), np.zeros((0, 2))
    safetensors_numpy.save_file(arrays, tmp_path / "w.safetensors", metadata={"by": "hand"})
    assert_same_arrays(io.load_safetensors(tmp_path / "w.safetensors"), arrays)


def test_a_model_with_nodes_gives_the_initializers_that_match(tmp_path: Path) -> None:
    import onnx
    from onnx import helper, numpy_helper

    w, other = np.full((2, 3), 5, np.float32), np.zeros((3, 9), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["w", "other"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
        "g",
        [],
        [helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [2, 9])],
        [numpy_helper.from_array(other, "other"), numpy_helper.from_array(w, "w")],
    )
    onnx.save(helper.make_model(graph), tmp_path / "w.onnx")
    session = small_program().session()
    before = weights(session)
    with pytest.raises(errors.UnknownNameError, match="lacks variables, got no 'one' and 2 more"):
        session.reset_host_weights(tmp_path / "w.onnx")
    assert_same_arrays(weights(session), before)
    session.reset_host_weights(tmp_path / "w.onnx", ignore_missing=True)
    assert_same_arrays(weights(session), {**before, "w": w})


# External data


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of more than 1 KiB have external data."""
    monkeypatch.setattr("popsr.io._onnx.write._MAX_FILE", 1024)


def large_program(scale: float = 1) -> Program:
    program = small_program(4, embed=True, scale=scale)
    rng = np.random.default_rng(6)
    program.add("big", random_array(rng, (2, 700), "bfloat16"), program.ir.replica_grouping(2))
    program.add("bigger", rng.standard_normal((33, 77)))
    return program


@pytest.mark.usefixtures("small_files")
def test_large_models_have_their_data_beside_them(tmp_path: Path) -> None:
    import onnx

    program = large_program()
    expect = weights(program.session())
    path = saved(tmp_path, ONNX, program.session())
    (data,) = tmp_path.glob("w.onnx.*.data")
    assert path.stat().st_size < data.stat().st_size
    found = io.load_onnx(path)
    assert_same_arrays(found, expect)
    assert found.settings["big"].replica_grouping(4) == program.ir.replica_grouping(2)
    onnx.checker.check_model(path, full_check=True)
    for tensor in onnx.load(path).graph.initializer:
        assert tensor.data_location == onnx.TensorProto.DEFAULT  # loaded
        if tensor.name != "big":
            assert np.array_equal(onnx.numpy_helper.to_array(tensor), expect[tensor.name].astype("f8"))
    session = program.session()
    session._access.set_rows({v: np.zeros_like(expect[v.id]) for v in session._access.variables})
    session.reset_host_weights(path)
    assert_same_arrays(weights(session), expect)


def test_a_new_checkpoint_removes_the_data_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = tmp_path / "w.onnx.01234567.data"
    stranger.write_bytes(b"not ours")
    for scale, limit in [(1, 1024), (2, 1024), (3, 2**31 - 1), (4, 1024)]:
        monkeypatch.setattr("popsr.io._onnx.write._MAX_FILE", limit)
        path = saved(tmp_path, ONNX, large_program(scale).session())
        assert len(list(tmp_path.iterdir())) == (3 if limit == 1024 else 2)
        assert io.load_onnx(path)["w"][0, 1] == scale
    assert stranger.read_bytes() == b"not ours"


@pytest.mark.parametrize("one_file", [True, False])
@pytest.mark.parametrize("folder", ["", "data/"])
def test_external_data_of_plain_onnx_loads(tmp_path: Path, one_file: bool, folder: str) -> None:
    import onnx

    rng = np.random.default_rng(7)
    arrays = {f"x{i}": rng.standard_normal((i, 100)).astype(np.float32) for i in range(1, 5)}
    model = _model([onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()])
    if folder:
        (tmp_path / "data").mkdir()
    onnx.save(
        model,
        tmp_path / "w.onnx",
        save_as_external_data=True,
        all_tensors_to_one_file=one_file,
        location=f"{folder}w.bin" if one_file else None,
        size_threshold=0,
    )
    assert_same_arrays(io.load_onnx(tmp_path / "w.onnx"), arrays)


# Without the libraries


def test_the_package_works_without_onnx_and_safetensors() -> None:
    code = """
import sys
sys.modules["onnx"] = sys.modules["safetensors"] = None
import pathlib, tempfile, popsr.io
from tests_py.checkpoints.cases import small_program
session = small_program().session()
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "w.safetensors")
    popsr.io.save_safetensors(session, path)
    session.reset_host_weights(path)
    for call in (popsr.io.save_onnx, lambda s, p: s.reset_host_weights(p)):
        try:
            call(session, pathlib.Path(folder, "w.onnx"))
        except popsr.errors.MissingPackageError as error:
            print(error)
"""
    text = "ONNX is not installed, expected `pip install 'onnx>=1.16'`"
    assert run_python(code).splitlines() == [f"save_onnx: {text}", f"reset_host_weights: {text}"]


def test_importing_popsr_io_imports_neither_library() -> None:
    code = "import sys, popsr.io; print({'onnx', 'safetensors', 'google.protobuf'} & set(sys.modules))"
    assert run_python(code).strip() == "set()"
