"""Files of torch.save with objects in them: tensors are those of ``torch.load``, and no object is made."""

from __future__ import annotations

import argparse
import collections
import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popsr import errors
from popsr.bridge.audit import audit
from popsr.bridge.audit._torch_file import read_torch_file

torch = pytest.importorskip("torch")


def put(path: Path, value: Any, *, legacy: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(value, path, _use_new_zipfile_serialization=not legacy)
    return path


def bits(tensor: Any) -> tuple[str, tuple[int, ...], bytes]:
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), data


def held(path: Path) -> dict[str, Any]:
    found = read_torch_file("audit", path).tensors
    return {name: (each.kind, each.shape, each.read().tobytes()) for name, each in found.items()}


W = torch.arange(12.0).reshape(3, 4)
TENSORS: dict[str, Any] = {
    "plain": W,
    "transposed": W.T,
    "part": W[1:, 1:3],
    "expanded": torch.ones(1).expand(3, 4),
    "scalar": torch.tensor(4),
    "empty": torch.zeros(0, 3),
    "parameter": torch.nn.Parameter(W.clone()),
    "bfloat16": W.bfloat16(),
    "float8": W.to(torch.float8_e4m3fn),
    "uint16": torch.arange(3).to(torch.uint16),
    "complex": torch.ones(2, dtype=torch.complex64),
    "bool": W > 3,
    "nan": torch.tensor([float("nan"), -0.0]),
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", TENSORS)
def test_tensors_are_those_of_load(tmp_path: Path, name: str, legacy: bool) -> None:
    if legacy and name in ("float8", "uint16"):
        return  # PyTorch does not write them so
    path = put(tmp_path / "x.pt", {"a": {"b": [TENSORS[name]]}, "n": 3}, legacy=legacy)
    loaded = torch.load(path, weights_only=False)["a"]["b"][0]
    assert held(path) == {"a.b.0": bits(loaded)}
    assert read_torch_file("audit", path).left_out == {"int": 1}


class Holder:
    """An object with a tensor, of a class that whoever reads the file may not have."""

    def __init__(self) -> None:
        self.inner = torch.ones(2)


# Objects of checkpoints, by what they are counted as, and the tensors in them.
OBJECTS: dict[str, tuple[Any, dict[str, int], set[str]]] = {
    "scalar of numpy": (np.float32(3), {"scalar": 1}, set()),
    "array": (np.ones(3), {"ndarray": 1}, set()),
    "bytes": (io.BytesIO(b"x"), {"BytesIO": 1}, set()),
    "arguments": (argparse.Namespace(lr=1.0, x=torch.ones(2)), {"Namespace": 1}, {"x.x"}),
    "defaultdict": (collections.defaultdict(list, {"a": torch.ones(2), "b": 1}), {"int": 1}, {"x.a"}),
    "ordered": (collections.OrderedDict(a=torch.ones(2)), {}, {"x.a"}),
    "path": (Path("x"), {"PosixPath": 1}, set()),
    "deque": (collections.deque([torch.ones(2)]), {"deque": 1}, {"x.0"}),
    "set": ({1, 2}, {"set": 1}, set()),
    "class": (Holder(), {"Holder": 1}, {"x.inner"}),
    "type": (argparse.Namespace, {"Namespace": 1}, set()),
    "mixed": (
        [None, True, 2, 0.5, "x", b"y"],
        dict.fromkeys(("NoneType", "bool", "int", "float", "str", "bytes"), 1),
        set(),
    ),
    "keys": (
        {(1, "a"): torch.ones(2), None: torch.ones(1), 3: torch.ones(1)},
        {},
        {"x.(1, a)", "x.None", "x.3"},
    ),
    "meta": (torch.ones(2, device="meta"), {"_rebuild_meta_tensor_no_storage": 1}, set()),
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", OBJECTS)
def test_objects_are_counted_and_left_out(tmp_path: Path, name: str, legacy: bool) -> None:
    value, counts, inside = OBJECTS[name]
    for rank in range(2):
        put(tmp_path / f"rank_{rank}.pt", {"w": W + (rank == 1), "x": value}, legacy=legacy)
    report = audit(tmp_path)
    assert [each.name for each in report.drifts] == ["w"]
    assert report.left_out == {kind: 2 * count for kind, count in counts.items()}
    assert not report.notes
    assert not report.damaged
    assert held(tmp_path / "rank_0.pt").keys() == {"w", *inside}
    if counts:
        assert f"left out: {2 * sum(counts.values())} objects that are no tensors" in str(report)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
        lambda: torch.ones(2, dtype=torch.complex64).conj(),
        lambda: torch.ones(3).untyped_storage(),
    ],
    ids=["quantised", "conjugate", "storage"],
)
def test_data_of_no_plain_tensor_is_not_ok(tmp_path: Path, make: Callable[[], Any]) -> None:
    for rank in range(2):
        put(tmp_path / f"rank_{rank}.pt", {"w": W, "x": make()})
    report = audit(tmp_path)
    assert not report.ok
    assert "1 storages are of no plain tensor" in report.notes[0]


