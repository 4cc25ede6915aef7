"""Checkpoint files that are well-formed and yet wrong, as plain libraries accept them: each is a typed error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popsr import errors, io
from popsr.io._budget import Budget
from tests_py.checkpoints.cases import SAFETENSORS, Program, saved

onnx = pytest.importorskip("onnx")
TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper

Bad, Unsupported = errors.CheckpointError, errors.UnsupportedError


# ONNX


def tensor(name: str = "x", shape: Any = (2,), raw: bytes | None = b"\0" * 8, **fields: Any) -> Any:
    """A float initializer, or one of other fields."""
    data = {} if raw is None else {"raw_data": raw}
    return TensorProto(**{"name": name, "dims": shape, "data_type": TensorProto.FLOAT, **data, **fields})


def model(*tensors: Any, metadata: dict[str, str] | None = None, **graph: Any) -> bytes:
    """The bytes of a model."""
    result = helper.make_model(helper.make_graph([], "g", [], [], list(tensors), **graph))
    helper.set_model_props(result, metadata or {})
    return bytes(result.SerializeToString())


def grouped(shape: tuple[int, ...] = (2, 3), factor: str = "4", **texts: str) -> bytes:
    """A model with a replication factor and a tensor with metadata."""
    x = numpy_helper.from_array(np.zeros(shape, np.float32), "x")
    for key, value in {"__variableRetrievalMode": "OnePerGroup", **texts}.items():
        x.metadata_props.add(key=key.replace("popsr_", "popsr."), value=value)
    return model(x, metadata={"__replicationFactor": factor})


def comm_group(kind: str, size: str, **options: Any) -> bytes:
    return grouped(__commGroupType=kind, __commGroupSize=size, **options)


GOOD = {
    "plain": model(tensor()),
    "grouped": comm_group("Consecutive", "2"),
    "assigned": grouped(popsr_assignment="0,1,1,0"),
    "strided": grouped(popsr_strideAndGroupSize="2,2"),
    "repeated-empty": model(tensor(shape=(0,), raw=b""), tensor("y")),
}

ONNX_FILES: dict[str, tuple[bytes, type[Exception], str]] = {
    "twice": (model(tensor(), tensor()), Bad, "has two tensors of one name, got 'x' twice"),
    "no-name": (model(tensor("")), Bad, "has a tensor without a name"),
    "name-of-bytes": (model(tensor("qq")).replace(b"qq", b"\xff\xfe"), Bad, "a text that is not UTF-8"),
    "negative": (model(tensor(shape=(-2,))), Bad, r"negative dimension, got \(-2,\) for 'x'"),
    "two-negative": (model(tensor(shape=(-1, -2))), Bad, "negative dimension"),
    "absurd-shape": (model(tensor(shape=(2**62,))), Bad, "absurd size, got 'x'"),
    "overflowing-shape": (model(tensor(shape=(2**32, 2**32, 2))), Bad, "absurd size"),
    "absurd-empty": (model(tensor(shape=(0, 2**62), raw=b"")), Bad, "absurd size"),
    "absurd-rank": (model(tensor(shape=(1,) * 33, raw=b"\0" * 4)), Bad, "absurd size, got 'x' of rank 33"),
    "short": (model(tensor(raw=b"\0" * 7)), Bad, "wrong size for 'x', got 7 bytes, expected 8"),
    "long": (model(tensor(raw=b"\0" * 9)), Bad, "wrong size for 'x', got 9 bytes, expected 8"),
    "petabyte": (model(tensor(shape=(2**48,))), Bad, f"wrong size for 'x', got 8 bytes, expected {2**50}"),
    "no-data": (model(tensor(raw=None)), Bad, "got 0 of float_data, expected 2 of float_data"),
    "numbers-missing": (model(tensor(raw=None, float_data=[1])), Bad, "got 1 of float_data, expected 2"),
    "wrong-field": (
        model(tensor(raw=None, int32_data=[1, 2])),
        Bad,
        "got 2 bytes of int32_data, expected 2 of float_data",
    ),
    "two-kinds": (model(tensor(float_data=[1, 2])), Bad, "more than one piece of data for 'x'"),
    "raw-and-external": (
        model(tensor(data_location=TensorProto.EXTERNAL)),
        Bad,
        "more than one piece of data",
    ),
    "segment": (model(tensor(segment=TensorProto.Segment(begin=0, end=1))), Bad, "more than one piece"),
    "byte-range": (
        model(tensor(raw=None, data_type=TensorProto.UINT8, int32_data=[1, 256])),
        Bad,
        "number out of range for 'x', expected uint8",
    ),
    "uint32-range": (
        model(tensor(raw=None, data_type=TensorProto.UINT32, uint64_data=[1, 2**32])),
        Bad,
        "number out of range for 'x', expected uint32",
    ),
    "half-range": (
        model(tensor(raw=None, data_type=TensorProto.FLOAT16, int32_data=[-1, 0])),
        Bad,
        "number out of range for 'x', expected float16",
    ),
    "bool-range": (
        model(tensor(raw=None, data_type=TensorProto.BOOL, int32_data=[2, 0])),
        Bad,
        "a bool that is neither 0 nor 1 in 'x'",
    ),
    "raw-bool": (model(tensor(raw=b"\1\2", data_type=TensorProto.BOOL)), Bad, "neither 0 nor 1 in 'x'"),
    "strings": (
        model(tensor(raw=None, data_type=TensorProto.STRING, string_data=[b"a", b"b"])),
        Unsupported,
        "'x' has a dtype without arrays, got STRING",
    ),
    "unknown-dtype": (model(tensor(data_type=999)), Unsupported, "got data_type 999"),
    "no-dtype": (model(tensor(data_type=0)), Unsupported, "got UNDEFINED"),
    "sparse": (
        model(sparse_initializer=[onnx.SparseTensorProto(values=tensor(), dims=[2])]),
        Unsupported,
        "has sparse initializers",
    ),
    "no-graph": (onnx.ModelProto(ir_version=10).SerializeToString(), Bad, "is not an ONNX model or cut off"),
    "no-version": (model(tensor())[2:], Bad, "is not an ONNX model or cut off"),
    "two-graphs": (model(tensor()) + model(tensor("y"))[2:], Bad, "got field 7 twice"),
    "graph-as-number": (model(tensor()) + b"\x38\x00", Bad, "got field 7 twice or of a wrong type"),
    "group-fields": (model(tensor()) + b"\x0b", Bad, "got wire type 3 at byte"),
    "field-zero": (model(tensor()) + b"\x02\x00", Bad, "got field 0 from byte"),
    "endless-number": (model(tensor()) + b"\xff" * 20, Bad, "got no end of the number"),
    "absurd-length": (
        model(tensor()) + b"\x62" + b"\xff" * 8 + b"\x7f",
        Bad,
        "is not an ONNX file or cut off",
    ),
    "factor-text": (grouped(factor="four"), Bad, "wrong __replicationFactor, got 'four', expected a number"),
    "factor-zero": (grouped(factor="0"), Bad, "wrong __replicationFactor, got '0'"),
    "factor-negative": (grouped(factor="-4"), Bad, "wrong __replicationFactor, got '-4'"),
    "factor-underscore": (grouped(factor="1_0"), Bad, "wrong __replicationFactor, got '1_0'"),
    "factor-other-digits": (grouped(factor="٤"), Bad, "wrong __replicationFactor"),
    "factor-absurd": (
        grouped(factor="9" * 5000),
        Bad,
        r"wrong __replicationFactor, got '9{40}…' of length 5000, expected",
    ),
    "factor-billion": (grouped(factor="1000000000"), Bad, "expected a number from 1 to 1048576"),
    "factor-of-other-groups": (
        comm_group("Consecutive", "2", factor="5"),
        Bad,
        "wrong groups for 'x': .*size does not divide the replicas, got Consecutive of size 2 for 5",
    ),
    "factor-of-more-groups": (
        comm_group("Consecutive", "2", factor="8"),
        Bad,
        r"no row per group for 'x', got \(2, 3\), expected \(4, \.\.\.\)",
    ),
    "scalar-in-groups": (comm_group("Ungrouped", "0", shape=()), Bad, r"no row per group for 'x', got \(\)"),
    "size-zero": (comm_group("Consecutive", "0"), Bad, "wrong groups for 'x'"),
    "size-missing": (grouped(__commGroupType="Orthogonal"), Bad, "wrong __commGroupSize, got ''"),
    "type": (comm_group("Some", "2"), Bad, "wrong __commGroupType, got 'Some', expected one of All, Cons"),
    "mode-only": (grouped(), Bad, "wrong __commGroupType, got ''"),
    "mode": (
        comm_group("Consecutive", "2", __variableRetrievalMode="Some"),
        Bad,
        "wrong __variableRetrievalMode, got 'Some', expected one of OnePerGroup",
    ),
    "assignment-length": (grouped(popsr_assignment="0,1,1"), Bad, "'0,1,1', expected 4 numbers"),
    "assignment-order": (grouped(popsr_assignment="1,0,0,1"), Bad, "wrong groups for 'x'"),
    "assignment-text": (grouped(popsr_assignment="0,1,1,x"), Bad, "wrong popsr.assignment, got 'x'"),
    "stride": (grouped(popsr_strideAndGroupSize="3,2"), Bad, "wrong groups for 'x'"),
    "stride-alone": (grouped(popsr_strideAndGroupSize="2"), Bad, "expected 2 numbers"),
    "step": (model(tensor(), metadata={"popsr.step": "-1"}), Bad, "wrong popsr.step, got '-1'"),
    "step-range": (model(tensor(), metadata={"popsr.step": str(2**64)}), Bad, "wrong popsr.step"),
    "data-bytes": (model(tensor(), metadata={"popsr.dataFile": "x"}), Bad, "wrong popsr.dataBytes, got ''"),
}
_TWICE = helper.make_model(helper.make_graph([], "g", [], [], [tensor()]))
for _ in range(2):
    _TWICE.metadata_props.add(key="k", value="v")
ONNX_FILES["metadata-twice"] = (_TWICE.SerializeToString(), Bad, "metadata of one key, got 'k' twice")


@pytest.mark.parametrize("name", GOOD)
def test_the_cases_below_begin_with_files_that_load(tmp_path: Path, name: str) -> None:
    (tmp_path / "w.onnx").write_bytes(GOOD[name])
    assert "x" in io.load_onnx(tmp_path / "w.onnx")


@pytest.mark.parametrize(("data", "kind", "match"), ONNX_FILES.values(), ids=ONNX_FILES)
def test_wrong_onnx_files_are_refused(tmp_path: Path, data: bytes, kind: type[Exception], match: str) -> None:
    (tmp_path / "w.onnx").write_bytes(data)
    with pytest.raises(kind, match=f"^load_onnx: .*{match}") as info:
        io.load_onnx(tmp_path / "w.onnx")
    assert "\n" not in str(info.value)


def test_a_tensor_without_arrays_does_no_harm_where_it_is_not_needed(tmp_path: Path) -> None:
    strings = tensor("s", raw=None, data_type=TensorProto.STRING, string_data=[b"a", b"b"])
    (tmp_path / "w.onnx").write_bytes(model(strings, tensor("one", (), b"\0\0\x80\x3f")))
    program = Program(1)
    session = program.session()
    session.reset_host_weights(tmp_path / "w.onnx")
    assert session.get_tensor_data(program.variables["one"]) == 1
    program.add("s", np.zeros(2))
    with pytest.raises(Unsupported, match="'s' has a dtype without arrays, got STRING"):
        program.session().reset_host_weights(tmp_path / "w.onnx")


def test_files_that_claim_to_be_ours_need_a_digest(tmp_path: Path) -> None:
    """Also when another writer changed them and left the marks."""
    path = tmp_path / "w.onnx"
    io.save_onnx(Program(1).ir, path)
    changed = onnx.load(path)
    changed.graph.doc_string = "changed"
    onnx.save(changed, path)
    with pytest.raises(Bad, match=r"was changed after popsr wrote it.*neither producer_name 'popsr' nor"):
        io.load_onnx(path)
    del changed.metadata_props[:]
    onnx.save(changed, path)
    with pytest.raises(Bad, match="is damaged"):
        io.load_onnx(path)
    changed.producer_name = "me"
    onnx.save(changed, path)
    assert io.load_onnx(path)["one"] == 0


def test_there_is_a_limit_to_tensors_and_to_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.onnx"
    path.write_bytes(model(*(tensor(f"x{i}") for i in range(5))))
    assert len(io.load_onnx(path)) == 5
    with monkeypatch.context() as patch:
        patch.setattr(Budget, "TENSORS", 4)
        with pytest.raises(Bad, match="too many tensors, got at least 5, expected at most 4"):
            io.load_onnx(path)
    monkeypatch.setattr(Budget, "FIELDS", 20)
    with pytest.raises(Bad, match="too many protobuf fields, got at least 21, expected at most 20"):
        io.load_onnx(path)


# Safetensors

X = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
Y = {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}


def header(text: str | dict[str, Any], data: int = 8, length: int | None = None) -> bytes:
    """A file of a header and as many bytes of zeros."""
    raw = (text if isinstance(text, str) else json.dumps(text)).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + bytes(data)


def entry(**fields: Any) -> bytes:
    return header({"x": {**X, **fields}})


SAFETENSORS_FILES: dict[str, tuple[bytes, type[Exception], str]] = {
    "twice": (header(f'{{"x": {json.dumps(X)}, "x": {json.dumps(X)}}}'), Bad, "got 'x' twice, expected each"),
    "key-twice": (header('{"x": {"dtype": "F32", "dtype": "F32"}}'), Bad, "got 'dtype' twice"),
    "same-range": (header({"x": X, "y": X}), Bad, "tensors that overlap, got '[xy]' at byte"),
    "overlap": (
        header({"x": X, "y": {**Y, "data_offsets": [4, 8]}}),
        Bad,
        "tensors that overlap, got 'y' at byte .* after 'x'",
    ),
    "hole": (
        header({"x": X, "y": {**Y, "data_offsets": [12, 16]}}, 16),
        Bad,
        "tensors that leave a hole, got 'y'",
    ),
    "hole-before": (
        entry(data_offsets=[4, 8], shape=[1]),
        Bad,
        "leave a hole, got 'x' .* after 'the header'",
    ),
    "rest": (header({"x": X}, 9), Bad, "has more than its tensors"),
    "beyond": (header({"x": X}, 7), Bad, "data outside of the file for 'x'"),
    "backwards": (entry(data_offsets=[8, 0]), Bad, "data outside of the file for 'x'"),
    "before": (entry(data_offsets=[-8, 0]), Bad, "data outside of the file for 'x'"),
    "absurd-offset": (entry(data_offsets=[0, 2**70]), Bad, "data outside of the file for 'x'"),
    "wrong-size": (entry(shape=[3]), Bad, "wrong size for 'x', got 8 bytes, expected 12"),
    "negative": (entry(shape=[-2]), Bad, "negative dimension"),
    "two-negative": (entry(shape=[-1, -2]), Bad, "negative dimension"),
    "absurd-shape": (entry(shape=[2**80]), Bad, "absurd size"),
    "absurd-rank": (entry(shape=[2] + [1] * 40), Bad, "absurd size, got 'x' of rank 41"),
    "float-shape": (entry(shape=[2.0]), Bad, "wrong entry for 'x', got"),
    "bool-shape": (entry(shape=[True, 2]), Bad, "wrong entry for 'x', got"),
    "text-shape": (entry(shape="2"), Bad, "wrong entry for 'x'"),
    "three-offsets": (entry(data_offsets=[0, 4, 8]), Bad, "wrong entry for 'x'"),
    "dtype-number": (entry(dtype=1), Bad, "wrong entry for 'x'"),
    "unknown-dtype": (entry(dtype="F33"), Unsupported, "'x' has a dtype without arrays, got F33"),
    "missing-key": (
        header({"x": {"dtype": "F32", "shape": [2]}}),
        Bad,
        "expected dtype, shape and data_offsets",
    ),
    "more-keys": (entry(checksum="0"), Bad, "expected dtype, shape and data_offsets"),
    "entry-list": (header({"x": [1]}), Bad, "expected dtype, shape and data_offsets"),
    "bool": (header({"x": {**X, "dtype": "BOOL", "shape": [8]}}, 0) + b"\2" * 8, Bad, "neither 0 nor 1"),
    "list": (header("[]", 0), Bad, "expected a JSON object"),
    "number": (header("12", 0), Bad, "expected a JSON object"),
    "blank-first": (header(" {}", 0), Bad, "expected a JSON object"),
    "no-json": (header("{x", 0), Bad, "got 'x' at byte 1 of its header, expected a JSON object"),
    "no-text": (
        header("{}", 0).replace(b"{", b"\xff"),
        Bad,
        "at byte 0 of its header, expected a JSON object",
    ),
    "infinity": (header('{"x": Infinity}', 0), Bad, "wrong entry for 'x', got 'Infinity}', expected dtype"),
    "many-digits": (
        header('{"x": ' + "1" * 5000 + "}", 0),
        Bad,
        "wrong entry for 'x', got '1{60}', expected dtype",
    ),
    "deep": (header("{" + '"x":{' * 50000 + "}" * 50001, 0), Bad, 'wrong entry for \'x\', got \'{"x":{"x"'),
    "metadata-list": (header({"__metadata__": [], "x": X}), Bad, "has wrong metadata"),
    "metadata-number": (header({"__metadata__": {"a": 1}, "x": X}), Bad, "has wrong metadata"),
    "factor": (header({"__metadata__": {"__replicationFactor": "x"}, "x": X}), Bad, "__replicationFactor"),
    "groups": (
        header({"__metadata__": {"__replicationFactor": "3", "x/__commGroupType": "All"}, "x": X}),
        Bad,
        "wrong __variableRetrievalMode, got ''",
    ),
    "no-digest": (header({"__metadata__": {"popsr.version": "1"}, "x": X}), Bad, "is damaged"),
    "length-0": (header("{}", 0, 0), Bad, "got a header of 0 bytes"),
    "length-beyond": (header("{}", 0, 3), Bad, "got a header of 3 bytes in a file of 10"),
    "length-absurd": (header({"x": X}, 8, 2**64 - 1), Bad, "got a header of 18446744073709551615 bytes"),
    "length-only": (header("", 0, 2), Bad, "got a header of 2 bytes in a file of 8"),
    "short": (b"\2\0\0", Bad, "is cut off, got 3 bytes, expected at least 8"),
}


@pytest.mark.parametrize(("data", "kind", "match"), SAFETENSORS_FILES.values(), ids=SAFETENSORS_FILES)
def test_wrong_safetensors_files_are_refused(
    tmp_path: Path, data: bytes, kind: type[Exception], match: str
) -> None:
    (tmp_path / "w.safetensors").write_bytes(header({"x": X}))
    assert io.load_safetensors(tmp_path / "w.safetensors")["x"].tolist() == [0, 0]
    (tmp_path / "w.safetensors").write_bytes(data)
    with pytest.raises(kind, match=f"^load_safetensors: .*{match}") as info:
        io.load_safetensors(tmp_path / "w.safetensors")
    assert "\n" not in str(info.value)


def test_there_is_a_limit_to_headers_and_to_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, SAFETENSORS, Program(1).ir)
    with monkeypatch.context() as patch:
        patch.setattr(Budget, "HEADER", 50)
        with pytest.raises(Bad, match=r"too many bytes in its header, got at least \d+, expected at most 50"):
            io.load_safetensors(path)
    monkeypatch.setattr(Budget, "TENSORS", 0)
    with pytest.raises(Bad, match="too many tensors, got at least 1, expected at most 0"):
        io.load_safetensors(path)


# External data


def external(location: str = "data.bin", name: str = "x", **entries: str) -> Any:
    """A tensor of 2 floats in another file."""
    result = tensor(name, raw=None, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        result.external_data.add(key=key, value=value)
    return result


def _twice() -> bytes:
    result = external()
    result.external_data.add(key="offset", value="0")
    result.external_data.add(key="offset", value="4")
    return model(result)


SHA1_OF_8_ZEROS = "05fe405753166f125559e7c9ac558654f107c7e9"
OUTSIDE = "leads out of the model's folder, expected a file beneath it"

EXTERNAL: dict[str, tuple[Callable[[Path], bytes], type[Exception], str]] = {
    "absolute": (lambda p: model(external(str(p / "secret"))), Bad, OUTSIDE),
    "absolute-inside": (lambda p: model(external(str(p / "models/data.bin"))), Bad, OUTSIDE),
    "parent": (lambda p: model(external("../secret")), Bad, OUTSIDE),
    "parent-later": (lambda p: model(external("folder/../../secret")), Bad, OUTSIDE),
    "backslash": (lambda p: model(external("..\\secret")), Bad, OUTSIDE),
    "nul": (lambda p: model(external("data.bin\0")), Bad, OUTSIDE),
    "no-location": (lambda p: model(external("")), Bad, OUTSIDE),
    "dot": (lambda p: model(external(".")), Bad, OUTSIDE),
    "link": (lambda p: model(external("link")), OSError, "cannot read"),
    "link-inside": (lambda p: model(external("inner")), OSError, "cannot read"),
    "linked-folder": (lambda p: model(external("linked/secret")), OSError, "cannot read"),
    "missing": (lambda p: model(external("nothing")), OSError, "cannot read .*nothing', got No such file"),
    "folder": (lambda p: model(external("folder")), OSError, "a folder, expected a file"),
    "pipe": (lambda p: model(external("pipe")), OSError, "a FIFO, expected a file"),
    "beyond": (
        lambda p: model(external(offset="1")),
        Bad,
        "is cut off, got 8 bytes, expected at least 9 for 'x'",
    ),
    "absurd-offset": (lambda p: model(external(offset=str(2**63 - 1))), Bad, "is cut off"),
    "more-absurd-offset": (lambda p: model(external(offset=str(2**64))), Bad, "wrong offset"),
    "negative-offset": (lambda p: model(external(offset="-8")), Bad, "wrong offset, got '-8'"),
    "text-offset": (lambda p: model(external(offset="0x0")), Bad, "wrong offset, got '0x0'"),
    "length": (lambda p: model(external(length="7")), Bad, "wrong size for 'x', got 7 bytes, expected 8"),
    "key-twice": (lambda p: _twice(), Bad, "wrong entry of external data for 'x', got 'offset'"),
    "overlap": (
        lambda p: model(external(), external(name="y", offset="0")),
        Bad,
        "tensors that overlap, got 'x' and 'y' at byte 0",
    ),
    "checksum": (lambda p: model(external(checksum="0" * 40)), Bad, "its SHA-1 is not the checksum"),
    "other-file": (
        lambda p: model(external(), metadata={"popsr.dataFile": "other", "popsr.dataBytes": "8"}),
        Bad,
        "in another file than it says, got 'data.bin' for 'x', expected 'other'",
    ),
    "other-size": (
        lambda p: model(external(), metadata={"popsr.dataFile": "data.bin", "popsr.dataBytes": "9"}),
        Bad,
        "wrong size, got 8 bytes, expected 9",
    ),
    "no-digest": (
        lambda p: model(external(), metadata={"popsr.dataFile": "data.bin", "popsr.dataBytes": "8"}),
        Bad,
        "its digest is not the one",
    ),
}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with links, folders and a pipe, and a secret beside it."""
    import os

    folder = tmp_path / "models"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(8))
    (folder / "data.bin").write_bytes(bytes(8))
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "inner").symlink_to("data.bin")
    (folder / "linked").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    return folder


@pytest.mark.parametrize(("make", "kind", "match"), EXTERNAL.values(), ids=EXTERNAL)
def test_wrong_external_data_is_refused(
    models: Path, make: Callable[[Path], bytes], kind: type[Exception], match: str
) -> None:
    (models / "w.onnx").write_bytes(model(external(checksum=SHA1_OF_8_ZEROS)))
    assert io.load_onnx(models / "w.onnx")["x"].tolist() == [0, 0]
    (models / "w.onnx").write_bytes(make(models.parent))
    with pytest.raises(kind, match=f"^load_onnx: .*{match}") as info:
        io.load_onnx(models / "w.onnx")
    assert isinstance(info.value, errors.Error)


def test_external_data_is_opened_only_for_tensors_that_are_read(models: Path) -> None:
    (models / "w.onnx").write_bytes(model(external("nothing"), tensor("one", (), b"\0\0\x80\x3f")))
    program = Program(1)
    session = program.session()
    session.reset_host_weights(models / "w.onnx")
    assert session.get_tensor_data(program.variables["one"]) == 1
