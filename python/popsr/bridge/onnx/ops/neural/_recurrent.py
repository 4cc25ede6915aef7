"""Recurrent layers: a loop over the rows of a sequence. Products with the input are made for all rows at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node
from popsr.bridge.onnx._rules import NotSupportedError, rule
from popsr.bridge.onnx._tensors import counting, expanded, moved, reshaped
from popsr.bridge.onnx.ops.control._loops import Index, repeated, row_at, with_row

__all__ = ["Layer", "Product", "lstm"]

Function = Callable[[Tensor], Tensor]
Cell = Callable[[Tensor, list[Tensor], list[Tensor]], list[Tensor]]
"""New states, of a row of products with the input, of the states, and of weights."""


Product = Callable[[str, Tensor, Tensor], Tensor]
"""Rows times a matrix, which is "w" or "r"."""


def _plain(_name: str, rows: Tensor, matrix: Tensor) -> Tensor:
    return ops.matmul(rows, matrix)


class Layer(NamedTuple):
    """The operands of a layer: weights of each direction, and how rows are multiplied by them, by direction."""

    x: Tensor
    w: Tensor
    r: Tensor
    b: Tensor | None
    lengths: Tensor | None
    starts: tuple[Tensor | None, ...]
    p: Tensor | None = None
    products: Sequence[Product] = (_plain, _plain)


def _functions(node: Node, direction: int, defaults: Sequence[str]) -> list[Function]:
    """Activations of a direction."""
    names = node.texts("activations", ()) or tuple(defaults) * 2
    alphas, betas = list(node.floats("activation_alpha", ())), list(node.floats("activation_beta", ()))
    made = []
    for name in names:
        lower = name.lower()
        if lower in _NEEDED and not (alphas and (betas or lower not in _BETA)):
            raise NotSupportedError(
                f"activation {name} without its numbers, of which readers have other defaults"
            )
        alpha = alphas.pop(0) if lower in _ALPHA and alphas else _ALPHA.get(lower, 0.0)
        beta = betas.pop(0) if lower in _BETA and betas else _BETA.get(lower, 0.0)
        made.append(_function(node, lower, alpha, beta))
    return made[direction * len(defaults) : (direction + 1) * len(defaults)]


_ALPHA = {
    "leakyrelu": 0.01,
    "thresholdedrelu": 1.0,
    "scaledtanh": 1.0,
    "hardsigmoid": 0.2,
    "elu": 1.0,
    "affine": 1.0,
}
_NEEDED = ("affine", "scaledtanh", "thresholdedrelu")
_BETA = {"scaledtanh": 1.0, "hardsigmoid": 0.5, "affine": 0.0}


def _function(node: Node, name: str, alpha: float, beta: float) -> Function:
    def line(t: Tensor) -> Tensor:
        return ops.add(ops.mul(t, node.like(alpha, t)), node.like(beta, t))

    def below(t: Tensor, other: Tensor) -> Tensor:
        return ops.where(ops.less(t, node.like(0, t)), other, t)

    functions: dict[str, Function] = {
        "sigmoid": ops.sigmoid,
        "tanh": ops.tanh,
        "relu": ops.relu,
        "affine": line,
        "leakyrelu": lambda t: below(t, ops.mul(t, node.like(alpha, t))),
        "thresholdedrelu": lambda t: ops.where(ops.greater(t, node.like(alpha, t)), t, node.like(0, t)),
        "scaledtanh": lambda t: ops.mul(ops.tanh(ops.mul(t, node.like(beta, t))), node.like(alpha, t)),
        "hardsigmoid": lambda t: ops.minimum(ops.maximum(line(t), node.like(0, t)), node.like(1, t)),
        "elu": lambda t: below(t, ops.mul(ops.expm1(t), node.like(alpha, t))),
        "softsign": lambda t: ops.div(t, ops.add(node.like(1, t), ops.abs(t))),
        "softplus": lambda t: ops.add(ops.relu(t), ops.log1p(ops.exp(ops.negate(ops.abs(t))))),
    }
    if name not in functions:
        raise NotSupportedError(f"activation {name}")
    clip = node.number("clip", 0.0)
    if not clip:
        return functions[name]
    return lambda t: functions[name](ops.minimum(ops.maximum(t, node.like(-clip, t)), node.like(clip, t)))


def _of_direction(t: Tensor | None, number: int) -> Tensor | None:
    if t is None:
        return None
    return reshaped(ops.slice(t, number, number + 1, 1, 0) if t.shape[0] > 1 else t, t.shape[1:])


def _layer(
    node: Node, layer: Layer, gates: int, cells: Sequence[Callable[[int], Cell]], bias_parts: int
) -> list[Tensor]:
    """All directions; results are the rows, then the last states."""
    x = moved(layer.x, (1, 0, 2)) if node.integer("layout", 0) else layer.x
    starts = [
        None if s is None else moved(s, (1, 0, 2)) if node.integer("layout", 0) else s for s in layer.starts
    ]
    names = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    directions = names[node.word("direction", names, "forward")]
    if layer.w.shape[0] != len(directions):
        raise ValueError(f"weights of {layer.w.shape[0]} directions, expected {len(directions)}")
    _check_shapes(node, layer._replace(x=x, starts=tuple(starts)), gates, len(directions))
    rows: list[Tensor] = []
    last: list[list[Tensor]] = []
    for number, reverse in enumerate(directions):
        w, r = _of_direction(layer.w, number), _of_direction(layer.r, number)
        if w is None or r is None:
            raise ValueError("a layer without W or R, expected both")
        part = Layer(
            x,
            w,
            r,
            _of_direction(layer.b, number),
            layer.lengths,
            tuple(_of_direction(each, number) for each in starts),
            _of_direction(layer.p, number),
            layer.products[number : number + 1],
        )
        made, states = _one_direction(node, part, gates, cells[0](number), reverse, bias_parts)
        rows.append(made)
        last.append(states)
    return _joined(node, rows, last)


def _check_shapes(node: Node, layer: Layer, gates: int, directions: int) -> None:
    """Refuse operands that contradict each other or ``hidden_size``, which ops would broadcast."""
    hidden = layer.r.shape[-1]
    if node.integer("layout", 0) not in (0, 1):
        raise ValueError(f"layout {node.integer('layout')}, expected 0 or 1")
    if node.integer("hidden_size", hidden) != hidden:
        raise ValueError(
            f"hidden_size {node.integer('hidden_size')} of weights for {hidden}, expected {hidden}"
        )
    _, batch, size = layer.x.shape
    wanted = {
        "W": (layer.w, (directions, gates * hidden, size)),
        "R": (layer.r, (directions, gates * hidden, hidden)),
        "B": (layer.b, (directions, 2 * gates * hidden)),
        "P": (layer.p, (directions, 3 * hidden)),
        "sequence_lens": (layer.lengths, (batch,)),
        **{f"start {i}": (each, (directions, batch, hidden)) for i, each in enumerate(layer.starts)},
    }
    for name, (t, shape) in wanted.items():
        if t is not None and t.shape != shape:
            raise ValueError(f"{name} of shape {list(t.shape)}, expected {list(shape)}")


def _joined(node: Node, rows: list[Tensor], last: list[list[Tensor]]) -> list[Tensor]:
    """Directions on an axis of their own."""

    def stack(parts: Sequence[Tensor], axis: int) -> Tensor:
        wide = [reshaped(t, (*t.shape[:axis], 1, *t.shape[axis:])) for t in parts]
        return wide[0] if len(wide) == 1 else ops.concat(wide, axis)

    y = stack(rows, 1)
    states = [stack(each, 0) for each in zip(*last, strict=True)]
    if node.integer("layout", 0):
        return [moved(y, (2, 0, 1, 3)), *(moved(each, (1, 0, 2)) for each in states)]
    return [y, *states]


def _one_direction(
    node: Node, layer: Layer, gates: int, cell: Cell, reverse: bool, bias_parts: int
) -> tuple[Tensor, list[Tensor]]:
    """Rows of the first state, and the last states."""
    length, batch, _ = layer.x.shape
    hidden = layer.r.shape[-1]
    products = layer.products[0]("w", layer.x, moved(layer.w, (1, 0)))
    weights = [moved(layer.r, (1, 0))]
    size = gates * hidden
    if layer.b is not None:
        own, other = ops.split(layer.b, [size, size], 0)
        products = ops.add(products, own)
        if bias_parts == 2:
            weights.append(other)
        else:
            products = ops.add(products, other)
    elif bias_parts == 2:
        weights.append(node.like(np.zeros(size), layer.x))
    if layer.p is not None:
        weights.append(layer.p)
    zeros = expanded(node.like(0, layer.x), (batch, hidden))
    states = [zeros if start is None else start for start in layer.starts]
    buffer = expanded(node.like(0, layer.x), (length, batch, hidden))
    lengths = None if layer.lengths is None else _lengths(node, layer.lengths, length)

    def step(index: Index, carried: list[Tensor], outer: list[Any]) -> list[Tensor]:
        own, table = carried[:-1], carried[-1]
        products_row = row_at(node, outer[0], index, reverse)
        new = cell(products_row, own, list(outer[1 : 1 + len(weights)]))
        row = new[0]
        if lengths is not None:
            place = node.tensor(index)
            place = ops.sub(node.like(length - 1, place), place) if reverse else place
            inside = ops.less(place, outer[-1])
            row = ops.where(inside, row, node.like(0, row))
            new = [ops.where(inside, after, before) for before, after in zip(own, new, strict=True)]
        return [*new, with_row(node, table, index, row, reverse)]

    outer: list[Any] = [products, *weights, *([] if lengths is None else [lengths])]
    found = repeated(node, length, [*states, buffer], outer, step)
    return found[-1], found[:-1]


def _lengths(node: Node, t: Tensor, most: int) -> Tensor:
    """A column of lengths from 0 to that of the rows; others are an OutOfRangeError when the program runs."""
    numbers = node.constant(counting(most + 1), dtypes.int64)
    return reshaped(ops.gather(numbers, t, 0), (t.nelms, 1))


def _split(t: Tensor, parts: int) -> list[Tensor]:
    return list(ops.split(t, parts, -1))


@rule("RNN")
def _rnn(node: Node, x: Tensor, w: Tensor, r: Tensor, *rest: Tensor | None) -> list[Tensor]:
    b, lengths, start = (*rest, None, None, None)[:3]

    def cell(direction: int) -> Cell:
        (f,) = _functions(node, direction, ("Tanh",))
        return lambda row, state, weights: [f(ops.add(row, ops.matmul(state[0], weights[0])))]

    return _layer(node, Layer(x, w, r, b, lengths, (start,)), 1, [cell], 1)


@rule("GRU")
def _gru(node: Node, x: Tensor, w: Tensor, r: Tensor, *rest: Tensor | None) -> list[Tensor]:
    b, lengths, start = (*rest, None, None, None)[:3]
    reset_after = bool(node.integer("linear_before_reset", 0))

    def cell(direction: int) -> Cell:
        f, g = _functions(node, direction, ("Sigmoid", "Tanh"))

        def step(row: Tensor, state: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
            h, bias, parts = state[0], _split(weights[1], 3), _split(row, 3)
            columns = _split(weights[0], 3)
            z = f(ops.add(ops.add(parts[0], ops.matmul(h, columns[0])), bias[0]))
            r_gate = f(ops.add(ops.add(parts[1], ops.matmul(h, columns[1])), bias[1]))
            if reset_after:
                inner = ops.mul(r_gate, ops.add(ops.matmul(h, columns[2]), bias[2]))
            else:
                inner = ops.add(ops.matmul(ops.mul(r_gate, h), columns[2]), bias[2])
            candidate = g(ops.add(parts[2], inner))
            keep = ops.sub(node.like(1, z), z)
            return [ops.add(ops.mul(keep, candidate), ops.mul(z, h))]

        return step

    return _layer(node, Layer(x, w, r, b, lengths, (start,)), 3, [cell], 2)


@rule("LSTM")
def _lstm(node: Node, x: Tensor, w: Tensor, r: Tensor, *rest: Tensor | None) -> list[Tensor]:
    b, lengths, start, start_c, p = (*rest, *(None,) * 5)[:5]
    return lstm(node, Layer(x, w, r, b, lengths, (start, start_c), p))


def lstm(node: Node, layer: Layer) -> list[Tensor]:
    """The layer, whose products with the states are those of its direction."""
    if node.number("clip", 0.0):
        raise NotSupportedError("clip, which readers apply to the cell or do not")
    joined = bool(node.integer("input_forget", 0))

    def cell(direction: int) -> Cell:
        f, g, h_of = _functions(node, direction, ("Sigmoid", "Tanh", "Tanh"))

        def step(row: Tensor, state: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
            h, c = state
            i, o, forget, new = _split(ops.add(row, layer.products[direction]("r", h, weights[0])), 4)
            peep = _split(weights[1], 3) if len(weights) > 1 else None
            if peep is not None:
                i, forget = ops.add(i, ops.mul(peep[0], c)), ops.add(forget, ops.mul(peep[2], c))
            i = f(i)
            forget = ops.sub(node.like(1, i), i) if joined else f(forget)
            c = ops.add(ops.mul(forget, c), ops.mul(i, g(new)))
            if peep is not None:
                o = ops.add(o, ops.mul(peep[1], c))
            return [ops.mul(f(o), h_of(c)), c]

        return step

    return _layer(node, layer, 4, [cell], 1)
