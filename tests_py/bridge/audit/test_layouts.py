"""Names of files that packages write: which step and ranks they say, and what an audit takes for equal."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from popsr import errors
from popsr.__main__ import main
from popsr.bridge.audit import audit
from popsr.bridge.audit._layouts import LAYOUTS, name_facts
from popsr.bridge.audit._mesh import Mesh

torch = pytest.importorskip("torch")

# Paths as the packages write them, with the layout, the step and the coordinates that they say.
NAMES: dict[str, tuple[str, int | None, dict[str, int]]] = {
    "global_step10/zero_pp_rank_3_mp_rank_01_optim_states.pt": ("DeepSpeed ZeRO", 10, {"dp": 3, "tp": 1}),
    "global_step10/bf16_zero_pp_rank_12_mp_rank_00_optim_states.pt": (
        "DeepSpeed ZeRO",
        10,
        {"dp": 12, "tp": 0},
    ),
    "global_step10/zero_pp_rank_3_mp_rank_01_model_states.pt": ("DeepSpeed ZeRO-3", 10, {"dp": 3, "tp": 1}),
    "global_step10/mp_rank_01_model_states.pt": ("DeepSpeed", 10, {"tp": 1}),
    "global_step7/layer_03-model_01-model_states.pt": ("DeepSpeed pipeline", 7, {"tp": 1}),
    "global_step7/layer_0_expert_5_mp_rank_00_model_states.pt": ("DeepSpeed experts", 7, {"tp": 0}),
    "global_step7/expp_rank_2_mp_rank_00_optim_states.pt": ("DeepSpeed experts", 7, {"ep": 2, "tp": 0}),
    "iter_0000010/mp_rank_03/model_optim_rng.pt": ("Megatron", 10, {"tp": 3}),
    "iter_0000010/mp_rank_03_002/model_optim_rng.pt": ("Megatron", 10, {"tp": 3, "pp": 2}),
    "iter_0000010/mp_rank_03_002_001/distrib_optim.pt": ("Megatron", 10, {"tp": 3, "pp": 2, "ep": 1}),
    "mp_rank_01/megatron_gpt--val_loss=2.10-step=40-consumed_samples=80.0.ckpt": ("Megatron", 40, {"tp": 1}),
    "tp_rank_01_pp_rank_002/model--step=40.ckpt": ("NeMo", 40, {"tp": 1, "pp": 2}),
    "checkpoint-500/rng_state_1.pth": ("Trainer", 500, {"dp": 1}),
    "checkpoint-500/optimizer.pt": ("files", 500, {}),
    "checkpoint-500/pytorch_model_fsdp_0/.metadata": ("files", 500, {}),
    "checkpoint-500/pytorch_model_fsdp_rank1.bin": ("FSDP", 500, {"dp": 1}),
    "step_2/random_states_1.pkl": ("Accelerate", 2, {"dp": 1}),
    "lightning_logs/version_0/checkpoints/epoch=1-step=40.ckpt": ("files", 40, {}),
    "iter_0000010/.metadata": ("files", 10, {}),
    "step_10/rank_3.safetensors": ("ranks", 10, {"rank": 3}),
    "step_10/rank3/.metadata": ("ranks", 10, {"rank": 3}),
    "step-10/__3.metadata": ("ranks", 10, {"rank": 3}),
    "epoch_1/dp_2.pt": ("ranks", 1, {"rank": 2}),
    "step_10/tp1_dp2.pt": ("axes", 10, {"tp": 1, "dp": 2}),
    "step_10/dp_rank_2/tp_rank_1.pt": ("axes", 10, {"dp": 2, "tp": 1}),
    "job_tp2/step_1/rank_3.pt": ("ranks", 1, {"rank": 3}),
    "http2/rank_1.pt": ("ranks", None, {"rank": 1}),
    "worker1_dp0.pt": ("ranks", None, {"rank": 0}),
}


@pytest.mark.parametrize(("path", "expected"), NAMES.items(), ids=NAMES)
def test_names(path: str, expected: tuple[str, int | None, dict[str, int]]) -> None:
    found = name_facts(path)
    assert (found.layout.name, found.step, dict(found.place)) == expected


def test_each_layout_has_a_row() -> None:
    assert {each.name for each in LAYOUTS} <= {name for name, _, _ in NAMES.values()}


@pytest.mark.parametrize("along", ["dp", "tp", "dp,tp", "pp", "pp,dp,tp"])
def test_groups_along_axes(along: str) -> None:
    """The members are those of coordinates that are written out."""
    sizes = {"pp": 2, "dp": 3, "tp": 2}
    places = [{"pp": p, "dp": d, "tp": t} for p in range(2) for d in range(3) for t in range(2)]
    mesh = Mesh.of("audit", places, None)
    assert dict(mesh.sizes) == sizes
    assert [mesh.rank(each) for each in places] == list(range(12))
    groups = mesh.groups(frozenset(along.split(",")))
    for rank, place in enumerate(places):
        other = {axis: n for axis, n in place.items() if axis not in along.split(",")}
        expected = [i for i, each in enumerate(places) if {**each, **other} == each]
        assert sorted(groups.members(rank)) == expected
    assert groups.count == len({tuple(sorted(groups.members(rank))) for rank in range(12)})


W = torch.arange(6.0).reshape(2, 3)


def put(path: Path, state: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(dict(state), path)


def job_of_axes(folder: Path, bad: tuple[int, int, int] | None = None) -> Path:
    """Files of 3 data and 2 tensor ranks at steps 1 and 2; tensor ranks hold other shards, and one norm."""
    for step in (1, 2):
        for dp in range(3):
            for tp in range(2):
                shard = W + 10 * tp + step
                if bad is not None and (dp, tp) == bad[:2] and step >= bad[2]:
                    shard[1, 0] += 0.5
                put(folder / f"step_{step}/dp{dp}_tp{tp}.pt", {"shard": shard, "norm": W})
    return folder


def test_values_are_equal_along_the_data_axis(tmp_path: Path) -> None:
    assert audit(job_of_axes(tmp_path / "good")).ok
    report = audit(job_of_axes(tmp_path / "bad", (2, 1, 2)))
    (drift,) = report.drifts
    assert (drift.step, drift.name, drift.element) == (2, "shard", (1, 0))
    assert drift.places == ("dp 0, tp 1", "dp 2, tp 1")
    assert drift.found == "{0,2,4}{1,3}{5}"
    assert (drift.count, drift.elements, drift.largest) == (1, 6, 0.5)
    assert "ranks 1 and 5 (dp 0, tp 1; dp 2, tp 1) differ at element [1, 0]" in str(report)


def test_groups_by_axes(tmp_path: Path) -> None:
    path = job_of_axes(tmp_path)
    assert audit(path, {"norm": "dp,tp", "shard": "dp"}).ok
    assert [each.name for each in audit(path, "dp, tp").drifts] == ["shard", "shard"]
    assert [each.name for each in audit(path, "all").drifts] == ["shard", "shard"]
    # Of a job with one number for each rank it is that of its data.
    put(tmp_path / "flat/rank_0.pt", {"w": W})
    put(tmp_path / "flat/rank_1.pt", {"w": W + 1})
    assert not audit(tmp_path / "flat", "dp").ok
    assert audit(tmp_path / "flat", "tp").notes == (
        "nothing of ranks was compared, expected two ranks or more of a group that have a value",
    )


def test_ranks_of_axes_that_are_missing(tmp_path: Path) -> None:
    path = job_of_axes(tmp_path)
    assert audit(path, ranks=8).notes == ("step 1: no file of rank 6, 7", "step 2: no file of rank 6, 7")
    (path / "step_2/dp1_tp0.pt").unlink()
    assert audit(path).notes == ("step 2: no file of rank 2",)
    with pytest.raises(errors.AttributeValueError, match="expected a multiple of 2 for its data ranks"):
        audit(path, ranks=7)


def test_too_many_ranks_of_axes(tmp_path: Path) -> None:
    put(tmp_path / "dp100000_tp100000.pt", {"w": W})
    with pytest.raises(errors.CheckpointError, match="too many ranks, got 100001 x 100001"):
        audit(tmp_path)


def megatron(folder: Path, norm: float = 0.0) -> Path:
    """Files of two tensor ranks as Megatron writes them: one copy for all data ranks."""
    for tp in range(2):
        state = {
            "args": argparse.Namespace(tensor_model_parallel_size=2),
            "iteration": 10,
            "model": {"dense.weight": W + tp, "norm.weight": W + norm * tp},
            "rng_state": [{"np_rng_state": ("MT19937", [1, 2]), "torch_rng_state": torch.get_rng_state()}],
        }
        put(folder / f"iter_0000010/mp_rank_{tp:02d}/model_optim_rng.pt", state)
    return folder


def test_one_copy_is_refused_with_what_helps(tmp_path: Path) -> None:
    path = megatron(tmp_path / "good")
    with pytest.raises(
        errors.FileError, match=r"2 files of Megatron as 'model_optim_rng.pt', one copy.*--between"
    ):
        audit(path)
    groups = {"model.norm.*": "tp", "*": "none"}
    assert audit(path, groups).ok
    (drift,) = audit(megatron(tmp_path / "bad", 1.0), groups).drifts
    assert (drift.step, drift.name, drift.count) == (10, "model.norm.weight", 6)


def test_a_folder_of_zero_3(tmp_path: Path) -> None:
    """Buffers are equal on data ranks; shards of the optimiser and of frozen parameters are not taken for equal."""
    for dp in range(2):
        put(
            tmp_path / f"global_step5/zero_pp_rank_{dp}_mp_rank_00_model_states.pt",
            {"module": {"buffer": W + dp}, "frozen_param_fragments": {"f": W + dp}},
        )
        put(
            tmp_path / f"global_step5/zero_pp_rank_{dp}_mp_rank_00_optim_states.pt",
            {"optimizer_state_dict": {"fp32_flat_groups": [W + dp]}},
        )
    report = audit(tmp_path)
    assert [each.name for each in report.drifts] == ["module.buffer"]
    assert report.notes == (
        "2 files of DeepSpeed ZeRO as 'zero_pp_rank_0_mp_rank_00_optim_states.pt', shards, which differ, were not "
        "compared",
    )


def test_files_without_a_rank_are_said(tmp_path: Path) -> None:
    for rank in range(2):
        put(tmp_path / f"checkpoint-5/rank_{rank}.pt", {"w": W})
    put(tmp_path / "checkpoint-5/optimizer.pt", {"m": W})
    report = audit(tmp_path)
    assert not report.ok
    assert report.notes[0].startswith("1 file without a rank as 'optimizer.pt', one copy of what data ranks")


def test_one_rank_is_not_ok(tmp_path: Path) -> None:
    put(tmp_path / "rank_0.pt", {"w": W})
    assert audit(tmp_path).notes == (
        "nothing of ranks was compared, expected two ranks or more of a group that have a value",
    )


# A job that died while it saved


def test_damage_does_not_hide_a_drift(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in (1, 2, 3):
        for rank in range(4):
            w = W.clone()
            if rank == 3 and step >= 2:
                w[1, 1:] += torch.tensor([1.0, 3.0])
            put(tmp_path / f"step_{step}/rank_{rank}.pt", {"w": w, "v": W})
    cut = tmp_path / "step_3/rank_2.pt"
    cut.write_bytes(cut.read_bytes()[:300])
    (tmp_path / "step_3/rank_1.pt").unlink()
    report = audit(tmp_path)
    assert [(each.step, each.name, each.ranks) for each in report.drifts] == [
        (2, "w", (0, 3)),
        (3, "w", (0, 3)),
    ]
    assert [(each.count, each.elements, each.largest) for each in report.drifts] == [(2, 6, 3.0)] * 2
    assert report.notes == ("step 3: no file of rank 1",)
    assert len(report.damaged) == 1
    assert "step_3/rank_2.pt' is cut off or damaged" in report.damaged[0]
    assert report.steps == (1, 2, 3)
    assert main(["audit", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert "first: step 2: 'w'" in captured.out
    assert "by at most 3" in captured.out
    assert "is cut off or damaged" in captured.err
    cut.unlink()
    assert main(["audit", str(tmp_path)]) == 1


FAR: dict[str, tuple[Any, Any, float | None]] = {
    "float32": (torch.tensor([1.0, 2.0]), torch.tensor([1.5, 5.0]), 3.0),
    "bfloat16": (torch.tensor([1.0, 2.0]).bfloat16(), torch.tensor([1.5, 5.0]).bfloat16(), 3.0),
    "zeros": (torch.tensor([0.0, 2.0]), torch.tensor([-0.0, 2.0]), 0.0),
    "infinity": (torch.tensor([0.0]), torch.tensor([float("inf")]), float("inf")),
    "int64": (torch.tensor([2**62]), torch.tensor([-(2**62)]), float(2**63)),
    "bool": (torch.tensor([True]), torch.tensor([False]), 1.0),
    "uint8": (torch.tensor([0], dtype=torch.uint8), torch.tensor([255], dtype=torch.uint8), 255.0),
    "complex": (torch.tensor([3 + 4j]), torch.tensor([0j]), None),
    "float8": (torch.tensor([1.0]).to(torch.float8_e4m3fn), torch.tensor([3.0]).to(torch.float8_e4m3fn), 2.0),
}


@pytest.mark.parametrize(("a", "b", "largest"), FAR.values(), ids=FAR)
def test_the_largest_difference(tmp_path: Path, a: Any, b: Any, largest: float | None) -> None:
    put(tmp_path / "rank_0.pt", {"w": a})
    put(tmp_path / "rank_1.pt", {"w": b})
    (drift,) = audit(tmp_path).drifts
    assert drift.largest == largest
    assert drift.count == int(
        (a.reshape(-1, 1).view(torch.uint8) != b.reshape(-1, 1).view(torch.uint8)).any(1).sum()
    )


def test_the_difference_from_a_nan(tmp_path: Path) -> None:
    for rank, value in enumerate((1.0, float("nan"), 5.0)):
        put(tmp_path / f"rank_{rank}.pt", {"w": torch.tensor([value, 1.0])})
    (drift,) = audit(tmp_path).drifts
    assert drift.count == 1
    assert drift.largest != drift.largest
    assert "by at most nan" in str(drift)


def test_a_distributed_checkpoint_without_metadata_is_damaged(tmp_path: Path) -> None:
    """The metadata are written last: a job that ended before has files of data alone."""
    for rank in range(2):
        put(tmp_path / f"step_1/rank_{rank}.pt", {"w": W})
        put(tmp_path / f"step_2/rank_{rank}/__0_0.distcp", {"w": W})
        put(tmp_path / f"step_2/rank_{rank}/__0_1.distcp", {"w": W})
    report = audit(tmp_path)
    assert report.steps == (1, 2)
    assert len(report.damaged) == 2
    assert "step_2/rank_0' has no .metadata, which is written last, got '__0_0.distcp'" in report.damaged[0]
    assert not report.ok
