"""Each attribute that an op has in some version is read by its rule, or changes nothing."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

onnx = pytest.importorskip("onnx")

import popsr.bridge.onnx  # noqa: E402, F401
from popsr.bridge.onnx._folding import FOLDS  # noqa: E402
from popsr.bridge.onnx._rules import RULES, find_rule  # noqa: E402

UNREAD = {
    "consumed_inputs": "memory of other readers",
    "hidden_size": "an extent of the weights",
    "multi_class": "readers choose the greatest score",
    "nodes_hitrates": "how often a branch is met",
    "nodes_hitrates_as_tensor": "how often a branch is met",
    "qk_matmul_output_mode": "of a result that the function body makes",
    "sorted": "TopK may sort",
    "Cast.round_mode": "of a type that is refused",
    "Dropout.ratio": "not in training mode, from opset 7 on",
    "Optional.type": "that of the operand",
    "SequenceEmpty.dtype": "that of what is inserted",
    "output_sequence": "results without a name are not made",
    "Gemm.broadcast": "the shapes tell it",
    "LabelEncoder.classes_strings": "refused",
    "LabelEncoder.default_int64": "of texts, which are refused",
    "LabelEncoder.default_string": "refused",
    "LabelEncoder.keys_strings": "refused",
    "LabelEncoder.values_strings": "refused",
    "MeanVarianceNormalization.axes": "of the function body",
    "Constant.sparse_value": "refused",
    "Constant.value_string": "refused",
    "Constant.value_strings": "refused",
}
"""Attributes that no rule has to read, and why."""


def texts(function: Any, seen: set[Any]) -> Iterator[str]:
    """Texts in the code of a function and of those that it calls, of the bridge."""
    function = getattr(inspect.unwrap(function), "func", function)
    if function in seen or not hasattr(function, "__code__"):
        return
    seen.add(function)
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    todo = [function.__code__]
    names: set[str] = set()
    while todo:
        code = todo.pop()
        names |= set(code.co_names)
        for each in code.co_consts:
            yield from (
                part
                for part in (each if isinstance(each, (tuple, frozenset)) else (each,))
                if isinstance(part, str)
            )
            if hasattr(each, "co_code"):
                todo.append(each)
    found = [function.__globals__.get(name) for name in names]
    for module in filter(inspect.ismodule, list(found)):
        found += [vars(module).get(name) for name in names]
    for each in (*found, *cells):
        if isinstance(each, dict):
            yield from (key for key in each if isinstance(key, str))
        if inspect.isfunction(each) and each.__module__.startswith("popsr.bridge.onnx"):
            yield from texts(each, seen)


def read_by(function: Any, fold: Any) -> set[str]:
    seen: set[Any] = set()
    return set(texts(function, seen)) | (set() if fold is None else set(texts(fold, seen)))


def is_made_of(name: str, parts: set[str], most: int = 3) -> bool:
    """True for a text, and for texts one after another, as code writes ``f"{prefix}_weights"``."""
    if name in parts:
        return True
    ends = [end for end in range(2, len(name)) if name[:end] in parts]
    return most > 1 and any(is_made_of(name[end:], parts, most - 1) for end in ends)


def schemas() -> list[Any]:
    known = list(onnx.defs.get_all_schemas_with_history())
    return [each for each in known if (each.domain, each.name) in RULES]


UNREAD_OF_MICROSOFT = {
    "Attention.rotary_embedding_dim": "rotations are refused",
    "DynamicQuantizeLSTM.hidden_size": "an extent of the weights",
    "EmbedLayerNormalization.mask_index_type": "the shape of a result that is made if it has a name",
    "GroupQueryAttention.k_norm_epsilon": "of operands that are refused",
    "GroupQueryAttention.k_quant_type": "refused",
    "GroupQueryAttention.q_norm_epsilon": "of operands that are refused",
    "GroupQueryAttention.qk_norm_epsilon": "of operands that are refused",
    "GroupQueryAttention.v_quant_type": "refused",
    "MatMulNBits.accuracy_level": "the least precision",
}


def test_no_attribute_of_onnxruntime_is_passed_over() -> None:
    pytest.importorskip("onnxruntime")
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    missed = set()
    for each in state.get_all_operator_schema():
        rule = find_rule(each.domain, each.name, 1) if each.domain == "com.microsoft" else None
        if rule is not None:
            read = read_by(rule.function, None)
            missed |= {f"{each.name}.{name}" for name in each.attributes if not is_made_of(name, read)}
    assert missed <= set(UNREAD_OF_MICROSOFT)


def test_no_attribute_is_passed_over() -> None:
    missed = []
    for each in schemas():
        rule = find_rule(each.domain, each.name, each.since_version)
        assert rule is not None
        read = read_by(rule.function, FOLDS.get(each.name) if each.domain == "" else None)
        for name in each.attributes:
            if is_made_of(name, read):
                continue
            key = name if name in UNREAD else f"{each.name}.{name}"
            if key not in UNREAD:
                missed.append(f"{key} of version {each.since_version}")
    assert missed == [], "\n".join(missed)
