"""Damaged models are read or refused by a typed error of one line."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from popsr.errors import AttributeValueError, Error, GraphError

onnx = pytest.importorskip("onnx")

from popsr.bridge.onnx import load, op_types  # noqa: E402
from tests_py.bridge.onnx.models import MODELS  # noqa: E402
from tests_py.bridge.onnx.test_load import branches, counted, lstm  # noqa: E402
from tests_py.bridge.onnx.test_loops import ROWS  # noqa: E402

BYTES = (0, 1, 2, 0x7F, 0x80, 0xFF)
CHANGES = ("attribute", "type", "operand", "count", "result", "op type", "input")
OP_TYPES = sorted(name for name in op_types() if "." not in name)
NUMBERS = (0, 1, -1, -7, 5, 1 << 40, -(1 << 62))


def damaged_bytes(rng: random.Random, data: bytes) -> bytes:
    """Some bytes are others, most of them in front of the weights."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 2, 4))):
        made[rng.randrange(len(made))] = rng.choice((*BYTES, rng.randrange(256)))
    return bytes(made)


def nodes_of(graph: Any) -> list[Any]:
    """The nodes of a graph and of the graphs in their attributes."""
    inner = [each.g for node in graph.node for each in node.attribute if each.HasField("g")]
    return [*graph.node, *(node for each in inner for node in nodes_of(each))]


def changed(rng: random.Random, model: Any) -> Any:
    """A node has other operands, results, attributes or another op type; or an input has another shape or type."""
    nodes = nodes_of(model.graph)
    node, names = rng.choice(nodes), [name for each in nodes for name in (*each.input, *each.output)]
    choice = rng.choice([each for each in CHANGES if each not in ("attribute", "type") or node.attribute])
    if choice == "attribute":
        each = rng.choice(node.attribute)
        each.i = rng.choice(NUMBERS)
        if each.ints:
            each.ints[rng.randrange(len(each.ints))] = rng.choice(NUMBERS)
        if rng.random() < 0.3:
            del node.attribute[rng.randrange(len(node.attribute))]
    elif choice == "type":
        rng.choice(node.attribute).type = rng.randrange(1, 9)
    elif choice == "operand" and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice([*names, ""])
    elif choice == "count" and node.input:
        node.input.append(rng.choice(names)) if rng.random() < 0.5 else node.input.pop()
    elif choice == "result" and node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice([*names, ""])
    elif choice == "op type":
        node.op_type = rng.choice([*(each.op_type for each in nodes), *OP_TYPES])
    else:
        _change_input(rng, rng.choice(model.graph.input).type.tensor_type)
    return model


def _change_input(rng: random.Random, kind: Any) -> None:
    if kind.shape.dim and rng.random() < 0.7:
        rng.choice(kind.shape.dim).dim_value = rng.choice(NUMBERS)
    elif rng.random() < 0.5:
        kind.elem_type = rng.randrange(24)
    else:
        kind.shape.dim.add().dim_value = rng.choice(NUMBERS[:5])


def models() -> list[Any]:
    """Of all kinds of graphs in graphs."""
    loops = [row.proto for row in ROWS.values()]
    return [*(make().proto for make in MODELS.values()), branches(known=False), counted(5), lstm(), *loops]


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 64))]
)
def test_damaged_models(seed: int, tmp_path: Path) -> None:
    rng, path, whole = random.Random(seed), tmp_path / "m.onnx", models()
    found: Counter[str] = Counter()
    for _ in range(100):
        model = onnx.ModelProto()
        model.CopyFrom(rng.choice(whole))
        try:
            if rng.random() < 0.5:
                path.write_bytes(damaged_bytes(rng, model.SerializeToString()))
                load(path, shapes={"N": 2})
            else:
                load(changed(rng, model), shapes={"N": 2})
        except Error as error:
            found[type(error).__name__ + " of several lines" * ("\n" in str(error))] += 1
        else:
            found["read"] += 1
    assert found["read"] < 100
    assert not any("lines" in kind for kind in found)
    assert len(found) >= 3


def test_a_layer_without_recurrent_weights_is_refused() -> None:
    model = lstm()
    next(node for node in model.graph.node if node.op_type == "LSTM").input[2] = ""
    with pytest.raises(AttributeValueError, match="lacks the operand 'R'"):
        load(model)


def test_a_condition_that_is_its_own_operand_is_refused() -> None:
    model = counted(5)
    loop = next(node for node in model.graph.node if node.op_type == "Loop")
    loop.attribute[0].g.node[0].input[0] = "d"
    with pytest.raises(GraphError, match="reads what no earlier node makes, got 'd'"):
        load(model)
