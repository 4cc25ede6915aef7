"""Audits of files that ranks of real jobs wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, io, ops
from popsr.__main__ import main
from popsr.bridge.audit import DeclaredGroups, audit, audit_log, log_hashes
from tests_py.support.helpers import np_dtype
from tests_py.support.unchecked import unchecked

torch = pytest.importorskip("torch")
numpy_files = pytest.importorskip("safetensors.numpy")

GROUPS = {"seed": "none", "*": "all"}


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_a_real_job_that_drifts_is_found(jobs: dict[str, Path], kind: str) -> None:
    report = audit(jobs["drift"] / kind, GROUPS)
    first = report.first
    assert first is not None
    # The first element is the reference's, read from the files by PyTorch.
    states = [torch.load(jobs["drift"] / f"pt/step_1/rank_{rank}.pt") for rank in range(2)]
    a, b = (state["1.weight"].view(torch.int16).numpy() for state in states)
    element = tuple(int(each[0]) for each in np.nonzero(a != b))
    assert (first.step, first.name, first.declared, first.found) == (1, "1.weight", "{0,1}", "{0}{1}")
    assert (first.ranks, first.element) == ((0, 1), element)
    assert first.values[0] == f"0x{a[element].view(np.uint16):04x} ({float(states[0]['1.weight'][element])})"
    assert report.steps == (0, 1, 2)
    assert not report.notes
    assert "step 1: '1.weight' is declared equal on {0,1} and is on {0}{1}" in str(report)
    good = audit(jobs["good"] / kind, GROUPS)
    assert good
    assert good.ok
    assert good.parameters == 6
    assert audit(jobs["good"] / kind).first.name == "seed"  # type: ignore[union-attr]


def test_hash_logs_of_a_real_job(jobs: dict[str, Path]) -> None:
    report = audit_log([jobs["drift"] / f"rank{rank}.jsonl" for rank in range(2)], GROUPS)
    assert report.first is not None
    assert (report.first.step, report.first.name, report.first.ranks) == (1, "1.weight", (0, 1))
    assert report.first.values[0].startswith("sha256:")
    assert audit_log(jobs["good"], GROUPS).ok


def test_the_command_line(jobs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = tmp_path / "groups.json"
    groups.write_text(json.dumps(GROUPS))
    yaml = tmp_path / "groups.yaml"
    yaml.write_text("seed: none\n'*': {stride: 1, size: 2}\n")
    pattern = str(jobs["good"] / "pt/step_{step}/rank_{rank}.pt")
    assert main(["audit", pattern, "--groups", str(groups)]) == 0
    assert main(["audit", str(jobs["drift"] / "pt"), "--groups", str(groups)]) == 1
    assert "first: step 1: '1.weight'" in capsys.readouterr().out
    logs = [str(jobs["good"] / f"rank{rank}.jsonl") for rank in range(2)]
    assert main(["audit", *logs, "--groups", str(groups)]) == 0
    assert main(["audit", str(tmp_path / "nothing")]) == 2
    assert main(["audit", pattern, "--groups", str(groups), "--ranks", "3"]) == 2
    pytest.importorskip("yaml")
    assert main(["audit", str(jobs["drift"]), "--groups", str(yaml)]) == 1


def save(folder: Path, states: list[dict[str, Any]], step: int = 0) -> Path:
    (folder / f"step{step}").mkdir(parents=True, exist_ok=True)
    for rank, state in enumerate(states):
        numpy_files.save_file(
            {name: np.asarray(each) for name, each in state.items()},
            folder / f"step{step}/rank{rank}.safetensors",
        )
    return folder


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "bool"])
@pytest.mark.parametrize("element", [0, 7, 12])
def test_one_bit_in_any_dtype(tmp_path: Path, name: str, element: int) -> None:
    data = np.zeros(13, np_dtype(name))
    other = data.copy()
    other.view(np.uint8)[element * data.itemsize] = 1
    path = save(tmp_path, [{"w": data}, {"w": data}, {"w": other}, {"w": other}])
    for declared, found, ranks in (("all", "{0,1}{2,3}", (0, 2)), ("{0,2}{1}{3}", "{0}{1}{2}{3}", (0, 2))):
        first = audit(path, declared).first
        assert first is not None
        assert (first.found, first.ranks, first.element) == (found, ranks, (element,))
        assert first.values[1].startswith(f"0x{1:0{2 * data.itemsize}x} (")
    assert audit(path, "{0,1}{2,3}").ok
    assert audit(path, {"w": {"stride": 1, "size": 2}}).ok
    assert not audit(path, {"w": {"stride": 2, "size": 2}}).ok


def test_the_last_byte_of_a_large_tensor(tmp_path: Path) -> None:
    data = np.zeros(9 << 20, np.uint8)
    other = data.copy()
    other[-1] = 3
    first = audit(save(tmp_path, [{"w": data}, {"w": other}])).first
    assert first is not None
    assert (first.element, first.values) == (((9 << 20) - 1,), ("0x00 (0)", "0x03 (3)"))


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    w = np.ones(2)
    save(tmp_path, [{"w": w, "b": w}, {"w": w}, {"w": w, "b": w}], 0)
    save(tmp_path, [{"w": w, "b": w}], 1)
    report = audit(tmp_path, {"w": "all", "b": "all"})
    assert not report
    assert not report.ok
    assert not report.drifts
    assert report.notes == (
        "step 0: rank 1 lacks 'b', which others of its group have",
        "step 1: no file of rank 1, 2",
    )
    assert audit(tmp_path, {"w": "all"}).notes == (
        "no groups are declared for 'b'",
        "step 1: no file of rank 1, 2",
    )


def test_a_pattern_of_no_name_is_said(tmp_path: Path) -> None:
    """The rank's own head would pass under ``*`` if its name were misspelt without a word."""
    path = save(tmp_path, [{"head": np.ones(2), "w": np.ones(2)}, {"head": np.zeros(2), "w": np.ones(2)}])
    assert audit(path, {"head": "none", "w": "all"}).ok
    report = audit(path, {"haed": "all", "w*": "all", "*": "none"})
    assert not report.drifts
    assert not report.ok
    assert report.notes == ("groups has 'haed', which no name is like, expected 'head'",)


