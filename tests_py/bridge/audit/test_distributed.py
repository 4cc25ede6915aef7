"""Audits of checkpoints of torch.distributed.checkpoint; the reference is its own ``load``."""

from __future__ import annotations

import os
import pickle
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, io, ops
from popsr.bridge.audit import audit, between
from popsr.bridge.audit._readers import hold

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")
metadata = pytest.importorskip("torch.distributed.checkpoint.metadata")
filesystem = pytest.importorskip("torch.distributed.checkpoint.filesystem")
from tests_py.bridge.audit.test_audit import GROUPS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def save(path: Path, state: dict[str, Any]) -> Path:
    dcp.save(state, checkpoint_id=path, no_dist=True)
    return path / ".metadata"


def bits(tensor: Any) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def held(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    found = hold("audit", path).tensors
    return {name: (each.kind, each.shape, each.read().tobytes()) for name, each in found.items()}


@pytest.mark.parametrize("kind", ["dcp", "alone"])
def test_a_real_job_that_drifts_is_found(jobs: dict[str, Path], kind: str) -> None:
    report = audit(jobs["drift"] / kind, GROUPS)
    reference = audit(jobs["drift"] / "pt", GROUPS)
    assert report.first is not None
    assert (report.steps, report.drifts, report.notes) == (reference.steps, reference.drifts, ())
    assert audit(jobs["good"] / kind, GROUPS).ok
    if kind == "dcp":
        assert audit(jobs["drift"] / "dcp/step_{step}/rank_{rank}", GROUPS).drifts == report.drifts


def test_a_checkpoint_of_all_ranks_is_refused(jobs: dict[str, Path]) -> None:
    for source in (jobs["drift"] / "shared", jobs["drift"] / "shared/step_1"):
        with pytest.raises(errors.FileError, match=r"one copy of what ranks hold in common.*log_hashes"):
            audit(source)


def test_a_sharded_tensor_of_a_real_job(jobs: dict[str, Path]) -> None:
    whole = torch.arange(10.0).reshape(5, 2)
    path = jobs["good"] / "shared/step_2"
    assert len(list(path.glob("*.distcp"))) == 2
    target = {"shard": torch.zeros(5, 2)}
    dcp.load(target, checkpoint_id=path, no_dist=True)
    assert held(path / ".metadata")["shard"] == ("float32", (5, 2), bits(target["shard"]))
    assert bits(target["shard"]) == bits(whole)


DTYPES = ("bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2", "int64", "bool", "complex64")


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 2), (5,), (3, 4)])
def test_tensors_are_those_of_load(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    dtype = getattr(torch, name)
    count = int(np.prod(shape)) * dtype.itemsize
    data = torch.from_numpy(
        np.random.default_rng(3).integers(0, 2 if name == "bool" else 256, count, np.uint8)
    )
    w = data.view(dtype).reshape(shape) if count else torch.zeros(shape, dtype=dtype)
    path = save(tmp_path / "rank0", {"model": {"w": w, "t": w.T if w.ndim == 2 else w}})
    target = {"model": {"w": torch.zeros(shape, dtype=dtype)}}
    dcp.load(target, checkpoint_id=path.parent, no_dist=True)
    assert held(path)["model.w"] == (name, shape, bits(target["model"]["w"])) == (name, shape, bits(w))
    if w.ndim == 2:
        assert held(path)["model.t"] == (name, shape[::-1], bits(w.T))


def test_objects_are_compared_where_they_are_numbers(tmp_path: Path) -> None:
    state = {"step": 3, "lr": 0.5, "on": True, "big": 1 << 70, "text": "x", "object": Path("x")}
    found = held(save(tmp_path, state))
    assert {name: each[:2] for name, each in found.items()} == {
        "step": ("int64", ()),
        "lr": ("float64", ()),
        "on": ("bool", ()),
    }
    assert found["lr"][2] == np.float64(0.5).tobytes()


Cut = tuple[tuple[int, ...], tuple[int, ...]]


def shards(path: Path, cuts: list[Cut], w: Any) -> Path:
    """A tensor as its writers store it: a file for each chunk."""
    path.mkdir(parents=True)
    chunks, stored = [], {}
    for i, (offsets, sizes) in enumerate(cuts):
        part = w[tuple(slice(a, a + n) for a, n in zip(offsets, sizes, strict=True))].clone()
        torch.save(part, path / f"__{i}_0.distcp")
        chunks.append(metadata.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)))
        length = (path / f"__{i}_0.distcp").stat().st_size
        stored[metadata.MetadataIndex("w", offsets, i)] = filesystem._StorageInfo(
            f"__{i}_0.distcp", 0, length
        )
    entry = metadata.TensorStorageMetadata(metadata.TensorProperties(w.dtype), w.size(), chunks)
    whole = metadata.Metadata({"w": entry}, {"w": ("w",)}, stored)
    (path / ".metadata").write_bytes(pickle.dumps(whole))
    return path / ".metadata"


