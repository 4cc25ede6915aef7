"""Two jobs compared: file by file, and assembled of whatever shards they wrote."""

from __future__ import annotations

import collections
import enum
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from popsr import errors
from popsr.__main__ import main
from popsr.bridge.audit import audit, between
from popsr.bridge.audit._collected import Collected
from popsr.bridge.audit._whole import assemble
from tests_py import ROOT
from tests_py.support.unchecked import unchecked

torch = pytest.importorskip("torch")

State = dict[str, Any]
W = torch.arange(6.0).reshape(2, 3)


def put(path: Path, state: State) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)
    return path


# Shards of ZeRO, cut here as DeepSpeed documents it


class ZeroStageEnum(enum.IntEnum):
    """DeepSpeed's own class of stages is such a one."""

    gradients = 2


GROUPS = [{"a.weight": (3, 5), "a.bias": (3,)}, {"norm": (7,), "scalar": ()}]


def parameters(seed: int = 0) -> State:
    made = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=made) for group in GROUPS for name, shape in group.items()}


def zero_12(folder: Path, ranks: int, whole: dict[str, State], *, stage: Any = 2, bf16: bool = False) -> Path:
    """Each group is one vector, filled up to two elements of each rank, and cut into equal parts."""
    shapes = [collections.OrderedDict((n, torch.Size(s)) for n, s in g.items()) for g in GROUPS]
    module = {name: each.bfloat16() for name, each in whole["fp32"].items()}
    put(
        folder / "global_step5/mp_rank_00_model_states.pt",
        {"module": module, "param_shapes": shapes, "dp_world_size": ranks, "ds_version": "0.16"},
    )

    def flat(kind: str, group: int) -> list[Any]:
        vector = torch.cat([whole[kind][name].reshape(-1) for name in GROUPS[group]])
        vector = torch.cat([vector, torch.zeros(-len(vector) % (2 * ranks))])
        return [each.clone() for each in vector.chunk(ranks)]

    parts = {kind: [flat(kind, group) for group in range(2)] for kind in ("fp32", "exp_avg", "exp_avg_sq")}
    for rank in range(ranks):
        state = {
            group: {"step": torch.tensor(5.0)}
            | {kind: parts[kind][group][rank] for kind in ("exp_avg", "exp_avg_sq")}
            for group in range(2)
        }
        inner = {
            "zero_stage": stage,
            "partition_count": [ranks, ranks],
            "loss_scaler": ZeroStageEnum.gradients,
            "base_optimizer_state": {"state": state, "param_groups": [{"lr": 0.1}]},
            "single_partition_of_fp32_groups": [parts["fp32"][group][rank] for group in range(2)],
        }
        name = f"{'bf16_' if bf16 else ''}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        put(folder / "global_step5" / name, {"optimizer_state_dict": inner, "ds_version": "0.16"})
    return folder


def zero_3(folder: Path, ranks: int, whole: dict[str, State], sub_groups: int = 2) -> Path:
    """Each parameter is cut for itself; a rank's parts of all lie behind each other, in one or several vectors."""
    shapes = [collections.OrderedDict((n, torch.Size(s)) for g in GROUPS for n, s in g.items())]

    def flat(kind: str, rank: int) -> list[Any]:
        mine = []
        for each in whole[kind].values():
            vector = each.reshape(-1)
            vector = torch.cat([vector, torch.zeros(-len(vector) % ranks)])
            mine.append(vector.chunk(ranks)[rank].clone())
        return [torch.cat(mine[:2]), torch.cat(mine[2:])] if sub_groups == 2 else [torch.cat(mine)]

    for rank in range(ranks):
        module = {name: torch.zeros(0) for name in whole["fp32"]}
        put(
            folder / f"global_step5/zero_pp_rank_{rank}_mp_rank_00_model_states.pt",
            {"module": module, "param_shapes": shapes},
        )
        moments = {kind: flat(kind, rank) for kind in ("exp_avg", "exp_avg_sq")}
        state = {
            i: {"step": 5} | {kind: each[i] for kind, each in moments.items()} for i in range(sub_groups)
        }
        inner = {
            "zero_stage": 3,
            "partition_count": ranks,
            "optimizer_state_dict": {"state": state},
            "fp32_flat_groups": flat("fp32", rank),
        }
        put(
            folder / f"global_step5/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt",
            {"optimizer_state_dict": inner},
        )
    return folder


