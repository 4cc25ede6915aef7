"""Limits of files: versions, names, shapes, offsets of data; and everything that is saved can be loaded."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, io
from popsr.io._budget import Budget
from tests_py.checkpoints.cases import FORMATS, ONNX, SAFETENSORS, Format, Program, saved, small_program
from tests_py.support.helpers import assert_same_bits

onnx = pytest.importorskip("onnx")
TensorProto, helper = onnx.TensorProto, onnx.helper

both_formats = pytest.mark.parametrize("format", FORMATS, ids=str)
Bad = errors.CheckpointError


def refusal(call: Callable[[], Any], kind: type[Exception] = Bad) -> str:
    """The text of a typed error of one line and limited length."""
    with pytest.raises(kind) as info:
        call()
    assert isinstance(info.value, errors.Error)
    text = str(info.value)
    assert "\n" not in text
    assert len(text) <= 500
    return text


# Versions

VERSIONS: dict[str, str | None] = {
    "0.1.0": None,
    "0.99.3": None,
    "0.2.0rc1": None,
    "0.1.0+local.5": None,
    "0": None,
    "1.0.0": f"written by a later popsr, got version 1.0.0, expected one that popsr {popsr.__version__} can read",
    "2": "written by a later popsr, got version 2,",
    "999999999.0": "written by a later popsr",
    "": "wrong version of popsr, got '', expected one such as '1.2.3'",
    "one": "wrong version of popsr, got 'one'",
    "1.": "wrong version of popsr, got '1.'",
    "-1.0": "wrong version",
    " 0.1": "wrong version",
    "٠.1": "wrong version",
    "0.1.0\n": r"wrong version of popsr, got '0.1.0\n'",
    "9" * 200: "wrong version of popsr, got '999",
}


@both_formats
@pytest.mark.parametrize(("version", "match"), VERSIONS.items(), ids=lambda text: str(text)[:20])
def test_files_of_a_later_major_version_are_refused(
    tmp_path: Path, format: Format, version: str, match: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digests are right: another popsr would have written them."""
    session = small_program().session()
    with monkeypatch.context() as patch:
        patch.setattr(popsr._core, "__version__", version)
        path = saved(tmp_path, format, session)
    if match is None:
        session.reset_host_weights(path)
        return
    assert match in refusal(lambda: session.reset_host_weights(path))
    assert match in refusal(lambda: format.load(path))


def test_a_later_version_with_a_digest_of_another_kind_is_not_called_damaged(tmp_path: Path) -> None:
    header = {"__metadata__": {"popsr.digest": "blake2b:00", "popsr.version": "2.0.0"}}
    text = json.dumps(header).encode()
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    assert "was written by a later popsr, got version 2.0.0, expected" in refusal(
        lambda: io.load_safetensors(path)
    )


def test_files_of_other_writers_have_versions_of_their_own(tmp_path: Path) -> None:
    graph = helper.make_graph([], "g", [], [], [onnx.numpy_helper.from_array(np.ones(2), "x")])
    model = helper.make_model(graph, producer_name="other", producer_version="99.0")
    onnx.save(model, tmp_path / "w.onnx")
    assert io.load_onnx(tmp_path / "w.onnx")["x"].shape == (2,)


# Names and shapes


def onnx_file(name: str, shape: tuple[int, ...], raw: bytes) -> bytes:
    tensor = TensorProto(name=name, dims=shape, data_type=TensorProto.FLOAT, raw_data=raw)
    return bytes(helper.make_model(helper.make_graph([], "g", [], [], [tensor])).SerializeToString())


def safetensors_file(name: str, shape: tuple[int, ...], raw: bytes) -> bytes:
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, len(raw)]}
    header = json.dumps({name: entry}).encode()
    return len(header).to_bytes(8, "little") + header + raw


WRITERS = {".onnx": onnx_file, ".safetensors": safetensors_file}

