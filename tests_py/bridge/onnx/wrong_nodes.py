"""Nodes that ONNX's tests have, each with one thing changed: a type, an attribute, a number of operands, a shape.

``python -m tests_py.bridge.onnx.wrong_nodes`` prints those that onnxruntime refuses and popsr reads.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from popsr.bridge.onnx import load
from popsr.errors import Error

__all__ = ["Wrong", "accepted", "refusal", "wrong_nodes"]

_KINDS = (TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.UINT8, TensorProto.DOUBLE)
_SMALL = 16


class Wrong(NamedTuple):
    """A model of one node, what is changed, and onnxruntime's error, "" where it reads it."""

    op_type: str
    change: str
    model: Any
    error: str


def refusal(model: Any) -> str:
    """onnxruntime's error when it reads a model; "" of one that it reads, or lacks kernels for."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return "" if "NOT_IMPLEMENTED" in str(error) else str(error).split("\n")[0]
    return ""


def accepted(model: Any) -> bool:
    """True if popsr reads a model."""
    try:
        load(model)
    except Error:
        return False
    return True


def _models() -> Iterator[Any]:
    """A model of one node for each op type that popsr reads; small whole numbers are initializers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of the expected values
        from onnx.backend.test.loader import load_model_tests

        cases: list[Any] = sorted(load_model_tests(kind="node"), key=lambda case: case.name)
    seen = set()
    for case in cases:
        nodes, inputs = case.model.graph.node, case.data_sets[0][0]
        if len(nodes) != 1 or nodes[0].op_type in seen:
            continue
        if not all(isinstance(each, (np.ndarray, np.generic)) for each in inputs):
            continue
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        for each, value in zip(case.model.graph.input, inputs, strict=False):
            array = np.asarray(value)
            if array.dtype.kind in "iu" and array.size <= _SMALL and array.ndim < 2:
                model.graph.initializer.append(numpy_helper.from_array(array, each.name))
        if not refusal(model) and accepted(model):
            seen.add(nodes[0].op_type)
            yield model


def wrong_nodes(seed: int = 0) -> Iterator[Wrong]:
    """Each model with each change, where it can be made."""
    rng = np.random.default_rng(seed)
    for model in _models():
        for name, change in CHANGES.items():
            made = onnx.ModelProto()
            made.CopyFrom(model)
            for each in made.graph.output:
                each.ClearField("type")
            if change(made, rng):
                yield Wrong(model.graph.node[0].op_type, name, made, refusal(made))


def _pick(rng: np.random.Generator, items: Any) -> Any:
    return items[rng.integers(len(items))] if len(items) else None


def _free(model: Any) -> list[Any]:
    known = {each.name for each in model.graph.initializer}
    return [each for each in model.graph.input if each.name not in known]


def _another_type(model: Any, rng: np.random.Generator) -> bool:
    each = _pick(rng, _free(model))
    if each is None:
        return False
    tensor = each.type.tensor_type
    tensor.elem_type = _pick(rng, [kind for kind in _KINDS if kind != tensor.elem_type])
    return True


def _another_type_of_a_known_operand(model: Any, rng: np.random.Generator) -> bool:
    each = _pick(rng, model.graph.initializer)
    if each is None:
        return False
    array = numpy_helper.to_array(each).astype(np.float32)
    each.CopyFrom(numpy_helper.from_array(array, each.name))
    next(one for one in model.graph.input if one.name == each.name).type.tensor_type.elem_type = 1
    return True


def _a_longer_axis(model: Any, rng: np.random.Generator) -> bool:
    each = _pick(rng, [one for one in _free(model) if one.type.tensor_type.shape.dim])
    if each is None:
        return False
    _pick(rng, each.type.tensor_type.shape.dim).dim_value += 1
    return True


def _another_rank(model: Any, rng: np.random.Generator) -> bool:
    each = _pick(rng, _free(model))
    if each is None:
        return False
    each.type.tensor_type.shape.dim.add().dim_value = int(rng.integers(1, 3))
    return True


