"""Random numbers, of popsr's generator: the same in each run, others in each node."""

from __future__ import annotations

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node
from popsr.bridge.onnx._rules import rule
from popsr.bridge.onnx._tensors import check_known
from popsr.bridge.onnx._types import dtype_of

__all__: list[str] = []


@rule("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def _random(node: Node, *like: Tensor) -> Tensor:
    kind = like[0].dtype if like and not node.has("dtype") else dtype_of(node.integer("dtype", 1))
    shape = like[0].shape if like else node.ints("shape")
    check_known(int(np.prod(shape, dtype=object)))
    word = int(np.asarray(node.number("seed", 0.0), np.float32).view(np.uint32))
    seed = node.constant(np.array([word, node.reader.count_random()], np.uint32), dtypes.uint32)
    if node.proto.op_type.startswith("RandomNormal"):
        return ops.random_normal(seed, shape, node.number("mean", 0.0), node.number("scale", 1.0), kind)
    return ops.random_uniform(seed, shape, node.number("low", 0.0), node.number("high", 1.0), kind)
