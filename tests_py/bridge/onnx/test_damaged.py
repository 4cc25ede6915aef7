"""Damaged models are read or refused by a typed error of one line."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from popsr.errors import Error

onnx = pytest.importorskip("onnx")

from popsr.bridge.onnx import load  # noqa: E402
from tests_py.bridge.onnx.models import MODELS  # noqa: E402

BYTES = (0, 1, 2, 0x7F, 0x80, 0xFF)
NUMBERS = (0, 1, -1, -7, 5, 1 << 40, -(1 << 62))


def damaged_bytes(rng: random.Random, data: bytes) -> bytes:
    """Some bytes are others, most of them in front of the weights."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 2, 4))):
        made[rng.randrange(len(made))] = rng.choice((*BYTES, rng.randrange(256)))
    return bytes(made)


def changed(rng: random.Random, model: Any) -> Any:
    """A node has other operands, attributes or another op type."""
    node = rng.choice(model.graph.node)
    names = [name for each in model.graph.node for name in (*each.input, *each.output)]
    choice = rng.randrange(5)
    if choice == 0 and node.attribute:
        each = rng.choice(node.attribute)
        each.i = rng.choice(NUMBERS)
        if each.ints:
            each.ints[rng.randrange(len(each.ints))] = rng.choice(NUMBERS)
    elif choice == 1 and node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]
    elif choice == 2 and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice([*names, ""])
    elif choice == 3:
        node.op_type = rng.choice([each.op_type for each in model.graph.node])
    else:
        rng.choice(rng.choice(model.graph.input).type.tensor_type.shape.dim).dim_value = rng.choice(NUMBERS)
    return model


@pytest.mark.parametrize("seed", range(4))
def test_damaged_models(seed: int, tmp_path: Path) -> None:
    rng, path = random.Random(seed), tmp_path / "m.onnx"
    models = [make().proto for make in MODELS.values()]
    found: Counter[str] = Counter()
    for _ in range(40):
        model = onnx.ModelProto()
        model.CopyFrom(rng.choice(models))
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
    assert found["read"] < 40
    assert not any("lines" in kind for kind in found)
    assert len(found) >= 3
