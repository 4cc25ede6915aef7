"""Updates of ``ai.onnx.preview.training``: a rate, a count of updates, then groups of parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from popsr import ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, cast
from popsr.bridge.onnx._rules import rule
from popsr.bridge.onnx._tensors import reshaped

__all__: list[str] = []

_DOMAIN = "ai.onnx.preview.training"


def _of_all(operands: Sequence[Tensor], width: int, update: Callable[..., Sequence[Tensor]]) -> list[Tensor]:
    """New values of each kind for all parameters, kind by kind."""
    count = len(operands) // width
    groups = [update(*(operands[kind * count + i] for kind in range(width))) for i in range(count)]
    return [each[kind] for kind in range(width - 1) for each in groups]


def _regularised(node: Node, x: Tensor, g: Tensor) -> Tensor:
    return ops.add(ops.mul(x, node.like(node.number("norm_coefficient", 0.0), x)), g)


def _mixed(node: Node, old: Tensor, new: Tensor, share: float) -> Tensor:
    return ops.add(ops.mul(old, node.like(share, old)), ops.mul(new, node.like(1 - share, new)))


@rule("Adagrad", domain=_DOMAIN)
def _adagrad(node: Node, rate: Tensor, count: Tensor, *operands: Tensor) -> list[Tensor]:
    decay = ops.mul(cast(count, rate.dtype), node.like(node.number("decay_factor", 0.0), rate))
    step = reshaped(ops.div(rate, ops.add(decay, node.like(1, rate))), ())

    def update(x: Tensor, g: Tensor, h: Tensor) -> list[Tensor]:
        g = _regularised(node, x, g)
        h = ops.add(h, ops.square(g))
        scale = ops.add(ops.sqrt(h), node.like(node.number("epsilon", 1e-6), h))
        return [ops.sub(x, ops.div(ops.mul(step, g), scale)), h]

    return _of_all(operands, 3, update)


@rule("Momentum", domain=_DOMAIN)
def _momentum(node: Node, rate: Tensor, count: Tensor, *operands: Tensor) -> list[Tensor]:
    alpha = node.number("alpha")
    step = reshaped(rate, ())
    beta = node.like(node.number("beta"), step)
    first = ops.equal(reshaped(count, ()), node.like(0, count))
    share = ops.where(first, node.like(1, step), beta)

    def update(x: Tensor, g: Tensor, v: Tensor) -> list[Tensor]:
        g = _regularised(node, x, g)
        v = ops.add(ops.mul(v, node.like(alpha, v)), ops.mul(share, g))
        if node.word("mode", ("standard", "nesterov")) == "nesterov":
            return [ops.sub(x, ops.mul(step, ops.add(g, ops.mul(v, node.like(alpha, v))))), v]
        return [ops.sub(x, ops.mul(step, v)), v]

    return _of_all(operands, 3, update)


@rule("Adam", domain=_DOMAIN)
def _adam(node: Node, rate: Tensor, count: Tensor, *operands: Tensor) -> list[Tensor]:
    alpha, beta = node.number("alpha", 0.9), node.number("beta", 0.999)
    after = node.number("norm_coefficient_post", 0.0)
    step, number = reshaped(rate, ()), cast(reshaped(count, ()), rate.dtype)
    one = node.like(1, step)
    left = [ops.sub(one, ops.pow(node.like(share, step), number)) for share in (alpha, beta)]
    corrected = ops.div(ops.mul(step, ops.sqrt(left[1])), left[0])
    step = ops.where(ops.greater(number, node.like(0, number)), corrected, step)

    def update(x: Tensor, g: Tensor, v: Tensor, h: Tensor) -> list[Tensor]:
        g = _regularised(node, x, g)
        v, h = _mixed(node, v, g, alpha), _mixed(node, h, ops.square(g), beta)
        scale = ops.add(ops.sqrt(h), node.like(node.number("epsilon", 1e-6), h))
        new = ops.sub(x, ops.div(ops.mul(step, v), scale))
        return [new if after == 0.0 else ops.mul(new, node.like(1 - after, new)), v, h]

    return _of_all(operands, 4, update)