WHOLE = {"fp32": parameters(0), "exp_avg": parameters(1), "exp_avg_sq": parameters(2)}


def joined(folder: Path) -> State:
    """The assembled state, as tensors' bytes by name."""
    collected = Collected()
    files = sorted(each for each in folder.rglob("*.pt"))
    found = assemble("audit", files, lambda path: collected.read("", path), collected.damage)
    return {name: (each.shape, each.read().tobytes()) for name, each in found.tensors.items()}


MAKERS: dict[str, Callable[[Path, int, dict[str, State]], Path]] = {
    "stages 1 and 2": zero_12,
    "stage 1": lambda *args: zero_12(*args, stage=1),
    "stage of an enumeration": lambda *args: zero_12(*args, stage=ZeroStageEnum.gradients),
    "bf16": lambda *args: zero_12(*args, bf16=True),
    "stage 3": zero_3,
    "stage 3, one vector": lambda folder, ranks, whole: zero_3(folder, ranks, whole, sub_groups=1),
}


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", MAKERS)
def test_shards_of_zero_are_joined(tmp_path: Path, kind: str, ranks: int) -> None:
    found = joined(MAKERS[kind](tmp_path, ranks, WHOLE))
    expected = {
        f"{which}.{name}": (tuple(each.shape), each.numpy().tobytes())
        for which, state in WHOLE.items()
        for name, each in state.items()
    }
    assert {name: each for name, each in found.items() if name in expected} == expected


@pytest.mark.parametrize("kind", MAKERS)
def test_jobs_on_other_numbers_of_data_ranks(tmp_path: Path, kind: str) -> None:
    make = MAKERS[kind]
    a, b = make(tmp_path / "a", 2, WHOLE), make(tmp_path / "b", 3, WHOLE)
    assert not between(a, b).ok
    report = between(a, b, whole=True)
    assert report.ok, str(report)
    assert report.jobs == (repr(str(a)), repr(str(b)))
    changed = WHOLE | {"exp_avg": {n: e.clone() for n, e in WHOLE["exp_avg"].items()}}
    changed["exp_avg"]["a.weight"][2, 3] += 1
    (drift,) = between(a, make(tmp_path / "c", 3, changed), whole=True).drifts
    assert (drift.step, drift.name, drift.element) == (5, "exp_avg.a.weight", (2, 3))
    assert (drift.count, drift.elements) == (1, 15)
    # Replicas of a job, of which each has shards of its own.
    for i, state in enumerate((WHOLE, WHOLE, changed)):
        make(tmp_path / f"jobs/run{i}", 2 + i, state)
    (drift,) = audit(str(tmp_path / "jobs/run{rank}"), whole=True).drifts
    assert (drift.name, drift.found) == ("exp_avg.a.weight", "{0,1}{2}")


def load_edit_save(path: Path, edit: Callable[[State], object]) -> None:
    state = torch.load(path, weights_only=False)
    edit(state)
    torch.save(state, path)