def test_other_shapes_differ(tmp_path: Path) -> None:
    first = audit(save(tmp_path, [{"w": np.zeros(4)}, {"w": np.zeros((2, 2))}])).first
    assert first is not None
    assert (first.element, first.values) == (None, ("F64[4]", "F64[2, 2]")) or first.values[0].endswith("[4]")


def test_checkpoints_of_popsr_and_its_proof(tmp_path: Path) -> None:
    """The proof says that ``w`` differs: each replica adds its own data; ``v`` is equal."""
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.zeros(2, np.float32), name="w", retrieval_mode="all_replicas")
        v = popsr.variable(np.zeros(2, np.float32), name="v")
        ops.add_(w, ops.host_load(popsr.h2d_stream((2,), popsr.float32, "x")))
        ops.add_(v, popsr.constant(1.0))
    facts = popsr.analysis.analyze(ir)
    for rank in range(2):
        numpy_files.save_file(
            {"w": np.full(2, rank, np.float32), "v": np.ones(2, np.float32)},
            tmp_path / f"rank{rank}.safetensors",
        )
    assert audit(tmp_path, facts).ok
    numpy_files.save_file(
        {"w": np.zeros(2, np.float32), "v": np.zeros(2, np.float32)}, tmp_path / "rank1.safetensors"
    )
    assert [each.name for each in audit(tmp_path, facts).drifts] == ["v"]


def test_files_of_popsr(tmp_path: Path) -> None:
    for rank in range(2):
        ir = popsr.Ir()
        with ir.main_graph:
            ops.relu(popsr.variable(np.full(3, rank, np.float32), name="w"))
        io.save_safetensors(ir, tmp_path / f"rank{rank}.safetensors")
        io.save_torch(ir, tmp_path / f"model-{rank}.pt")
    for source in (tmp_path, tmp_path / "model-{rank}.pt"):
        first = audit(source).first
        assert first is not None
        assert (first.name, first.element, first.values) == (
            "w",
            (0,),
            ("0x00000000 (0.0)", "0x3f800000 (1.0)"),
        )


# Hashes


