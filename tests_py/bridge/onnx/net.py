"""Models of ONNX, written node by node with ``onnx.helper``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Net"]

Array = NDArray[Any]


class Net:
    """A graph that is being written."""

    def __init__(self, name: str = "net", seed: int = 0) -> None:
        self.name, self.rng = name, np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.weights: dict[str, Array] = {}

    def input(self, name: str, shape: Sequence[int | str], kind: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def weight(self, name: str, value: Array) -> str:
        self.weights[name] = value
        return name

    def normal(self, name: str, shape: Sequence[int], scale: float = 0.2) -> str:
        return self.weight(name, (self.rng.normal(size=shape) * scale).astype(np.float32))

    def ints(self, *values: int) -> str:
        """A constant of 64-bit integers."""
        return self.constant(np.array(values, np.int64))

    def constant(self, value: Array) -> str:
        return self.add("Constant", [], value=numpy_helper.from_array(np.asarray(value)))

    def add(
        self,
        op_type: str,
        inputs: Sequence[str],
        name: str = "",
        outputs: int = 1,
        domain: str = "",
        **attributes: Any,
    ) -> str:
        """A node; the name of its first result."""
        name = name or f"{op_type.lower()}{len(self.nodes)}"
        results = [f"{name}.out{i or ''}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), results, name, domain=domain, **attributes))
        return results[0]

    def output(self, name: str) -> None:
        self.outputs.append(helper.make_empty_tensor_value_info(name))

    def model(self, opset: int = 17, opsets: Mapping[str, int] | None = None) -> onnx.ModelProto:
        tensors = [numpy_helper.from_array(value, name) for name, value in self.weights.items()]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, tensors)
        given = {"": opset} if opsets is None else opsets
        imports = [helper.make_opsetid(domain, version) for domain, version in given.items()]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)