OPTIM, MODEL = "zero_pp_rank_1_mp_rank_00_optim_states.pt", "mp_rank_00_model_states.pt"
ZERO_FAULTS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "no model": (MODEL, Path.unlink, "has shards without the states of the model"),
    "no shard": (OPTIM, Path.unlink, "lacks shards, got 1 of data ranks, expected 2"),
    "cut": (OPTIM, lambda path: path.write_bytes(path.read_bytes()[:400]), "is cut off or damaged"),
    "no shapes": (
        MODEL,
        lambda p: load_edit_save(p, lambda s: s.pop("param_shapes")),
        "does not say the shapes",
    ),
    "wrong shape": (
        MODEL,
        lambda p: load_edit_save(p, lambda s: s["param_shapes"][0].update({"a.bias": torch.Size([30])})),
        "has shards of another length, got 20 elements of fp32, expected 45",
    ),
    "huge shape": (
        MODEL,
        lambda p: load_edit_save(p, lambda s: s["param_shapes"][0].update({"a.bias": (1 << 61,) * 9})),
        "has a tensor of absurd size",
    ),
    "wrong name": (
        MODEL,
        lambda p: load_edit_save(p, lambda s: s["param_shapes"][0].update({"a\nb": (0,)})),
        "whose name has control characters",
    ),
    "text as a shape": (
        MODEL,
        lambda p: load_edit_save(p, lambda s: s["param_shapes"][0].update({"a.bias": "x"})),
        "has a wrong shape of a parameter",
    ),
    "two of one name": (
        MODEL,
        lambda p: load_edit_save(p, lambda s: s.update(param_shapes=[{"w": (18,)}, {"w": (8,)}])),
        "has two shapes of one name, got 'fp32.w' twice",
    ),
    "no vector": (
        OPTIM,
        lambda p: load_edit_save(
            p, lambda s: s["optimizer_state_dict"].pop("single_partition_of_fp32_groups")
        ),
        "lacks the vector",
    ),
}


@pytest.mark.parametrize("name", ZERO_FAULTS)
def test_shards_that_do_not_belong_together(tmp_path: Path, name: str) -> None:
    file, edit, match = ZERO_FAULTS[name]
    a, b = zero_12(tmp_path / "a", 2, WHOLE), zero_12(tmp_path / "b", 2, WHOLE)
    for job in (a, b):  # an earlier drift is told all the same
        put(job / "global_step2/mp_rank_00_model_states.pt", {"module": {"w": W + (job == b)}})
    edit(b / "global_step5" / file)
    report = between(a, b, whole=True)
    assert match in report.damaged[0]
    assert [(each.step, each.name) for each in report.drifts] == [(2, "module.w")]
    assert main(["audit", "--between", str(a), str(b), "--whole"]) == 2


def test_a_stage_that_is_not_said(tmp_path: Path) -> None:
    a = zero_12(tmp_path / "a", 2, WHOLE, stage="x")
    assert "does not say its stage of ZeRO" in between(a, a, whole=True).damaged[0]


def test_states_that_are_cut_otherwise_are_refused(tmp_path: Path) -> None:
    for ranks, job in ((1, "one"), (2, "two"), (2, "other")):
        for rank in range(ranks):
            put(tmp_path / f"{job}/iter_0000003/mp_rank_{rank:02d}/model_optim_rng.pt", {"w": W + rank})
    assert between(tmp_path / "two", tmp_path / "other", whole=True).ok
    assert between(tmp_path / "two", tmp_path / "other").ok
    with pytest.raises(
        errors.UnsupportedError, match=r"got 'one file' and 'tp0 tp1', .*on which axis tensors are cut"
    ):
        between(tmp_path / "one", tmp_path / "two", whole=True)


# Files of equal names