CUTS: dict[str, list[Cut]] = {
    "rows": [((0, 0), (2, 6)), ((2, 0), (2, 6)), ((4, 0), (1, 6))],
    "columns": [((0, 3), (5, 3)), ((0, 0), (5, 3))],
    "grid": [((0, 0), (3, 2)), ((0, 2), (3, 4)), ((3, 0), (2, 2)), ((3, 2), (2, 4))],
    "empty chunk": [((0, 0), (5, 6)), ((5, 0), (0, 6))],
}


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_chunks_are_assembled(tmp_path: Path, name: str, cuts: Any) -> None:
    w = torch.arange(30).reshape(5, 6).to(getattr(torch, name))
    path = shards(tmp_path / "rank_0", cuts, w)
    target = {"w": torch.zeros_like(w)}
    dcp.load(target, checkpoint_id=path.parent, no_dist=True)
    assert held(path) == {"w": (name, (5, 6), bits(target["w"]))}
    assert bits(target["w"]) == bits(w)
    w[4, 5] = 1
    shards(tmp_path / "rank_1", CUTS["rows"], w)
    first = audit(tmp_path).first
    assert first is not None
    assert first.element == (4, 5)


CUT_FAULTS: dict[str, tuple[list[Cut], str]] = {
    "hole": ([((0, 0), (4, 6))], "got 24 elements, expected all 30"),
    "overlap": ([((0, 0), (3, 6)), ((2, 0), (2, 6))], "got overlapping ones"),
    "none": ([], "got 0 bytes|got 0 elements"),
    "outside": ([((0, 0), (5, 6)), ((4, 0), (2, 6))], "wrong chunk of 'w', got"),
}


@pytest.mark.parametrize(("cuts", "match"), CUT_FAULTS.values(), ids=CUT_FAULTS)
def test_wrong_chunks(tmp_path: Path, cuts: Any, match: str) -> None:
    shards(tmp_path / "rank_0", cuts, torch.zeros(5, 6))
    with pytest.raises(errors.CheckpointError, match=match):
        audit(tmp_path)


# Files that are damaged or hostile


class Hostile:
    """Its pickle makes a folder when it is read."""

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.arguments


def test_nothing_of_a_pickle_runs(tmp_path: Path) -> None:
    target = tmp_path / "made"
    path = save(tmp_path / "rank_0", {"w": torch.ones(2)})
    whole = pickle.loads(path.read_bytes())
    for call, arguments, name in (
        (os.mkdir, (str(target),), "posix.mkdir"),
        (eval, (f"__import__('os').mkdir({str(target)!r})",), "builtins.eval"),
        (torch.load, (str(target),), "torch.serialization.load"),
    ):
        for place in ("planner_data", "storage_meta"):
            setattr(whole, place, Hostile(call, *arguments))
            path.write_bytes(pickle.dumps(whole))
            with pytest.raises(errors.CheckpointError, match=rf"\.metadata.*got the class '{name}'"):
                audit(tmp_path)
            assert not target.exists()
            setattr(whole, place, None)
    path.write_bytes(pickle.dumps(whole))
    assert not audit(tmp_path).damaged


def test_members_of_enumerations_as_every_python_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11.0 to 3.11.3 write a call of getattr, which is no more than a record here."""
    members = dcp.metadata._MEM_FORMAT_ENCODING
    monkeypatch.setattr(members, "__reduce_ex__", lambda self, _: (getattr, (type(self), self.name)))
    path = save(tmp_path / "rank_0", {"w": torch.ones(2)})
    assert b"getattr" in path.read_bytes()
    assert not audit(tmp_path).damaged
    assert held(path)["w"] == ("float32", (2,), bits(torch.ones(2)))


def test_metadata_of_megatron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions add an attribute to the metadata of PyTorch, newer ones have a class of their own."""
    name = "megatron.core.dist_checkpointing.strategies.torch"
    path = save(tmp_path / "iter_0000010", {"model.w": torch.ones(2), "model.rng/shard_0_2": [1]})
    whole = pickle.loads(path.read_bytes())
    whole.mcore_data = {"model.w": {"nd_reformulated_orig_global_shape": (2,)}}
    older = pickle.dumps(whole)
    made = type("MCoreMetadata", (metadata.Metadata,), {"__module__": name})
    for part in (
        "megatron",
        "megatron.core",
        "megatron.core.dist_checkpointing",
        name[: name.rindex(".")],
        name,
    ):
        monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
    setattr(sys.modules[name], "MCoreMetadata", made)  # noqa: B010 - a module has no such attribute
    whole.__class__ = made
    for data in (older, pickle.dumps(whole)):
        path.write_bytes(data)
        assert held(path) == {"model.w": ("float32", (2,), bits(torch.ones(2)))}
        assert between(tmp_path, tmp_path).ok
    assert b"MCoreMetadata" in path.read_bytes()


