"""Einsum: products of pairs of operands, one after another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, cast, is_float
from popsr.bridge.onnx._rules import NotSupportedError, rule
from popsr.bridge.onnx._tensors import counting, moved, reshaped

__all__: list[str] = []


@rule("Einsum", since=12)
def _einsum(node: Node, *operands: Tensor) -> Tensor:
    kind = operands[0].dtype
    tensors = [t if is_float(kind) else cast(t, dtypes.float64) for t in operands]
    inputs, output = _terms(node.text("equation"), [t.rank for t in tensors])
    pairs = [_without_repeats(node, t, term) for t, term in zip(tensors, inputs, strict=True)]
    (t, term), rest = pairs[0], pairs[1:]
    for i, (other, other_term) in enumerate(rest):
        needed = set(output).union(*(each for _, each in rest[i + 1 :]))
        t, term = _product(t, term, other, other_term, needed)
    dropped = [axis for axis, label in enumerate(term) if label not in output]
    if dropped:
        t, term = ops.sum(t, dropped, False), "".join(label for label in term if label in output)
    made = moved(t, [term.index(label) for label in output]) if t.rank else t
    return made if is_float(kind) else cast(made, kind)


def _terms(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Labels of each operand and of the result; those of the ellipsis are capitals that are free."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"equation of {len(terms)} operands for {len(ranks)}")
    free = [chr(code) for code in range(0x3B1, 0x3B1 + 24)]
    widest = max(
        (rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True) if "..." in term), default=0
    )
    filled = []
    for term, rank in zip(terms, ranks, strict=True):
        count = rank - len(term) + 3 if "..." in term else 0
        full = term.replace("...", "".join(free[widest - count : widest]))
        if len(full) != rank:
            raise ValueError(f"term {term} of an operand of rank {rank}")
        filled.append(full)
    if not arrow:
        labels = "".join(filled)
        single = sorted(label for label in set(labels) if labels.count(label) == 1 and label.isascii())
        return filled, "".join(free[:widest]) + "".join(single)
    return filled, right.replace("...", "".join(free[:widest]))


def _without_repeats(node: Node, t: Tensor, term: str) -> tuple[Tensor, str]:
    """The diagonal where a label occurs twice."""
    for label in dict.fromkeys(term):
        while term.count(label) > 1:
            first = term.index(label)
            second = term.index(label, first + 1)
            extent = t.shape[first]
            order = [i for i in range(t.rank) if i not in (first, second)] + [first, second]
            wide = moved(t, order)
            flat = reshaped(wide, (*wide.shape[:-2], extent * extent))
            places = node.constant(counting(extent) * (extent + 1), dtypes.int64)
            t = ops.gather(flat, places, flat.rank - 1)
            term = "".join(each for i, each in enumerate(term) if i not in (first, second)) + label
    return t, term


def _product(a: Tensor, left: str, b: Tensor, right: str, needed: set[str]) -> tuple[Tensor, str]:
    """A matrix product: labels of both that are needed are its batch, the other ones of both are summed."""
    a, left = _summed(a, left, needed | set(right))
    b, right = _summed(b, right, needed | set(left))
    sizes = {**dict(zip(left, a.shape, strict=True))}
    for label, extent in zip(right, b.shape, strict=True):
        if sizes.setdefault(label, extent) != extent:
            if 1 not in (sizes[label], extent):
                raise ValueError(f"extents {sizes[label]} and {extent} of {label}")
            raise NotSupportedError("an extent that is broadcast")
    batch = [label for label in left if label in right and label in needed]
    inner = [label for label in left if label in right and label not in needed]
    rows = [label for label in left if label not in right]
    columns = [label for label in right if label not in left]

    def count(labels: Sequence[str]) -> int:
        return int(np.prod([sizes[label] for label in labels], dtype=np.int64))

    first = moved(a, [left.index(label) for label in (*batch, *rows, *inner)]) if a.rank else a
    second = moved(b, [right.index(label) for label in (*batch, *inner, *columns)]) if b.rank else b
    first = reshaped(first, (count(batch), count(rows), count(inner)))
    second = reshaped(second, (count(batch), count(inner), count(columns)))
    made = ops.matmul(first, second)
    term = "".join((*batch, *rows, *columns))
    return reshaped(made, tuple(sizes[label] for label in term)), term


def _summed(t: Tensor, term: str, needed: set[str]) -> tuple[Tensor, str]:
    axes = [axis for axis, label in enumerate(term) if label not in needed]
    return (
        (ops.sum(t, axes, False), "".join(label for label in term if label in needed)) if axes else (t, term)
    )