def test_jobs_file_by_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for job in (a, b):
        for step in (1, 2, 3):
            for rank in range(2):
                is_bad = job == b and step >= 2 and rank == 1
                put(job / f"step_{step}/rank_{rank}.pt", {"w": W + 2 * is_bad, "n": 3})
    report = between(a, b)
    assert [(each.step, each.name, each.count, each.largest) for each in report.drifts] == [
        (2, "w", 6, 2.0),
        (3, "w", 6, 2.0),
    ]
    assert report.left_out == {"int": 12}
    assert (
        f"step 2: 'w' differs between '{a}/step_2/rank_1.pt' and '{b}/step_2/rank_1.pt' at element [0, 0]"
        in str(report)
    )
    (b / "step_1/rank_0.pt").unlink()
    put(b / "step_3/rank_0.pt", {"v": W})
    (b / "step_3/rank_1.pt").write_bytes(b"x")
    report = between(a, b)
    assert [each.step for each in report.drifts] == [2]
    assert [each.partition(" only in ")[0] for each in report.notes] == [
        "1 files",
        "'step_3/rank_0.pt': 1 tensors",
        "'step_3/rank_0.pt': 1 tensors",
    ]
    assert "step_3/rank_1.pt' is not a file of PyTorch" in report.damaged[0]
    assert main(["audit", "--between", str(a), str(a)]) == 0
    assert main(["audit", "--between", str(a), str(b)]) == 2
    page = tmp_path / "page.html"
    capsys.readouterr()
    assert main(["audit", "--json", "--between", str(a), str(b), "--html", str(page)]) == 2
    found = json.loads(capsys.readouterr().out)
    schema = json.loads((ROOT / "docs/_static/findings.schema.json").read_text())
    pytest.importorskip("jsonschema").validate(found, schema)
    assert found["jobs"] == list(report.jobs)
    assert found["drifts"][0]["largest"] == 2.0
    assert found["damaged"] == list(report.damaged)
    assert "differs between" in page.read_text()


def test_two_files(tmp_path: Path) -> None:
    a, b = put(tmp_path / "a.ckpt", {"w": W}), put(tmp_path / "b.pt", {"w": W})
    assert between(a, b).ok
    assert between(a, b, whole=True).ok
    put(b, {"v": W})
    assert between(a, b).notes[-1] == "nothing was compared, expected names of tensors that are in both"


def test_checkpoints_of_all_ranks(jobs: dict[str, Path], tmp_path: Path) -> None:
    """A folder of torch.distributed.checkpoint is whole, whatever the number of ranks that wrote it."""
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    a, b = jobs["good"] / "shared", jobs["drift"] / "shared"
    assert between(a, a).ok
    # Rank 0 of both writes what ranks have in common: rank 1 drifts in one.
    names = {each.name for each in between(a, b).drifts}
    state = {name: torch.zeros(shape) for name, shape in (("shard", (5, 2)),)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is no job
        dcp.load(state, checkpoint_id=a / "step_1", no_dist=True)
        dcp.save(state, checkpoint_id=tmp_path / "alone/step_1", no_dist=True)
    report = between(a, tmp_path / "alone")
    assert not report.drifts
    assert report.parameters == 1
    assert "shard" not in names


FAULTS: dict[str, tuple[Callable[[Path], Any], type[Exception], str]] = {
    "nothing": (lambda p: between(p / "x", p / "x"), errors.FileError, "got no folder"),
    "no checkpoints": (lambda p: between(p / "empty", p / "empty"), errors.FileError, "no checkpoints in"),
    "names": (lambda p: between(p / "a", p / "b"), errors.FileError, "no file has a name in both"),
    "steps": (lambda p: between(p / "a", p / "b", whole=True), errors.FileError, "no step is in both"),
    "whole": (lambda p: unchecked(between)(p / "a", p / "b", whole=3), errors.ArgumentTypeError, "whole"),
    "one job": (lambda p: audit(p / "a", whole=True), errors.AttributeValueError, "a pattern with {rank}"),
}


@pytest.mark.parametrize(("call", "kind", "match"), FAULTS.values(), ids=FAULTS)
def test_faults(tmp_path: Path, call: Callable[[Path], Any], kind: type[Exception], match: str) -> None:
    (tmp_path / "empty").mkdir()
    put(tmp_path / "a/step_1/x.pt", {"w": W})
    put(tmp_path / "b/step_2/y.pt", {"w": W})
    with pytest.raises(kind, match=match):
        call(tmp_path)


COMMANDS: dict[str, list[str]] = {
    "nothing": [],
    "source": ["a", "--between", "a", "a"],
    "groups": ["--groups", "all", "--between", "a", "a"],
    "whole": ["a", "--whole"],
    "page": ["--between", "a", "a", "--html", "nowhere/page.html"],
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_wrong_commands(tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a/x.pt", {"w": W})
    monkeypatch.chdir(tmp_path)
    assert main(["audit", *arguments]) == 2
