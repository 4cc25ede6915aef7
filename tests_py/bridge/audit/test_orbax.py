"""Checkpoints of Orbax: bits as they were saved, damage, and what asks for much."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popsr import errors
from popsr.__main__ import main
from popsr.bridge.audit import _orbax_reader, audit, between
from popsr.bridge.audit._readers import hold
from tests_py.bridge.audit.orbax_bombs import ROWS
from tests_py.support.helpers import run_python
from tests_py.support.limits import check_row, measured_rows

pytest.importorskip("tensorstore")
pytest.importorskip("orbax.checkpoint")

FORMS = ("standard", "database", "database3", "folders", "folders3")
DRIFT = (2, "params.cut", (5, 1))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("orbax")
    job = Path(__file__).with_name("orbax_job.py")
    run_python(
        f"import runpy; runpy.run_path({str(job)!r})['main'](__import__('pathlib').Path({str(folder)!r}))"
    )
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_bits_are_those_that_were_saved(saved: Path, form: str) -> None:
    expected = json.loads((saved / "arrays").read_text())
    found = hold("audit", saved / form / "_METADATA")
    assert {
        name: [each.kind, list(each.shape), each.read().tobytes().hex()]
        for name, each in found.tensors.items()
    } == expected
    assert found.left_out == {"None": 1, "dict": 1} | ({"text": 1} if form != "standard" else {})


def test_forms_are_compared_with_each_other(saved: Path) -> None:
    for form in FORMS[1:]:
        report = between(saved / "database", saved / form)
        assert report.ok
        assert report.left_out == {"None": 2, "dict": 2, "text": 2}


def check_drift(report: Any, places: tuple[str, str] | tuple[()] = ()) -> None:
    (drift,) = report.drifts
    assert (drift.step, drift.name, drift.element) == DRIFT
    bits = [int(each.partition(" ")[0], 16) for each in drift.values]
    assert bits[0] ^ bits[1] == 1 << 22
    assert drift.count == 1


def test_one_bit(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for whole in (False, True):
        report = between(saved / "a", saved / "b", whole=whole)
        assert report.steps == (1, 2)
        assert not report.notes
        check_drift(report)
        assert between(saved / "a", saved / "a", whole=whole).ok
    assert main(["audit", "--between", str(saved / "a"), str(saved / "b")]) == 1
    assert "step 2: 'params.cut' differs" in capsys.readouterr().out
    assert main(["audit", "--between", str(saved / "a"), str(saved / "a")]) == 0


def test_jobs_by_a_pattern(saved: Path, tmp_path: Path) -> None:
    for rank, job in enumerate("aab"):
        shutil.copytree(saved / job, tmp_path / f"job{rank}")
    report = audit(tmp_path / "job{rank}/{step}")
    assert report.first is not None
    assert report.first.found == "{0,1}{2}"
    check_drift(report)
    assert report.first.ranks == (0, 2)
    check_drift(audit(tmp_path / "job{rank}/{step}/default"))
    (tmp_path / "ranks").mkdir()
    for rank in range(3):
        (tmp_path / f"job{rank}").rename(tmp_path / f"ranks/rank_{rank}")
    check_drift(audit(tmp_path / "ranks"))


def test_one_copy_tells_nothing(saved: Path) -> None:
    for path in (saved / "a", saved / "standard"):
        with pytest.raises(
            errors.FileError, match=r"got one of all ranks by Orbax, which keeps one copy of what"
        ):
            audit(path)


def test_items_of_a_step(saved: Path) -> None:
    report = between(saved / "items", saved / "items", whole=True)
    assert report.ok
    assert report.steps == (10,)
    assert report.parameters == 2
    tensors = hold("audit", saved / "items/10/model/_METADATA").tensors
    assert tensors["model.w"].read().view(np.float64).tolist() == [1, 1, 1]


def test_few_processes_at_a_time(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_orbax_reader, "_MOST", 1)
    check_drift(between(saved / "a", saved / "b"))
    gc.collect()
    assert not any(each._process for each in _orbax_reader.Reader._live.values())


# Damage: of step 1 of a job that drifts at step 2, or of a folder of one form.


def largest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda each: each.stat().st_size)


def cut(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])


def delete_key(folder: Path, name: str) -> None:
    import tensorstore

    spec = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{folder}/"}}
    store = tensorstore.KvStore.open(spec).result()
    assert name.encode() in store.list().result()
    store.delete_range(tensorstore.KvStore.KeyRange(name, f"{name}\0")).result()


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def leave_out(folder: Path) -> None:
    """Delete a chunk of a checkpoint that does not say that zeros are written."""
    change(folder / "_METADATA", store_array_data_equal_to_fill_value=False)
    (folder / "params.layers.0/0").unlink()


Damage = Callable[[Path], object]
# Harm to a folder, and words of the finding.
BOTH: dict[str, tuple[Damage, str]] = {
    "no metadata": (lambda f: (f / "_METADATA").unlink(), "has no _METADATA"),
    "metadata cut off": (lambda f: cut(f / "_METADATA", 300), "has JSONDecodeError"),
    "metadata of another kind": (lambda f: (f / "_METADATA").write_text("[]"), "has wrong metadata"),
    "metadata without keys": (
        lambda f: (f / "_METADATA").write_text('{"tree_metadata": {"a": {}}}'),
        "has a wrong entry in its tree",
    ),
    "another array": (
        lambda f: (f / "_METADATA").write_text((f / "_METADATA").read_text().replace('"mask"', '"gone"')),
        "lacks 'gone' or it is damaged|lacks \"gone\" or it is damaged",
    ),
    "FIFO": (lambda f: os.mkfifo(f / "x"), "got a FIFO, expected a file"),
    "link": (lambda f: (f / "x").symlink_to("/"), "leads out of its folder"),
    "old version": (lambda f: (f / "checkpoint").write_bytes(b"x"), "is of an old version of Orbax"),
}
DATABASE: dict[str, tuple[Damage, str]] = {
    "no manifest": (lambda f: (f / "manifest.ocdbt").unlink(), "has no manifest.ocdbt"),
    "manifest cut off": (lambda f: cut(f / "manifest.ocdbt", 60), "lacks"),
    "empty manifest": (lambda f: cut(f / "manifest.ocdbt", 0), "lacks"),
    "no nodes": (lambda f: shutil.rmtree(f / "d"), "lacks"),
    "no data": (lambda f: largest(f, "ocdbt.process_0/d/*").unlink(), "large"),
    "data cut off": (lambda f: cut(largest(f, "ocdbt.process_0/d/*"), 900), "large"),
    "no chunk": (lambda f: delete_key(f, "large/0"), "large.*missing"),
}
FOLDERS: dict[str, tuple[Damage, str]] = {
    "no chunk": (lambda f: (f / "large/0").unlink(), "large.*missing"),
    "no chunk of zeros": (lambda f: (f / "params.layers.0/0").unlink(), r"layers\.0.*missing"),
    "no chunk of a cut array": (
        lambda f: (f / "params.cut/1.1").unlink(),
        r"params.cut.*at \[4, 3\].*missing",
    ),
    "chunk cut off": (lambda f: cut(f / "large/0", 900), "large"),
    "empty chunk": (lambda f: cut(f / "large/0", 0), "large"),
    "no array": (lambda f: shutil.rmtree(f / "mask"), "lacks"),
    "array's metadata cut off": (lambda f: cut(f / "mask/.zarray", 40), "lacks"),
    "another dtype": (
        lambda f: change(f / "mask/.zarray", dtype="|S3"),
        "damaged|lacks|not an array of numbers",
    ),
    "zeros left out": (
        leave_out,
        "zeros that its writer left out, which cannot be told apart",
    ),
}
FOLDERS3: dict[str, tuple[Damage, str]] = {
    "no chunk": (lambda f: (f / "large/c/0").unlink(), "large.*missing"),
    "chunk cut off": (lambda f: cut(f / "large/c/0", 900), "large"),
    "no array": (lambda f: (f / "mask/zarr.json").unlink(), "lacks"),
}
DAMAGES = [
    (form, what, *each)
    for form, rows in (
        ("database", BOTH | DATABASE),
        ("database3", DATABASE | {"no chunk": (lambda f: delete_key(f, "large/c/0"), "large.*missing")}),
        ("folders", FOLDERS),
        ("folders3", FOLDERS3),
    )
    for what, each in rows.items()
]


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("form", "what", "harm", "match"), DAMAGES, ids=[f"{each[0]}-{each[1]}" for each in DAMAGES]
)
def test_damage_is_listed(
    saved: Path, tmp_path: Path, form: str, what: str, harm: Damage, match: str
) -> None:
    for job in ("a", "b"):
        shutil.copytree(saved / job / "2", tmp_path / job / "1")
        shutil.copytree(saved / form, tmp_path / job / "2")
    harm(tmp_path / "b/2")
    report = between(tmp_path / "a", tmp_path / "b")
    assert not report.ok
    (drift,) = report.drifts
    assert (drift.step, drift.name) == (1, "params.cut")
    if what == "no metadata":  # by files of equal names there is a lone one of each job
        assert report.notes
        report = between(tmp_path / "a", tmp_path / "b", whole=True)
        assert len(report.drifts) == 1
    assert report.damaged
    assert any(re.search(match, each) for each in report.damaged), report.damaged
    assert all(len(each) <= 700 and "\n" not in each for each in report.damaged)


def test_saves_that_did_not_finish(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "a", tmp_path / "a")
    (tmp_path / "a/2").rename(tmp_path / "a/2.orbax-checkpoint-tmp-3")
    (tmp_path / "a/3").mkdir()
    shutil.copy(tmp_path / "a/1/_CHECKPOINT_METADATA", tmp_path / "a/3")
    report = between(tmp_path / "a", tmp_path / "a")
    assert not report.drifts
    texts = sorted(each.partition("' ")[2] for each in report.damaged)
    assert len(texts) == 2
    assert texts[0].startswith("has no _METADATA, got '_CHECKPOINT_METADATA'")
    assert texts[1] == "is a save by Orbax that did not finish"


def test_arrays_of_no_elements(saved: Path, tmp_path: Path) -> None:
    """Orbax refuses to save them, other writers do not."""
    shutil.copytree(saved / "folders", tmp_path / "x")
    change(tmp_path / "x/mask/.zarray", shape=[0])
    found = hold("audit", tmp_path / "x/_METADATA").tensors["mask"]
    assert (found.shape, found.nbytes, len(found.read())) == ((0,), 0, 0)


def test_tensorstore_is_needed(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        errors.MissingPackageError,
        match=r"^audit: tensorstore is not installed, expected `pip install 'tensorstore>=",
    ):
        between(saved / "a", saved / "b")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return measured_rows(
        "tests_py.bridge.audit.orbax_bombs", "popsr.bridge.audit", tmp_path_factory.mktemp("bombs")
    )


@pytest.mark.parametrize("name", ROWS)
def test_memory_and_time_are_bounded(name: str, measured: dict[str, Any]) -> None:
    check_row(ROWS[name], measured[name])