NAMES: dict[str, tuple[str, str | None]] = {
    "plain": ("layer/0.w", None),
    "other-scripts": ("вес_重み", None),
    "no-break-space": ("a\u00a0b", None),
    "longest": ("x" * 4096, None),
    "too-long": ("x" * 4097, "name is too long, got 4097 bytes, expected at most 4096"),
    "too-long-in-bytes": ("ü" * 2049, "name is too long, got 4098 bytes"),
    "newline": ("a\nb", r"control characters or surrogates, got 'a\nb'"),
    "nul": ("a\0b", r"control characters or surrogates, got 'a\x00b'"),
    "escape": ("\x1b[2J", "control characters or surrogates"),
    "c1": ("a\x9bb", "control characters or surrogates"),
    "delete": ("a\x7f", "control characters or surrogates"),
    "lone-surrogate": ("a\ud800", r"control characters or surrogates, got 'a\ud800'"),
}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize(("name", "match"), NAMES.values(), ids=NAMES)
def test_names_of_tensors(tmp_path: Path, suffix: str, name: str, match: str | None) -> None:
    if suffix == ".onnx" and "\ud800" in name:
        pytest.skip("its library writes no such file")
    path = tmp_path / f"w{suffix}"
    path.write_bytes(WRITERS[suffix](name, (2,), bytes(8)))
    load = io.load_onnx if suffix == ".onnx" else io.load_safetensors
    if match is None:
        assert list(load(path)) == [name]
    else:
        assert match in refusal(lambda: load(path))


SHAPES: dict[str, tuple[tuple[int, ...], str | None]] = {
    "empty": ((0,), None),
    "empty-rows": ((0, 50_000, 30_000), None),
    "empty-and-huge": ((2**40, 0), "absurd size, got 'x' of shape (1099511627776, 0)"),
    "empty-and-too-large": ((2**16, 0, 2**15), "absurd size"),
    "empty-and-large": ((2**16, 0, 2**15 - 1), None),
    "highest-rank": ((1,) * 31 + (0,), None),
    "rank": ((1,) * 32 + (0,), "absurd size, got 'x' of rank 33, expected at most 32"),
    "long": ((2**63 - 1,) * 32, "absurd size, got 'x' of shape (9223372036854775807, "),
}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize(("shape", "match"), SHAPES.values(), ids=SHAPES)
def test_shapes_without_data(tmp_path: Path, suffix: str, shape: tuple[int, ...], match: str | None) -> None:
    path = tmp_path / f"w{suffix}"
    path.write_bytes(WRITERS[suffix]("x", shape, b""))
    load = io.load_onnx if suffix == ".onnx" else io.load_safetensors
    if match is None:
        assert load(path)["x"].shape == shape
    else:
        assert match in refusal(lambda: load(path))


# Data in other files

SHA1_OF_8_ZEROS = "05fe405753166f125559e7c9ac558654f107c7e9"


