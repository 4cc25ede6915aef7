"""Jobs of four gloo ranks with a guard: what it says of each fault, on all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests_py.bridge.torch import gloo  # isort: skip
from tests_py.guard import jobs  # isort: skip


def on_all(job: str, *args: Any) -> Any:
    """The one result of all ranks."""
    first, *others = gloo.run(4, jobs.caught, job, *args)
    assert others == [first] * 3
    return first


# A job, its arguments; then step, name, ranks that agree, the two ranks, element, and how many differ.
FOUND = [
    ("flipped", ("parameter", 2, 11, 3), 4, "outer.weight", "{0,1,3}{2}", (0, 2), (0, 11), 1),
    ("flipped", ("buffer", 3, 14, 0), 4, "scale", "{0,1,2}{3}", (0, 3), (2, 4), 1),
    ("flipped", ("state", 1, 5, 31), 4, "outer.weight", "{0,2,3}{1}", (0, 1), (0, 5), 1),
    ("nan_payload", (), 0, "scale", "{0,2,3}{1}", (0, 1), (1, 2), 1),
    ("other_rate", (), 0, "optimizer.group0.lr", "{0,1,2}{3}", (0, 3), (), 1),
    ("gradients_and_generators", (True,), 0, "rng.cpu", "{0}{1}{2}{3}", (0, 1), (0,), None),
    ("declared", (None,), 0, "scale", "{0,1}{2,3}", (0, 2), (0, 0), 15),
    ("declared", ({"scale": [[0, 1], [2, 3]], "*": "all"}, 3), 0, "scale", "{0,1}{2}{3}", (2, 3), (2, 4), 1),
    ("on_mesh_axes", (), 0, "scale", "{0,2}{1}{3}", (1, 3), (0, 0), 2),
    ("sharded", (True,), 3, "2.weight", "{0,2}{1}{3}", (1, 3), (4, 1), 1),
    ("tensor_parallel", ("sharded",), 2, "0.weight", "{0,2}{1}{3}", (1, 3), (8, 3), 1),
    ("tensor_parallel", ("replicated",), 2, "2.bias", "{0,2,3}{1}", (0, 1), (3,), 1),
]


@pytest.mark.parametrize("row", FOUND, ids=lambda row: f"{row[0]} {row[1]}")
def test_faults_are_found_with_their_place(row: Any) -> None:
    job, args, step, name, found, ranks, element, count = row
    kind, text, drift = on_all(job, *args)
    assert kind == "DriftError"
    assert (drift["step"], drift["name"], drift["found"], drift["ranks"]) == (step, name, found, ranks)
    assert drift["element"] == element
    assert count is None or drift["count"] == count
    a, b = drift["values"]
    assert a.startswith("0x")
    assert a.split()[0] != b.split()[0]
    assert f"ranks {ranks[0]} and {ranks[1]}" in text
    assert f"at element {list(element)}" in text


def test_bit_patterns_and_words() -> None:
    _, text, drift = on_all("nan_payload")
    assert drift["values"] == ("0x7fc00000 (nan)", "0x7fc00001 (nan)")
    assert text == (
        "guard: step 0: 'scale' is declared equal on {0,1,2,3}, hashes agree on {0,2,3}{1}: ranks 0 and 1 differ at "
        "element [1, 2], 0x7fc00000 (nan) and 0x7fc00001 (nan); 1 of 15 elements differ"
    )
    _, text, drift = on_all("flipped", "state", 1, 5, 31)
    assert drift["names"] == ("outer.weight", "optimizer.outer.weight.exp_avg")
    assert "step 4, agreed at 2" in text
    assert "and 1 more values" in text
    _, text, drift = on_all("on_mesh_axes")
    assert drift["places"] == ("dp 0, tp 1", "dp 1, tp 1")
    assert "ranks 1 and 3 (dp 0, tp 1 and dp 1, tp 1) differ" in text


def test_jobs_without_a_fault_agree() -> None:
    agrees, text, compared, left_out = on_all("quiet_job", 2)
    assert agrees
    assert text == "step 5: hashes agree, 39 values on 4 ranks, 2 left out"
    assert {"inner.weight", "scale", "optimizer.outer.bias.exp_avg", "optimizer.group0.lr"} <= set(compared)
    assert set(left_out) == {"norm.running_mean", "norm.running_var"}
    assert len(on_all("gradients_and_generators", False)) == 7
    assert on_all("gradients_of_groups") == "as declared"
    assert on_all("declared", {"scale": "{0,1}{2,3}"})[1].keys() == left_out.keys()
    assert on_all("declared", {"scale": {"stride": 1, "size": 2}})[1].keys() == left_out.keys()
    assert on_all("declared", {"scale": "none"})[1]["scale"] == "as declared"
    assert on_all("values_change", True) is True
    compared = on_all("before_the_first_step", {"*.exp_avg": "none", "outer.bias.grad": "none"})
    assert "optimizer.outer.weight.exp_avg_sq" in compared
    assert "optimizer.outer.weight.exp_avg" not in compared


def test_placements_say_which_ranks_agree() -> None:
    compared, warned = on_all("sharded", False)
    assert {"0.weight", "optimizer.2.weight.exp_avg"} <= set(compared)
    assert warned == []
    compared, warned = on_all("sharded", False, ("shard",))
    assert not {"0.weight", "optimizer.2.weight.exp_avg"} & set(compared)
    assert warned == ["guard: no parameter is compared, as no two ranks hold the same part of one"]
    compared, left_out = on_all("tensor_parallel", "")
    assert left_out == []
    assert "0.weight" in compared


def test_a_proof_says_which_ranks_agree() -> None:
    assert on_all("proved", True)[0] == "scale"
    assert on_all("proved", False)[0] == "DriftError"


def test_batches() -> None:
    assert on_all("batches", False) == "agree"
    _, text, drift = on_all("batches", True)
    assert drift["name"] == "batch"
    assert text.endswith(
        "ranks 0 and 1 were given the same batch, as hashes agree on {0,1,2,3}, expected others"
    )
    assert on_all("batches_in_pairs", True) == "agree"
    _, text, drift = on_all("batches_in_pairs", False)
    assert drift["ranks"] == (2, 3)
    assert "should share one: {0,1}{2,3}" in text


REFUSED = [
    (
        "other_values",
        (),
        "RankError",
        "got 'norm.running_mean float32[16]' on rank 0 and 'more float32[2]' on rank 3",
    ),
    ("values_change", (False,), "RankError", "and 'more bfloat16[2]' on rank 1"),
    (
        "other_shape",
        (),
        "RankError",
        "got 'scale float32[3, 5]' on rank 0 and 'scale float32[5, 3]' on rank 2",
    ),
    ("other_steps", (), "RankError", "other numbers of steps, got 3 on rank 0 and 4 on rank 1"),
    ("other_groups", (), "RankError", "ranks declare other groups"),
    ("one_rank", (), "ReplicaError", "got one rank, expected a group of 2 or more"),
    ("destroyed", (), "StateError", "the process group was destroyed"),
    ("wrong_order", ("twice",), "StateError", "entered twice"),
    ("wrong_order", ("call",), "StateError", "a step would count twice"),
    ("wrong_order", ("batch",), "StateError", "batches are not compared"),
    ("wrong_order", ("no optimiser",), "StateError", "nothing counts steps"),
    ("partial_sum", (), "UnsupportedError", "'sum' is a partial sum, got '(Partial(sum),)'"),
    ("no_batch", (), "RankError", "no batch since the last check, got none on rank 0"),
    ("declared", ({"scale": "dp"},), "AttributeValueError", "not a group, got 'dp'"),
    ("declared", ({"scale": "{0,1}"},), "ReplicaError", "sets do not cover the ranks once"),
    (
        "declared",
        ({"sclae": "none", "*": "all"},),
        "UnknownNameError",
        "groups of nothing, got 'sclae', expected 'scale'",
    ),
    ("declared", ({"outer.*": "none", "optimizer.*": "none"},), "UnknownNameError", "got 'optimizer.*'"),
    ("before_the_first_step", ({"*.exp_avg_sqr": "none"},), "UnknownNameError", "got '*.exp_avg_sqr'"),
    ("before_the_first_step", ({"*.wieght": "none"},), "UnknownNameError", "got '*.wieght'"),
    ("before_the_first_step", ({"outer.*.wieght": "none"}, 0), "UnknownNameError", "got 'outer.*.wieght'"),
    (
        "by_declared_groups",
        ({"sclae": "none", "*": "all"},),
        "UnknownNameError",
        "got 'sclae', expected 'scale'",
    ),
    ("proved_of_another", (), "UnknownNameError", "groups is a proof of another model"),
    ("declared", (3,), "ArgumentTypeError", "groups is neither a mapping nor a word"),
    ("options", ({"every": 0},), "AttributeValueError", "guard: every: got 0"),
    ("options", ({"timeout": 0},), "AttributeValueError", "expected seconds above 0"),
    ("options", ({"on_drift": "stop"},), "AttributeValueError", "unknown on_drift"),
    ("options", ({"on_drift": "save"},), "AttributeValueError", "on_drift and folder do not go together"),
    ("options", ({"optimizer": 3},), "ArgumentTypeError", "not an optimiser, got 3"),
    ("flat_shards", (), "UnsupportedError", "got a FullyShardedDataParallel, expected fully_shard"),
]


@pytest.mark.share(2)
@pytest.mark.parametrize("row", REFUSED, ids=lambda row: f"{row[0]} {row[1]}")
def test_bad_input_is_a_typed_error_on_all_ranks(row: Any) -> None:
    job, args, kind, words = row
    found = on_all(job, *args)
    assert found[0] == kind
    assert words in found[1]


def test_a_rank_that_cannot_be_checked() -> None:
    results = gloo.run(4, jobs.caught, "on_meta")
    assert results[1][0] == "UnsupportedError"
    assert [each[0] for each in results] == ["RankError", "UnsupportedError", "RankError", "RankError"]
    assert "rank 1 cannot be checked, got its error: guard: 'scale' is on the meta device" in results[0][1]


def test_groups_of_a_part_of_the_ranks() -> None:
    results = gloo.run(4, jobs.caught, "half_of_the_ranks", True)
    assert results[:2] == ["step 0: hashes agree, 8 values on 2 ranks, 2 left out"] * 2
    assert results[2] == results[3]
    assert results[3][2]["ranks"] == (2, 3)
    results = gloo.run(4, jobs.caught, "of_the_first_two")
    assert results[:2] == ["step 0: hashes agree, 8 values on 2 ranks, 2 left out"] * 2
    for kind, text, *_ in results[2:]:
        assert kind == "ReplicaError"
        assert "this rank is not in the group" in text


def test_warnings_and_saved_values(tmp_path: Path) -> None:
    agrees, warned = on_all("warned")
    assert not agrees
    assert len(warned) == 1
    assert "'scale'" in warned[0]
    assert on_all("saved", str(tmp_path))[0] == "DriftError"
    from popsr.bridge.audit import audit

    report = audit(tmp_path)
    assert report.ranks == 4
    assert report.first is not None
    assert (report.first.name, report.first.element, report.first.found) == ("scale", (0, 2), "{0}{1,2,3}")


def test_large_values_are_compared_block_by_block() -> None:
    _, _, drift = on_all("large")
    assert drift["element"] == (999, 1400)
    assert drift["count"] == 3


def test_a_rank_that_does_not_check() -> None:
    results = gloo.run(4, jobs.caught, "skipped")
    assert results[2] == "did not check"
    for rank in (0, 1, 3):
        assert results[rank][0] == "RankError"
        assert "a check was not completed in 15 s, got nothing of rank 2" in results[rank][1]


def test_a_rank_that_ends() -> None:
    with pytest.raises(gloo.RankError) as found:
        gloo.run(4, jobs.dies)
    assert found.value.errors[2] == "the process ended"
    for rank in (0, 1, 3):
        assert "popsr.errors.RankError: guard: a check was not completed" in str(found.value.errors[rank])