def _more_known_numbers(model: Any, rng: np.random.Generator) -> bool:
    each = _pick(rng, [one for one in model.graph.initializer if one.dims])
    if each is None:
        return False
    array = numpy_helper.to_array(each)
    each.CopyFrom(numpy_helper.from_array(np.append(array, array[-1:]), each.name))
    info = next(one for one in model.graph.input if one.name == each.name)
    info.type.tensor_type.shape.dim[0].dim_value += 1
    return True


def _another_number(model: Any, rng: np.random.Generator) -> bool:
    each = _pick(rng, model.graph.initializer)
    if each is None or (not each.dims and rng.integers(2)):
        return False
    array = numpy_helper.to_array(each) + np.asarray(100)
    each.CopyFrom(numpy_helper.from_array(array.astype(numpy_helper.to_array(each).dtype), each.name))
    return True


def _without_an_operand(model: Any, rng: np.random.Generator) -> bool:
    """Not without an optional one: onnxruntime ends its process where a norm lacks its bias."""
    node = model.graph.node[0]
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = next(each.version for each in model.opset_import if each.domain == domain)
    inputs: Any = onnx.defs.get_schema(node.op_type, version, domain).inputs
    needed = [i for i, each in enumerate(inputs[: len(node.input)]) if each.option.name == "Single"]
    if not needed:
        return False
    node.input[int(_pick(rng, needed))] = ""
    return True


def _one_operand_more(model: Any, _rng: np.random.Generator) -> bool:
    node = model.graph.node[0]
    if not node.input:
        return False
    node.input.append(node.input[0])
    return True


def _one_result_more(model: Any, _rng: np.random.Generator) -> bool:
    if model.graph.node[0].op_type == "Split":  # ends onnxruntime's process
        return False
    model.graph.node[0].output.append("another")
    return True


def _another_attribute(model: Any, _rng: np.random.Generator) -> bool:
    model.graph.node[0].attribute.append(helper.make_attribute("another", 1))
    return True


def _without_an_attribute(model: Any, rng: np.random.Generator) -> bool:
    attributes = model.graph.node[0].attribute
    if not attributes:
        return False
    del attributes[int(rng.integers(len(attributes)))]
    return True


def _attribute_of_another_type(model: Any, rng: np.random.Generator) -> bool:
    each = _pick(rng, model.graph.node[0].attribute)
    if each is None:
        return False
    each.CopyFrom(helper.make_attribute(each.name, "1" if each.type != 3 else 1))
    return True


def _another_integer(model: Any, rng: np.random.Generator) -> bool:
    each = _pick(rng, [one for one in model.graph.node[0].attribute if one.type == 2])
    if each is None:
        return False
    each.i = int(_pick(rng, [-100, 100]))
    return True


def _more_integers(model: Any, rng: np.random.Generator) -> bool:
    each = _pick(rng, [one for one in model.graph.node[0].attribute if one.type == 7])
    if each is None:
        return False
    each.ints.append(1)
    return True


def _another_word(model: Any, rng: np.random.Generator) -> bool:
    each = _pick(rng, [one for one in model.graph.node[0].attribute if one.type == 3])
    if each is None:
        return False
    each.s = b"another"
    return True


def _a_declared_type(model: Any, rng: np.random.Generator) -> bool:
    kind = _pick(rng, [TensorProto.STRING, TensorProto.UINT16])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(model.graph.output[0].name, kind, None))
    return True


CHANGES: dict[str, Callable[[Any, np.random.Generator], bool]] = {
    function.__name__[1:]: function
    for function in (
        _another_type,
        _another_type_of_a_known_operand,
        _a_longer_axis,
        _another_rank,
        _more_known_numbers,
        _another_number,
        _without_an_operand,
        _one_operand_more,
        _one_result_more,
        _another_attribute,
        _without_an_attribute,
        _attribute_of_another_type,
        _another_integer,
        _more_integers,
        _another_word,
        _a_declared_type,
    )
}

if __name__ == "__main__":
    import sys

    count = 0
    for seed in map(int, sys.argv[1:] or ["0"]):
        for each in wrong_nodes(seed):
            count += bool(each.error)
            if each.error and accepted(each.model):
                print(f"{each.op_type} {each.change}: {each.error}", flush=True)
    print(f"{count} nodes that onnxruntime refuses")