def external(name: str, **entries: str) -> Any:
    tensor = TensorProto(name=name, dims=[2], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "data.bin", **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


EXTERNAL: dict[str, tuple[list[Any], str | None]] = {
    "plain": ([external("x")], None),
    "base-path": ([external("x", basepath="elsewhere")], None),  # as onnx, which ignores it
    "unknown-key": (
        [external("x", compression="zip")],
        "wrong entry of external data for 'x', got 'compression', expected each of location, offset",
    ),
    "hard-link": ([external("x", location="link.bin")], "may be a file from elsewhere, got 2 hard links"),
    "hard-link-with-checksum": ([external("x", location="link.bin", checksum=SHA1_OF_8_ZEROS)], None),
    "hard-link-with-wrong-checksum": (
        [external("x", location="link.bin", checksum="0" * 40)],
        "is damaged: its SHA-1",
    ),
    "model": ([external("x", location="w.onnx")], "is the same file as 'w.onnx'"),
    "model-by-a-link": ([external("x", location="model-link.onnx")], "is the same file as 'w.onnx'"),
    "two-names": (
        [
            external("x", location="link.bin", checksum=SHA1_OF_8_ZEROS),
            external("y", location="other-link.bin", checksum=SHA1_OF_8_ZEROS),
        ],
        "is the same file as 'link.bin'",
    ),
    "control-characters": ([external("x", location="a\nb")], r"a\nb', got No such file"),
    "long-location": ([external("x", location="a/" * 2000 + "b")], "cannot read '"),
}


@pytest.mark.parametrize(("tensors", "match"), EXTERNAL.values(), ids=EXTERNAL)
def test_places_of_external_data(tmp_path: Path, tensors: list[Any], match: str | None) -> None:
    for name in ("data.bin", "link.bin"):
        (tmp_path / name).write_bytes(bytes(8))
    path = tmp_path / "w.onnx"
    onnx.save(helper.make_model(helper.make_graph([], "g", [], [], tensors)), path)
    os.link(tmp_path / "link.bin", tmp_path / "other-link.bin")
    os.link(path, tmp_path / "model-link.onnx")
    if match is None:
        assert io.load_onnx(path)["x"].tolist() == [0, 0]
    else:
        kind = errors.FileError if "got No such" in match or "cannot read" in match else Bad
        assert match in refusal(lambda: io.load_onnx(path), kind)


def test_a_copy_of_hard_links_of_a_checkpoint_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As backups are made: the digest says that the data is the right one."""
    monkeypatch.setattr("popsr.io._onnx.write._MAX_FILE", 100)
    monkeypatch.setattr("popsr.io._onnx.write._MIN_EXTERNAL", 1)
    path = saved(tmp_path, ONNX, small_program().ir)
    (tmp_path / "backup").mkdir()
    for file in tmp_path.glob("w.*"):
        os.link(file, tmp_path / "backup" / file.name)
    assert io.load_onnx(tmp_path / "backup" / "w.onnx")["w"].shape == io.load_onnx(path)["w"].shape == (2, 3)


# Settings


@both_formats
def test_settings_are_made_when_they_are_used_and_once(tmp_path: Path, format: Format) -> None:
    program = Program(8, embed=True)
    irregular = program.ir.replica_grouping_from_assignments([0, 1, 1, 0, 0, 1, 1, 0])
    strided = program.ir.replica_grouping(2, 2)
    for i in range(3):
        program.add(f"a{i}", np.zeros((2, i)), irregular)
        program.add(f"b{i}", np.zeros((4, i)), strided)
    found = format.load(saved(tmp_path, format, program.ir))
    stored = found.settings._stored  # type: ignore[attr-defined]
    assert len({id(each) for name, each in stored.items() if name.startswith("a")}) == 1
    assert not any("value" in vars(each) for each in stored.values())
    assert found.settings["a1"] is found.settings["a2"]
    for i in range(3):
        assert found.settings[f"a{i}"].replica_grouping(8) == irregular
        assert found.settings[f"b{i}"].replica_grouping(8) == strided
    assert set(found.settings) == set(found)
    assert "a1" in found.settings
    assert "other" not in found.settings
    assert repr(found.settings) == "Settings[7 tensors]"


@both_formats
def test_names_that_look_like_keys_of_metadata(tmp_path: Path, format: Format) -> None:
    program = Program(4, embed=True)
    names = [
        "x",
        "x/__commGroupType",
        "__commGroupType",
        "popsr.digest",
        "__replicationFactor",
        "a/x",
        "b/x",
        '"\\/',
    ]
    for i, name in enumerate(names):
        program.add(name, np.full((2, 1), i), program.ir.replica_grouping(1 + i % 2, 2))
    found = format.load(saved(tmp_path, format, program.ir))
    for i, name in enumerate(names):
        assert found[name].tolist() == [[i], [i]]
        assert found.settings[name].replica_grouping(4) == program.ir.replica_grouping(1 + i % 2, 2)
    program.session().reset_host_weights(tmp_path / f"w{format.suffix}")


def test_many_tensors_without_settings_have_a_short_text(tmp_path: Path) -> None:
    tensors = [onnx.numpy_helper.from_array(np.zeros(1), f"{i}" * 50) for i in range(30)]
    model = helper.make_model(helper.make_graph([], "g", [], [], tensors))
    model.metadata_props.add(key="__replicationFactor", value="2")
    onnx.save(model, tmp_path / "w.onnx")
    found = io.load_onnx(tmp_path / "w.onnx")
    assert found.unknown.endswith("and 25 more")
    assert len(repr(found)) < 1000
    assert "no such tensor" in refusal(lambda: found["\x1b" * 9000], errors.UnknownNameError)


def test_close_names_are_sought_among_few_short_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comparing texts takes time with the square of their length."""
    compared = []

    def watched(word: str, possibilities: Iterable[str], **options: Any) -> list[str]:
        texts = list(possibilities)
        compared.append(sum(len(word) * len(text) for text in texts))
        return get_close_matches(word, texts, **options)

    get_close_matches = difflib.get_close_matches
    monkeypatch.setattr(difflib, "get_close_matches", watched)
    entries = {
        f"layer{i:05}" + "x" * 85: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
        for i in range(60_000)
    }
    header = json.dumps(entries).encode()
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    program = Program(1)
    program.add("layer31415" + "x" * 84 + "y", np.zeros(1))
    session = program.session()
    text = refusal(lambda: session.reset_host_weights(path), errors.UnknownNameError)
    assert "lacks variables, got no 'one' and 1 more" in text
    found = io.load_safetensors(path)
    text = refusal(lambda: found["layer31415" + "x" * 84 + "y"], errors.UnknownNameError)
    assert "expected one of ['layer" in text
    assert compared
    assert max(compared) <= 500 * 100 * 100


# Round trips

UNLOADABLE: dict[str, tuple[Callable[[Program], Any], str]] = {
    "newline": (lambda p: p.add("a\nb", np.zeros(1)), r"control characters or surrogates, got 'a\nb'"),
    "long-name": (lambda p: p.add("x" * 5000, np.zeros(1)), "name is too long, got 5000 bytes"),
    "huge-empty": (lambda p: p.add("x", np.zeros((2**40, 0))), "absurd size, got 'x'"),
}


@both_formats
@pytest.mark.parametrize(("add", "match"), UNLOADABLE.values(), ids=UNLOADABLE)
def test_checkpoints_that_could_not_be_loaded_are_not_saved(
    tmp_path: Path, format: Format, add: Callable[[Program], Any], match: str
) -> None:
    path = saved(tmp_path, format, small_program().ir)
    before = path.read_bytes()
    program = Program(1)
    add(program)
    text = refusal(lambda: format.save(program.ir, path))
    assert text.startswith(f"{format.save.__name__}: ")
    assert "is not written, for it could not be loaded" in text
    assert match in text
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_onnx_has_no_tensors_without_names(tmp_path: Path) -> None:
    program = Program(1)
    program.add("", np.ones(1))
    assert "a variable has no name" in refusal(lambda: io.save_onnx(program.ir, tmp_path / "w.onnx"))
    assert not list(tmp_path.iterdir())
    assert SAFETENSORS.load(saved(tmp_path, SAFETENSORS, program.ir))[""] == 1


@both_formats
@pytest.mark.parametrize(
    ("limit", "match"),
    [
        ("TENSORS", "too many tensors"),
        ("METADATA", "too many bytes of metadata"),
        ("FIXED", "too much memory"),
    ],
)
def test_limits_hold_for_saving_before_they_hold_for_loading(
    tmp_path: Path, format: Format, limit: str, match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lowest limit that a program may be saved with is high enough to load it."""
    program = small_program(embed=True)
    program.add("irregular", np.zeros((2, 1)), program.ir.replica_grouping_from_assignments([0, 1, 1, 0]))
    path = tmp_path / f"w{format.suffix}"
    low, high = 0, 8 << 20
    while high - low > 1:
        middle = (low + high) // 2
        monkeypatch.setattr(Budget, limit, middle)
        try:
            format.save(program.ir, path)
            high = middle
        except Bad as error:
            assert match in str(error)  # noqa: PT017
            low = middle
    monkeypatch.setattr(Budget, limit, high)
    format.save(program.ir, path)
    found = format.load(path)
    assert_same_bits(found["w"], np.arange(6, dtype=np.float32).reshape(2, 3))
    monkeypatch.setattr(Budget, limit, 1)
    assert "at most" in refusal(lambda: format.load(path))


def test_fields_of_a_model_are_counted_before_it_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = small_program(embed=True)
    program.add("deep", np.zeros((1,) * 20))
    monkeypatch.setattr(Budget, "FIELDS", 60)
    assert "too many protobuf fields" in refusal(lambda: io.save_onnx(program.ir, tmp_path / "w.onnx"))
    monkeypatch.setattr(Budget, "FIELDS", 100)
    io.save_onnx(program.ir, tmp_path / "w.onnx")
    assert len(io.load_onnx(tmp_path / "w.onnx")) == 5


def test_headers_are_measured_before_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Budget, "HEADER", 500)
    text = refusal(lambda: saved(tmp_path, SAFETENSORS, small_program().ir))
    assert "too many bytes in its header" in text
    assert not list(tmp_path.iterdir())


# Errors


@both_formats
def test_errors_about_long_and_strange_paths_are_short_lines(tmp_path: Path, format: Format) -> None:
    folder = tmp_path
    for _ in range(12):
        folder = folder / ("x" * 240 + "\n\x1b")
    folder.mkdir(parents=True)
    path = folder / f"w{format.suffix}"
    for data in (None, b"", b"nonsense", WRITERS[format.suffix]("y" * 4000, (3,), bytes(8))):
        if data is not None:
            path.write_bytes(data)
        text = refusal(lambda: format.load(path), errors.Error)
        assert f"w{format.suffix}'" in text
        session = small_program().session()
        refusal(lambda: session.reset_host_weights(path), errors.Error)  # noqa: B023
    path.unlink()
    path.mkdir()
    refusal(lambda: format.save(small_program().ir, path), errors.FileError)
    refusal(lambda: format.save(small_program().ir, folder / "no" / "w"), errors.FileError)
