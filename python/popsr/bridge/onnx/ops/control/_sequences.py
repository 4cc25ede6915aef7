"""Sequences of known length and optional values."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from popsr import ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, Sequenced, Value
from popsr.bridge.onnx._rules import NotSupportedError, rule
from popsr.bridge.onnx._tensors import numbered, reshaped
from popsr.bridge.onnx.ops.control._loops import stacked
from popsr.bridge.onnx.ops.shape._shape import cut

__all__: list[str] = []


@rule("SequenceEmpty", since=11, kind="raw")
def _sequence_empty(_node: Node) -> list[Sequenced]:
    return [Sequenced()]


@rule("SequenceConstruct", since=11, kind="raw")
def _sequence_construct(_node: Node, *values: Value) -> list[Sequenced]:
    return [Sequenced(values)]


def _sequence(value: Value) -> Sequenced:
    if not isinstance(value, Sequenced):
        raise NotSupportedError("of a sequence that is not known")
    return value


@rule("SequenceInsert", since=11, kind="raw")
def _sequence_insert(node: Node, sequence: Value, value: Value, place: Value = None) -> list[Sequenced]:
    items = list(_sequence(sequence))
    items.insert(len(items) if place is None else node.known_int(place, "position"), value)
    return [Sequenced(items)]


@rule("SequenceErase", since=11, kind="raw")
def _sequence_erase(node: Node, sequence: Value, place: Value = None) -> list[Sequenced]:
    items = list(_sequence(sequence))
    del items[-1 if place is None else node.known_int(place, "position")]
    return [Sequenced(items)]


@rule("SequenceAt", since=11, kind="raw")
def _sequence_at(node: Node, sequence: Value, place: Value) -> Value:
    return _sequence(sequence)[node.known_int(place, "position")]


@rule("SequenceLength", since=11, kind="raw")
def _sequence_length(_node: Node, sequence: Value) -> np.ndarray[Any, Any]:
    return np.asarray(len(_sequence(sequence)), np.int64)


@rule("ConcatFromSequence", since=11, kind="raw")
def _concat_from_sequence(node: Node, sequence: Value) -> Tensor:
    items = _sequence(sequence)
    if node.integer("new_axis", 0):
        return stacked(node, items, node.integer("axis"))
    tensors = [node.tensor(value) for value in items]
    return tensors[0] if len(tensors) == 1 else ops.concat(tensors, node.axis("axis", tensors[0].rank))


@rule("SplitToSequence", since=11, kind="raw")
def _split_to_sequence(node: Node, value: Value, sizes: Value = None) -> list[Sequenced]:
    t = node.tensor(value)
    axis = node.axis("axis", t.rank, 0)
    extent = t.shape[axis]
    known = np.asarray(1) if sizes is None else node.known(sizes, "split")
    if known.ndim:
        lengths = known.tolist()
    else:
        each = int(known)
        if each < 1:
            raise ValueError(f"a split of {each} elements")
        lengths = [min(each, extent - each * i) for i in numbered(-(-extent // each), "parts")]
    ends = np.cumsum([0, *lengths])
    parts = [cut(t, [int(a)], [int(b)], [axis], [1]) for a, b in itertools.pairwise(ends)]
    if sizes is None and not node.integer("keepdims", 1):
        parts = [reshaped(part, (*t.shape[:axis], *t.shape[axis + 1 :])) for part in parts]
    return [Sequenced(parts)]


@rule("OptionalHasElement", since=15, kind="raw")
def _optional_has_element(_node: Node, value: Value = None) -> np.ndarray[Any, Any]:
    return np.asarray(value is not None)


@rule("OptionalGetElement", since=15, kind="raw")
def _optional_get_element(_node: Node, value: Value) -> Value:
    if value is None:
        raise NotSupportedError("of an optional that is empty")
    return value if not isinstance(value, Sequenced) else [value]


@rule("Optional", since=15, kind="raw")
def _optional(_node: Node, value: Value = None) -> list[Value]:
    return [value]