def test_nothing_of_a_range_runs(tmp_path: Path) -> None:
    path = shards(tmp_path / "rank_0", CUTS["empty chunk"][:1], torch.ones(5, 6))
    shards(tmp_path / "rank_1", CUTS["empty chunk"][:1], torch.ones(5, 6))
    target = tmp_path / "made"
    data = path.with_name("__0_0.distcp")
    torch.save(Hostile(os.mkdir, str(target)), data)
    data.write_bytes(data.read_bytes().ljust(4096, b"\0"))
    (text,) = audit(tmp_path).damaged
    assert "__0_0.distcp' is damaged at 'w'" in text
    assert not target.exists()


def edited(path: Path, **fields: Any) -> bytes:
    whole = pickle.loads(path.read_bytes())
    for index, info in whole.storage_data.items():
        whole.storage_data[index] = filesystem._StorageInfo(**(vars(info) | fields))
    return pickle.dumps(whole)


METADATA_FAULTS: dict[str, tuple[Callable[[Path], bytes], type[Exception], str]] = {
    "empty": (lambda _: b"", errors.CheckpointError, "is empty"),
    "text": (lambda _: b"hello", errors.CheckpointError, "is damaged, got"),
    "cut": (lambda p: p.read_bytes()[:-9], errors.CheckpointError, "is damaged, got"),
    "other": (lambda _: pickle.dumps({"w": 1}), errors.CheckpointError, "got dict, expected Metadata"),
    "memo": (lambda _: b"\x80\x04Nr\xff\xff\xff\x7f.", errors.CheckpointError, "got NoneType, expected"),
    "no data": (lambda _: pickle.dumps(metadata.Metadata({})), errors.CheckpointError, "storage_data"),
    "entry": (
        lambda _: pickle.dumps(metadata.Metadata({"w": 3}, None, {})),
        errors.CheckpointError,
        "got int",
    ),
    "name": (lambda p: edited(p, relative_path="../x"), errors.CheckpointError, "outside of its folder"),
    "range": (lambda p: edited(p, length=-1), errors.CheckpointError, "has wrong metadata"),
    "end": (lambda p: edited(p, offset=10**6), errors.CheckpointError, "is cut off, got"),
    "short": (lambda p: edited(p, length=2), errors.CheckpointError, "claims more than it has"),
    "middle": (lambda p: edited(p, offset=9, length=900), errors.CheckpointError, "is damaged at 'w'"),
    "missing": (lambda p: edited(p, relative_path="x"), errors.FileError, "cannot read"),
    "zstd": (lambda p: edited(p, transform_descriptors=["zstd"]), errors.UnsupportedError, "transformed"),
}


@pytest.mark.parametrize(("edit", "kind", "match"), METADATA_FAULTS.values(), ids=METADATA_FAULTS)
def test_wrong_metadata(tmp_path: Path, edit: Any, kind: type[Exception], match: str) -> None:
    save(tmp_path / "rank_1", {"w": torch.ones(2)})
    path = save(tmp_path / "rank_0", {"w": torch.ones(2)})
    path.write_bytes(edit(path))
    with pytest.raises(kind, match=f"^audit: .*{match}") as caught:
        held(path)
    assert "\n" not in str(caught.value)
    report = audit(tmp_path)
    assert report.damaged == (str(caught.value).removeprefix("audit: "),)
    assert not report.ok


def test_files_that_are_cut_off_or_missing(tmp_path: Path) -> None:
    path = save(tmp_path / "rank_0", {"w": torch.ones(2)})
    data = path.with_name("__0_0.distcp")
    os.truncate(data, 100)
    with pytest.raises(errors.CheckpointError, match=r"__0_0.distcp' is cut off, got 100 bytes, expected at"):
        audit(tmp_path)
    data.unlink()
    with pytest.raises(errors.FileError, match=r"cannot read .*__0_0.distcp', got No such file"):
        audit(tmp_path)


def test_other_readers_refuse_the_folder(tmp_path: Path) -> None:
    save(tmp_path, {"w": torch.ones(2)})
    ir = popsr.Ir()
    with ir.main_graph:
        ops.relu(popsr.variable(np.zeros(2, np.float32), name="w"))
    text = r"got a folder, expected a file \(dcp_to_torch_save"
    session = popsr.Session(ir)
    for read in (io.load_torch, io.load_safetensors, io.load_onnx, partial(io.reset_host_weights, session)):
        with pytest.raises(errors.FileError, match=text):
            read(tmp_path)
