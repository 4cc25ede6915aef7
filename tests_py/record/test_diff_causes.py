"""``popsr.diff`` names the one thing that differs between two recordings: op, line, replicas, run and iteration."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import popsr
from popsr._tools.record.file_format import TRAILER
from popsr._tools.record.reading import open_record
from tests_py.support.helpers import Array
from tests_py.support.recorded_program import LINES, step

pytestmark = pytest.mark.filterwarnings("ignore::popsr.errors.ReplicaWarning")

ALL = (0, 1, 2, 3)


def recorded(
    path: Path, *, data: Callable[[Array], object] | None = None, seed: int | None = None, **edit: Any
) -> Path:
    """Two runs; ``data`` changes the inputs of runs, replicas, rows and columns."""
    ir, stream = step(**edit)
    inputs = np.random.default_rng(0).normal(size=(2, 4, 8, 16)).astype(np.float32)
    if data is not None:
        data(inputs)
    with popsr.Session(ir, seed=seed) as session, popsr.record(session, path):
        for each in inputs:
            session.run({stream: each})
    return path


def another_row(inputs: Array) -> None:
    inputs[1, 2, 5] = inputs[1, 2, 4]


def another_sample_for_all(inputs: Array) -> None:
    inputs[0, :, 3] += 1


def two_replicas_exchanged(inputs: Array) -> None:
    inputs[0, [0, 3]] = inputs[0, [3, 0]]


class Cause(NamedTuple):
    """An edit, and the difference that is found."""

    edit: dict[str, Any]
    kind: str
    name: str
    mark: str = ""
    replicas: tuple[int, ...] = ALL
    run: int = 0
    iterations: tuple[int, ...] = ()


CAUSES = [
    # Inputs
    Cause({"data": another_row}, "stream", "x", replicas=(2,), run=1, iterations=(0,)),
    Cause({"data": another_sample_for_all}, "stream", "x", iterations=(0,)),
    Cause({"data": two_replicas_exchanged}, "stream", "x", replicas=(0, 3), iterations=(0,)),
    Cause({"bit of w": 1}, "variable", "w"),
    Cause({"bit of b": 1 << 22}, "variable", "b"),
    Cause({"bit of a group": 1}, "variable", "g", replicas=(2, 3)),
    Cause({"bit of h": 1}, "variable", "h"),
    Cause({"seed": 7}, "seed", ""),
    # Attributes and constants
    Cause({"nearest": True}, "changed", "cast", "cast"),
    Cause({"softmax axis": True}, "changed", "softmax", "softmax"),
    Cause({"epsilon": 1e-3}, "changed", "layer_norm", "norm"),
    Cause({"greatest": 0.5}, "changed", "clip", "clip"),
    Cause({"row": 1}, "changed", "slice", "slice"),
    Cause({"rows": np.array([0, 3, 2], np.int32)}, "changed", "gather", "gather"),
    Cause({"limit": -1e6}, "changed", "greater", "flag"),
    Cause({"layer scale": 0.5}, "changed", "mul", "layer scale"),
    Cause({"turn constant": 0.25}, "changed", "add", "turn add", iterations=(0,)),
    Cause({"turns": 2}, "changed", "repeat", "repeat", iterations=(2,)),
    Cause({"reduction": "add"}, "changed", "replicated_all_reduce", "reduction"),
    Cause({"group": 2}, "changed", "replicated_all_reduce", "reduction"),
    Cause({"h rate": -0.25}, "changed", "scaled_add_", "h update"),
    Cause({"w rate": -0.125}, "changed", "scaled_add_", "w update"),
    # Operands and orders
    Cause({"swapped": True}, "changed", "sub", "sub"),
    Cause({"order": True}, "changed", "add", "sum"),
    Cause({"other bias": True}, "changed", "add", "bias"),
    Cause({"operands": True}, "only in b", "transpose", "matmul"),
    Cause({"other weight": True}, "only in b", "transpose", "other weight"),
    # Ops that are missing, new, or in the place of others
    Cause({"no gelu": True}, "only in a", "gelu", "gelu"),
    Cause({"sigmoid": True}, "only in a", "gelu", "gelu"),
    Cause({"one more": True}, "only in b", "negate", "negate"),
    Cause({"no clip": True}, "only in a", "clip", "clip"),
    Cause({"no rounding": True}, "only in a", "cast", "cast"),
    Cause({"square": True}, "only in b", "mul", "total"),
    Cause({"layer tanh": True}, "only in a", "relu", "layer relu"),
    Cause({"layer unscaled": True}, "only in a", "mul", "layer scale"),
    Cause({"turn negate": True}, "only in b", "negate", "turn negate", iterations=(0,)),
    Cause({"one call": True}, "only in a", "call", "second call"),
    Cause({"no reduction": True}, "only in a", "replicated_all_reduce", "reduction"),
    # Updates: no value of the run that has them differs
    Cause({"h stays": True}, "only in a", "scaled_add_", "h update", replicas=()),
    Cause({"twice": True}, "only in b", "scaled_add_", "twice", replicas=()),
    Cause({"copied": True}, "only in a", "scaled_add_", "w update", replicas=(), run=1),
]


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("recorded") / "a.rec")


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: " ".join(map(str, cause.edit)))
def test_the_cause_is_named(cause: Cause, unchanged: Path, tmp_path: Path) -> None:
    found = popsr.diff(unchanged, recorded(tmp_path / "b.rec", **cause.edit))
    assert (found.kind, found.name, found.replicas, found.step, found.iterations) == cause[1:3] + cause[4:]
    line = found.line.rpartition(":")[2]
    assert line == (str(LINES[cause.mark]) if cause.mark else "")


def test_enough_causes_are_tried() -> None:
    assert len(CAUSES) >= 40


EQUAL = "its operands are equal, its results differ"
# Ops, in loops and calls too, whose results differ though their operands are equal, as those of another version may.
# The product that is reduced is fused: it has no value of its own.
RESULTS = [
    ("matmul", "matmul", 0, EQUAL),
    ("tanh", "turn tanh", 1, EQUAL),
    ("relu", "layer relu", 1, EQUAL),
    (
        "replicated_all_reduce",
        "reduction",
        0,
        "not recorded in both, so one of these may be the first: matmul",
    ),
]


@pytest.mark.parametrize(("name", "mark", "nth", "note"), RESULTS, ids=[name for name, *_ in RESULTS])
def test_another_result_of_equal_operands_is_named(
    name: str, mark: str, nth: int, note: str, unchanged: Path, tmp_path: Path
) -> None:
    record = open_record("diff", unchanged)
    ops = {op["id"]: op for op in record.table["ops"]}
    run = list(record.runs())[1]
    row = next(
        r for r in run.rows if r.nth == nth and ops[r.op]["line"].endswith(f":{LINES[mark]}")
        and ops[r.op]["kind"] == name
    )  # fmt: skip
    one = row.hashes[0][0].to_bytes(8, "little")
    data = unchanged.read_bytes()[: -len(TRAILER) - 16]
    assert data.count(one) == 1
    data = data.replace(one, (row.hashes[0][0] ^ 1).to_bytes(8, "little"))
    other = tmp_path / "b.rec"
    other.write_bytes(data + TRAILER + hashlib.blake2b(data, digest_size=16).digest())
    found = popsr.diff(unchanged, other)
    first = row.slot.outputs[0][1]
    assert (found.kind, found.name, found.step, found.iterations) == ("op", name, 1, row.iterations)
    assert found.replicas == tuple(r for r in ALL if first[r] == 0)
    assert found.line.endswith(f":{LINES[mark]}")
    assert found.notes[0].startswith(note)
