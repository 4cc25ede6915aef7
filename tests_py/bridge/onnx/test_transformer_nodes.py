"""Nodes of transformers that onnxruntime fuses or quantises: attention, norms, rotations, weights of few bits."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from popsr.errors import UnsupportedOpsError

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from popsr.bridge.onnx import load
from tests_py.bridge.onnx.test_microsoft import QKV, U8, A, B, Z, check, node_model

RNG = np.random.default_rng(6)
ROWS, SKIP, GAIN = (RNG.normal(size=shape).astype(np.float32) for shape in ((2, 4, 12), (2, 4, 12), (12,)))
PROJECT, SHIFT = (RNG.normal(size=shape).astype(np.float32) for shape in ((12, 36), (36,)))
PAST = RNG.normal(size=(2, 2, 3, 5, 4)).astype(np.float32)
OF_PAST = RNG.normal(size=(2, 3, 4, 9)).astype(np.float32)
PADDED = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
PADDED_PAST = np.array([[0] + [1] * 8, [0, 0] + [1] * 7], np.int32)
SQUARE = (RNG.uniform(size=(2, 4, 4)) > 0.3).astype(np.int32)
KEYS, VALUES = (RNG.normal(size=(2, 6, 12)).astype(np.float32) for _ in range(2))
COS, SIN = (function(RNG.normal(size=(20, 2)).astype(np.float32)) for function in (np.cos, np.sin))
HEADS: dict[str, Any] = {"num_heads": 3}
GROUPED: dict[str, Any] = {"num_heads": 3, "kv_num_heads": 1}
MANY, ONE = (RNG.normal(size=(2, 4, width)).astype(np.float32) for width in (48, 16))
ONE_PAST, COS_8, SIN_8 = (
    RNG.normal(size=shape).astype(np.float32) for shape in ((2, 1, 5, 16), (20, 8), (20, 8))
)
TOTAL = np.array([3, 3], np.int32), np.array(4, np.int32)
TOTAL_PAST = np.array([8], np.int32), np.array(9, np.int32)
IMAGE, KERNEL = (
    RNG.normal(size=(1, 2, 5, 5)).astype(np.float32),
    RNG.normal(size=(3, 2, 3, 3)).astype(np.float32),
)
WORDS, TABLE = np.array([[1, 2, 0], [3, 3, 1]], np.int32), RNG.normal(size=(6, 12)).astype(np.float32)

CODES = [RNG.integers(0, 256, shape).astype(np.uint8) for shape in ((6, 12), (6, 12), (2, 12), (12,), (12,))]

TRANSFORMERS: dict[str, tuple[str, list[Any], dict[str, Any], list[str]]] = {
    "sum and its norm": (
        "SkipLayerNormalization", [ROWS, SKIP[0], GAIN, GAIN], {"epsilon": 1e-5}, ["y", "", "", "s"]
    ),
    "sum and its root": (
        "SkipSimplifiedLayerNormalization", [ROWS, SKIP, GAIN, GAIN], {"epsilon": 1e-5}, ["y", "", "", "s"]
    ),
    "embedding": (
        "EmbedLayerNormalization",
        [WORDS, WORDS % 2, TABLE, TABLE[::-1].copy(), TABLE[:2], GAIN, GAIN, np.minimum(WORDS, 1)],
        {"epsilon": 1e-5},
        ["y", "count", "sum"],
    ),
    "embedding of words": (
        "EmbedLayerNormalization",
        [WORDS, None, TABLE, TABLE, None, GAIN, GAIN, None, np.array([[3, 1, 2]], np.int32)],
        {},
        ["y", "count"],
    ),
    "embedding of bytes": (
        "QEmbedLayerNormalization",
        [
            WORDS, WORDS % 2, *(CODES[i] for i in range(5)), np.minimum(WORDS, 1),
            *(np.float32(0.01 * (i + 1)) for i in range(5)), *(np.uint8(100 + i) for i in range(5)),
        ],
        {"epsilon": 1e-5},
        ["y", "count"],
    ),
    "attention": ("Attention", [ROWS, PROJECT, SHIFT], HEADS, ["y"]),
    "attention, causal": ("Attention", [ROWS, PROJECT, SHIFT], {**HEADS, "unidirectional": 1, "scale": 0.3}, ["y"]),
    "attention, mask of keys": ("Attention", [ROWS, PROJECT, SHIFT, PADDED], HEADS, ["y"]),
    "attention, mask of pairs": ("Attention", [ROWS, PROJECT, SHIFT, SQUARE], HEADS, ["y"]),
    "attention, lengths": ("Attention", [ROWS, PROJECT, SHIFT, np.array([3, 2], np.int32)], HEADS, ["y"]),
    "attention, begins and ends": (
        "Attention", [ROWS, PROJECT, SHIFT, np.array([4, 3, 1, 0], np.int32)], HEADS, ["y"]
    ),
    "attention, past": (
        "Attention", [ROWS, PROJECT, SHIFT, PADDED_PAST, PAST], {**HEADS, "unidirectional": 1}, ["y", "present"]
    ),
    "attention, bias": ("Attention", [ROWS, PROJECT, None, None, None, OF_PAST[..., :4].copy()], HEADS, ["y"]),
    "attention, sizes": ("Attention", [ROWS, PROJECT, SHIFT], {**HEADS, "qkv_hidden_sizes": [9, 9, 18]}, ["y"]),
    "quantised attention, past": (
        "QAttention",
        [
            U8, QKV, np.linspace(-1, 1, 18).astype(np.float32), A, B, None, Z, np.int8(0),
            RNG.normal(size=(2, 2, 2, 5, 3)).astype(np.float32),
        ],
        {"num_heads": 2, "unidirectional": 1},
        ["y", "present"],
    ),
    "heads": ("MultiHeadAttention", [ROWS, KEYS, VALUES, SHIFT], HEADS, ["y", "k", "v"]),
    "heads, mask": (
        "MultiHeadAttention",
        [ROWS, KEYS, VALUES, None, np.array([[1] * 4 + [0] * 2, [1] * 6], np.int32), OF_PAST[..., :6].copy()],
        {**HEADS, "scale": 0.4},
        ["y"],
    ),
    "heads, past": (
        "MultiHeadAttention",
        [ROWS, SKIP, ROWS, SHIFT, None, OF_PAST[:1], PAST[0], PAST[1]],
        {**HEADS, "unidirectional": 1},
        ["y", "k", "v"],
    ),
    "heads, lengths": (
        "MultiHeadAttention", [ROWS, KEYS, VALUES, None, np.array([4, 6], np.int32)], HEADS, ["y"]
    ),
    "heads, mask of pairs": (
        "MultiHeadAttention", [ROWS, SKIP, ROWS, None, SQUARE], {**HEADS, "unidirectional": 1}, ["y"]
    ),
    "shared heads, window": (
        "GroupQueryAttention",
        [MANY, ONE, ONE, None, None, *TOTAL],
        {**GROUPED, "local_window_size": 2},
        ["y"],
    ),
    "shared heads, bias": (
        "GroupQueryAttention",
        [MANY, ONE, ONE, None, None, *TOTAL, None, None, None, OF_PAST[..., :4].copy()],
        GROUPED,
        ["y"],
    ),
    "shared heads, not causal": (
        "GroupQueryAttention", [MANY, ONE, ONE, None, None, *TOTAL], {**GROUPED, "causal": 0}, ["y"]
    ),
    "keys with heads": ("MultiHeadAttention", [ROWS, PAST[0], PAST[1]], HEADS, ["y"]),
    "shared heads": ("GroupQueryAttention", [MANY, ONE, ONE, None, None, *TOTAL], GROUPED, ["y", "k", "v"]),
    "shared heads, joined": (
        "GroupQueryAttention", [np.concatenate([MANY, ONE, ONE], 2), None, None, None, None, *TOTAL], GROUPED, ["y"]
    ),
    "shared heads, rotated": (
        "GroupQueryAttention",
        [MANY, ONE, ONE, None, None, *TOTAL, COS_8, SIN_8],
        {**GROUPED, "do_rotary": 1, "scale": 0.7},
        ["y", "k", "v"],
    ),
    "shared heads, past": (
        "GroupQueryAttention",
        [MANY[:1], ONE[:1], ONE[:1], ONE_PAST[:1], ONE_PAST[1:], *TOTAL_PAST, COS_8, SIN_8],
        {**GROUPED, "do_rotary": 1, "rotary_interleaved": 1, "local_window_size": 3},
        ["y", "k", "v"],
    ),
    "shared heads, one token": (
        "GroupQueryAttention",
        [MANY[:, :1].copy(), ONE[:, :1].copy(), ONE[:, :1].copy(), ONE_PAST, ONE_PAST,
         np.array([5, 5], np.int32), np.array(6, np.int32), COS_8, SIN_8],
        {**GROUPED, "do_rotary": 1},
        ["y", "k", "v"],
    ),
    "rotation": ("RotaryEmbedding", [ROWS, np.array([[3, 4, 5, 6], [0, 1, 2, 3]]), COS, SIN], {}, ["y"]),
    "rotation from a place on": ("RotaryEmbedding", [ROWS, np.array([7]), COS, SIN], {"interleaved": 1}, ["y"]),
    "rotation of a part": (
        "RotaryEmbedding",
        [ROWS, np.array([7]), COS[:, :1].copy(), SIN[:, :1].copy()],
        {"num_heads": 3, "rotary_embedding_dim": 2},
        ["y"],
    ),
    "rotation with heads": ("RotaryEmbedding", [PAST[0], np.array([1]), COS, SIN], {}, ["y"]),
    **{
        f"convolution, {name}": (
            "FusedConv", [IMAGE, KERNEL, GAIN[:3]], {"activation": name, **numbers}, ["y"]
        )
        for name, numbers in (
            ("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", {"activation_params": [0.2]}),
            ("Clip", {"activation_params": [-0.5, 0.5]}), ("HardSigmoid", {"activation_params": [0.3, 0.4]}),
        )
    },
    "convolution and a sum": (
        "FusedConv", [IMAGE, KERNEL, GAIN[:3], IMAGE[:, :1, :3, :3] * np.ones((1, 3, 1, 1), np.float32)],
        {"activation": "Relu"}, ["y"],
    ),
    "product and LeakyRelu": (
        "FusedGemm",
        [ROWS[0], PROJECT, SHIFT],
        {"activation": "LeakyRelu", "activation_alpha": 0.3, "alpha": 0.5},
        ["y"],
    ),
}  # fmt: skip


def packed(bits: int, rows: int, columns: int) -> Any:
    """Random codes, several in a byte along the last axis."""
    return RNG.integers(0, 256, (rows, -(-columns * bits // 8))).astype(np.uint8)


for _bits, _block, _columns, _zero, _kind in (
    (4, 16, 48, None, np.float32), (4, 32, 40, "codes", np.float32), (8, 16, 40, "codes", np.float32),
    (8, 64, 128, None, np.float32), (2, 32, 64, "codes", np.float32), (4, 128, 256, "floats", np.float32),
    (4, 256, 256, "codes", np.float16), (8, 32, 64, None, np.float16), (4, 16, 80, "codes", np.float32),
):  # fmt: skip
    _blocks = -(-_columns // _block)
    _zeros = {
        None: None,
        "codes": packed(_bits, 6, _blocks),
        "floats": RNG.uniform(0, 15, (6, _blocks)).astype(_kind),
    }[_zero]
    TRANSFORMERS[f"weights of {_bits} bits, {_columns} in blocks of {_block}, {_kind.__name__}"] = (
        "MatMulNBits",
        [
            RNG.normal(size=(2, 3, _columns)).astype(_kind),
            packed(_bits, 6, _blocks * _block).reshape(6, _blocks, -1),
            RNG.uniform(0.1, 1, (6, _blocks)).astype(_kind), _zeros,
        ],
        {"K": _columns, "N": 6, "bits": _bits, "block_size": _block},
        ["y"],
    )  # fmt: skip
TRANSFORMERS["weights of 4 bits and a bias"] = (
    "MatMulNBits",
    [
        RNG.normal(size=(3, 32)).astype(np.float32), packed(4, 6, 32).reshape(6, 1, 16),
        RNG.uniform(0.1, 1, (6, 1)).astype(np.float32), None, None, GAIN[:6],
    ],
    {"K": 32, "N": 6, "block_size": 32},
    ["y"],
)  # fmt: skip
for _bits, _zeros in ((4, packed(4, 7, 2)), (4, None), (8, packed(8, 7, 2))):
    TRANSFORMERS[f"rows of {_bits} bits{'' if _zeros is None else ' with zero points'}"] = (
        "GatherBlockQuantized",
        [
            np.array([[0, 6], [3, 3]]),
            packed(_bits, 7, 32),
            RNG.uniform(0.1, 1, (7, 2)).astype(np.float32),
            _zeros,
        ],
        {"bits": _bits, "block_size": 16},
        ["y"],
    )


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_nodes(name: str) -> None:
    check(TRANSFORMERS[name])


def changed(name: str, attributes: Mapping[str, Any] = MappingProxyType({}), **operands: Any) -> Any:
    """A row with other attributes and operands."""
    op_type, given, own, results = TRANSFORMERS[name]
    places = {int(key[1:]): each for key, each in operands.items()}
    count = max([len(given), *(place + 1 for place in places)])
    padded = [*given, *[None] * (count - len(given))]
    return op_type, [places.get(i, each) for i, each in enumerate(padded)], {**own, **attributes}, results


REFUSED: dict[str, tuple[Any, int, str]] = {
    "an order of inputs": (
        changed("weights of 4 bits and a bias", x4=np.zeros(32, np.int32)),
        1,
        "MatMulNBits .with g_idx",
    ),
    "weights of 3 bits": (
        changed("weights of 4 bits and a bias", {"bits": 3}),
        1,
        "MatMulNBits .weights of 3 bits",
    ),
    "weights that are not known": (
        changed("weights of 4 bits and a bias"),
        2,
        "MatMulNBits .its weights is not known .* values of 'x1'",
    ),
    "a soft cap": (changed("shared heads", {"softcap": 30.0}), 1, "GroupQueryAttention .softcap"),
    "a sink": (changed("shared heads", x11=GAIN[:3]), 1, "GroupQueryAttention .with head_sink"),
    "a part of the past": (
        changed("shared heads, past", x5=np.array([6], np.int32)),
        1,
        "GroupQueryAttention .9 keys, of which samples",
    ),
    "lengths that are not known": (
        changed("shared heads, past"),
        6,
        "GroupQueryAttention .its number of keys of each sample is not known",
    ),
    "elements beyond the end": (
        (
            "QLinearAveragePool",
            [U8[None], A, Z, B, Z],
            {"kernel_shape": [3, 3], "ceil_mode": 1, "count_include_pad": 1},
            ["y"],
        ),
        1,
        "QLinearAveragePool .ceil_mode with count_include_pad",
    ),
    "rotations": (changed("attention", {"do_rotary": 1}), 1, "Attention .with rotary embeddings"),
    "a mask of another shape": (
        changed("attention", x3=np.ones(8, np.int32)),
        1,
        r"Attention .a mask of shape \[8\]",
    ),
    "one operand of three": (
        ("MultiHeadAttention", [np.ones((2, 4, 3, 3, 4), np.float32)], HEADS, ["y"]),
        1,
        "MultiHeadAttention .with queries, keys and values in one operand",
    ),
    "statistics": (
        (*changed("sum and its norm")[:3], ["y", "m"]),
        1,
        "SkipLayerNormalization .with saved statistics",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    row, free, text = REFUSED[name]
    with pytest.raises(UnsupportedOpsError, match=text):
        load(node_model(row, free)[0])


def test_weights_of_layers_train() -> None:
    found = {
        name: set(load(node_model(TRANSFORMERS[name])[0]).variables) for name in ("attention", "embedding")
    }
    assert found == {"attention": {"x1", "x2"}, "embedding": {"x2", "x3", "x4", "x5", "x6"}}
    assert set(load(node_model(TRANSFORMERS["weights of 4 bits and a bias"])[0]).variables) == {"x5"}