def test_hashes_of_arrays_of_all_kinds(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    data = np.arange(4, dtype=np.float32)
    states = [
        {"w": data},
        {"w": torch.from_numpy(data)},
        {"w": jax.numpy.asarray(data)},
        {"w": data.reshape(2, 2)},
    ]
    for rank, state in enumerate(states):
        log_hashes({"model": state, "step": 3}, tmp_path / f"{rank}.jsonl", step=7, rank=rank)
    first = audit_log(tmp_path).first
    assert first is not None
    assert (first.step, first.name, first.found, first.ranks) == (7, "model.w", "{0,1,2}{3}", (0, 3))
    half = np.arange(4).astype(np_dtype("bfloat16"))
    for rank, each in enumerate([half, torch.arange(4).to(torch.bfloat16)]):
        log_hashes({"w": each}, tmp_path / "half.log", step=0, rank=rank)
    assert audit_log(tmp_path / "half.log").ok


LINES = {
    "json": "{",
    "list": "[1]",
    "rank": '{"step": 0, "rank": -1, "name": "w", "hash": "a"}',
    "bool": '{"step": true, "rank": 1, "name": "w", "hash": "a"}',
    "name": '{"step": 0, "rank": 0, "name": 3, "hash": "a"}',
    "hash": '{"step": 0, "rank": 0, "name": "w"}',
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_wrong_lines(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.jsonl").write_text(f"\n{line}\n")
    with pytest.raises(
        errors.CheckpointError, match=r"^audit_log: .*has a wrong line 2, got .*expected an object of"
    ):
        audit_log(tmp_path)


def test_two_hashes_of_one_tensor(tmp_path: Path) -> None:
    for value in range(2):
        log_hashes({"w": np.full(2, value)}, tmp_path / "a.jsonl", step=0, rank=0)
    with pytest.raises(
        errors.CheckpointError, match="got two hashes of 'w' of rank 0 at step 0, expected one"
    ):
        audit_log(tmp_path)


# Faults

GROUP_FAULTS: dict[str, tuple[Any, type[Exception], str]] = {
    "type": (3, errors.ArgumentTypeError, "groups is neither a mapping nor a file"),
    "pattern": ({3: "all"}, errors.ArgumentTypeError, "groups has no pattern, got 3"),
    "word": ({"*": "some"}, errors.AttributeValueError, "not a group, got 'some' for '\\*', expected 'all'"),
    "key": ({"*": {"stride": 1, "sizes": 2}}, errors.AttributeValueError, "not a group"),
    "sets": (
        "{0,1}{1}",
        errors.ReplicaError,
        "sets do not cover the ranks once, got '{0,1}{1}', expected 0 to 1",
    ),
    "size": ({"*": {"size": 3}}, errors.ReplicaError, "wrong groups"),
    "file": ("nothing.json", errors.FileError, "cannot read 'nothing.json'"),
}


@pytest.mark.parametrize(("groups", "kind", "match"), GROUP_FAULTS.values(), ids=GROUP_FAULTS)
def test_wrong_groups(tmp_path: Path, groups: Any, kind: type[Exception], match: str) -> None:
    path = save(tmp_path, [{"w": np.zeros(2)}] * 2)
    with pytest.raises(kind, match=f"^audit: .*{match}" if kind is not errors.ReplicaError else None):
        unchecked(audit)(path, groups)
    with pytest.raises(kind):
        audit(path, unchecked(DeclaredGroups)(groups))


def test_wrong_files(tmp_path: Path) -> None:
    save(tmp_path, [{"w": np.zeros(2)}] * 2)
    with pytest.raises(errors.AttributeValueError, match="wrong pattern of files"):
        audit(tmp_path / "{step}.pt")
    with pytest.raises(errors.FileError, match="no files of ranks"):
        audit(tmp_path / "x{rank}.pt")
    rank1, copy = tmp_path / "step0/rank1.safetensors", tmp_path / "step0/rank0-copy.safetensors"
    for path, data, text in (
        (rank1, b"\x08" + bytes(20), "is not a safetensors file"),
        (
            rank1.with_suffix(".pt"),
            b"PK\x03\x04 nothing",
            "is cut off or damaged, got File is not a zip file",
        ),
        (
            copy,
            (tmp_path / "step0/rank0.safetensors").read_bytes(),
            "two files of rank 0 have one tensor, got 'w' t",
        ),
    ):
        rank1.unlink(missing_ok=True)
        path.write_bytes(data)
        report = audit(tmp_path)
        assert not report
        assert len(report.damaged) == 1
        assert text in report.damaged[0]
        path.unlink()