class Evil:
    """Its pickle makes a folder when it is read."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("legacy", [False, True])
def test_nothing_of_a_file_runs(tmp_path: Path, legacy: bool) -> None:
    target = tmp_path / "made"
    for rank in range(2):
        put(tmp_path / f"rank_{rank}.pt", {"w": W, "x": Evil(str(target))}, legacy=legacy)
    assert audit(tmp_path).ok
    assert audit(tmp_path).left_out == {"mkdir": 2}
    assert not target.exists()


def edited(data: bytes, **records: bytes | None) -> bytes:
    """A zip archive with other records; of None none."""
    found = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(found, "w") as new:
        for each in old.namelist():
            key = each.partition("/")[2].replace("/", "_").replace(".", "_")
            if records.get(key, b"") is not None:
                new.writestr(each, records.get(key) or old.read(each))
    return found.getvalue()


def twice(data: bytes) -> bytes:
    found = io.BytesIO(data)
    with zipfile.ZipFile(found, "a") as new:
        name = next(each for each in new.namelist() if each.endswith("data/0"))
        with pytest.warns(UserWarning, match="Duplicate"):
            new.writestr(name, bytes(48))
    return found.getvalue()


def with_constants(data: bytes) -> bytes:
    """An archive with the record in which TorchScript has further tensors."""
    found = io.BytesIO(data)
    with zipfile.ZipFile(found, "a") as new:
        new.writestr("archive/constants.pkl", b"\x80\x02).")
    return found.getvalue()


FAULTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "is empty"),
    "text": (lambda _: b"hello", "is not a file of PyTorch"),
    "pickle": (lambda _: pickle.dumps({"w": 1}, 2), "is not a file of PyTorch"),
    "cut": (lambda data: data[: len(data) // 2], "is cut off or damaged"),
    "other zip": (lambda data: edited(data, data_pkl=None), "got no data.pkl"),
    "no data": (lambda data: edited(data, data_0=None), "lacks a storage, got no record of '0'"),
    "short data": (lambda data: edited(data, data_0=bytes(4)), "has a storage of another size, got 4 bytes"),
    "big endian": (lambda data: edited(data, byteorder=b"big"), "has another order of bytes"),
    "two records": (twice, "has two records of one name"),
    "TorchScript": (with_constants, "is an archive of TorchScript"),
    "bad pickle": (lambda data: edited(data, data_pkl=b"\x80\x02}q"), "its pickle has"),
}


@pytest.mark.parametrize(("edit", "match"), FAULTS.values(), ids=FAULTS)
def test_damaged_files(tmp_path: Path, edit: Callable[[bytes], bytes], match: str) -> None:
    path = put(tmp_path / "step_2/rank_0.pt", {"w": W})
    path.write_bytes(edit(path.read_bytes()))
    with pytest.raises(errors.CheckpointError, match=match) as caught:
        read_torch_file("audit", path)
    assert "\n" not in str(caught.value)
    for rank in range(3):
        put(tmp_path / f"step_1/rank_{rank}.pt", {"w": W + (rank == 1)})
        if rank:
            put(tmp_path / f"step_2/rank_{rank}.pt", {"w": W})
    report = audit(tmp_path)
    assert [each.step for each in report.drifts] == [1]
    assert report.damaged == (str(caught.value).removeprefix("audit: "),)


def test_a_file_from_before_zip_archives_that_is_cut_off(tmp_path: Path) -> None:
    path = put(tmp_path / "rank_0.pt", {"w": W}, legacy=True)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(errors.CheckpointError, match="is cut off, got"):
        audit(tmp_path)
