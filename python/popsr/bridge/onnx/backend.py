"""popsr as a backend of ONNX's test suite and of programs that use ``onnx.backend``.

``prepare`` gives a model that runs on arrays; ``run_model`` and ``run_node`` run one at once. Shapes follow from the
arrays. Where an op needs the value of an input when the model is read, the model is read again for other values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from popsr._support.host.arguments import read_items, read_text
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.bridge.onnx._load import load
from popsr.bridge.onnx._model import OnnxModel
from popsr.bridge.onnx._narrow import as_carried, as_declared
from popsr.errors import ArgumentTypeError, AttributeValueError, UnsupportedOpsError
from popsr.io._onnx.format import require_onnx

__all__ = [
    "PopsrBackend",
    "PopsrBackendRep",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]

Array = np.ndarray[Any, Any]
_WHERE = "bridge.onnx.backend"
onnx = require_onnx(_WHERE)
_base = __import__("onnx.backend.base", fromlist=["Backend"])


@public
class PopsrBackendRep(_base.BackendRep):  # type: ignore[misc, name-defined]
    """A prepared model."""

    def __init__(self, model: Any) -> None:
        """Nothing is read before shapes are known."""
        if not isinstance(model, onnx.ModelProto):
            raise ArgumentTypeError(
                f"{_WHERE}: model is not a ModelProto, got {shown(model)}, expected a ModelProto"
            )
        given = {each.name for each in model.graph.initializer}
        self._model = model
        self._names = [each.name for each in model.graph.input if each.name not in given]
        self._fixed: set[str] = set()
        self._read: dict[Any, OnnxModel] = {}

    def run(self, inputs: Any, **_options: Any) -> tuple[Array, ...]:
        """The outputs for arrays in the order of the inputs."""
        values = [inputs] if isinstance(inputs, np.ndarray) else list(read_items(_WHERE, "inputs", inputs))
        if len(values) > len(self._names):
            raise AttributeValueError(
                f"{_WHERE}: too many inputs, got {len(values)}, expected {shown(self._names)}"
            )
        data = {name: array_of(value) for name, value in zip(self._names, values, strict=False)}
        model = self._model_of(data)
        stored = model.run({name: data[name] for name in model.inputs})
        return tuple(
            as_declared(stored[each.name], each.type.tensor_type.elem_type)
            for each in self._model.graph.output
        )

    def _model_of(self, data: Mapping[str, Any]) -> OnnxModel:
        """The model for these shapes, and for these values of the inputs that ops need when it is read."""
        while True:
            key = tuple(
                (name, value.shape, value.tobytes() if name in self._fixed else None)
                if isinstance(value, np.ndarray)
                else name
                for name, value in data.items()
            )
            if key in self._read:
                return self._read[key]
            arrays = {name: value for name, value in data.items() if isinstance(value, np.ndarray)}
            try:
                made = load(
                    self._model,
                    shapes={name: value.shape for name, value in arrays.items()},
                    values={name: arrays[name] for name in self._fixed},
                )
            except UnsupportedOpsError as error:
                needed = {name for name in getattr(error, "needed", ()) if name in arrays} - self._fixed
                if not needed:
                    raise
                self._fixed |= needed
            else:
                self._read[key] = made
                return made


@public
class PopsrBackend(_base.Backend):  # type: ignore[misc, name-defined]
    """popsr behind the interface of ``onnx.backend``."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **_options: Any) -> PopsrBackendRep:
        """A model that runs on arrays."""
        cls._check_device(device)
        return PopsrBackendRep(model)

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Array, ...]:
        """Run a model once."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: Any,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,  # noqa: ARG003 - of the interface
        **options: Any,
    ) -> tuple[Array, ...]:
        """Run one node once. Options: ``opset_version``."""
        if not isinstance(node, onnx.NodeProto):
            raise ArgumentTypeError(
                f"{_WHERE}: node is not a NodeProto, got {shown(node)}, expected a NodeProto"
            )
        given_values = inputs.values() if isinstance(inputs, dict) else inputs
        arrays = [_numbers(value) for value in read_items(_WHERE, "inputs", given_values)]
        names = [name for name in node.input if name]
        if len(names) != len(arrays):
            raise AttributeValueError(
                f"{_WHERE}: wrong number of inputs, got {len(arrays)}, expected {shown(names)}"
            )
        helper = onnx.helper
        given = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in zip(names, arrays, strict=True)
        ]
        results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = helper.make_graph([node], "node", given, results)
        opset = options.get("opset_version", onnx.defs.onnx_opset_version())
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, opset)])
        return cls.run_model(model, arrays, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for the CPU."""
        return read_text(f"{_WHERE}: device", device).split(":")[0] == "CPU"

    @classmethod
    def _check_device(cls, device: str) -> None:
        if not cls.supports_device(device):
            raise AttributeValueError(f"{_WHERE}: device is not there, got {shown(device)}, expected CPU")


def array_of(value: Any) -> Any:
    """An array; of a ``TensorProto`` its elements. Sequences and what is left out stay."""
    if isinstance(value, onnx.TensorProto):
        return as_carried(onnx.numpy_helper.to_array(value))
    return value if isinstance(value, list) or value is None else _numbers(value)


def _numbers(value: Any) -> Array:
    try:
        return as_carried(np.asarray(value))
    except Exception:
        raise ArgumentTypeError(
            f"{_WHERE}: input is not an array, got {shown(value)}, expected numbers"
        ) from None


@public
def prepare(model: Any, device: str = "CPU", **options: Any) -> PopsrBackendRep:
    """A model that runs on arrays; see ``PopsrBackend``."""
    return PopsrBackend.prepare(model, device, **options)


@public
def run_model(model: Any, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Array, ...]:
    """Run a model once; see ``PopsrBackend``."""
    return PopsrBackend.run_model(model, inputs, device, **options)


@public
def run_node(node: Any, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Array, ...]:
    """Run one node once; see ``PopsrBackend``."""
    return PopsrBackend.run_node(node, inputs, device, **options)


@public
def supports_device(device: str) -> bool:
    """True for the CPU."""
    return PopsrBackend.supports_device(device)
