"""Facts that traces keep beside their nodes, against what torch makes as it runs them; and numbers of the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402

import popsr.bridge.torch as bridge  # noqa: E402
from popsr.bridge.torch._tracing.capture import record  # noqa: E402
from popsr.bridge.torch._tracing.choices import Choices  # noqa: E402
from popsr.errors import UnsupportedError  # noqa: E402


def layers(x: Any, w: Any) -> list[Any]:
    """Layers of one shape, of which the second meets what the first met, then the same op of other operands."""
    found = []
    for _ in range(3):
        x = F.layer_norm(F.gelu(x @ w), (4,))
        found += [x.t(), x.t().contiguous(), x[1:], x.expand(2, 3, 4), x.chunk(2, 1)[1], x.to(torch.float64)]
    found += [
        x.to(torch.float64) * 2,
        (x > 0) + 1,
        (x > 0) + 1.0,
        x.sum(),
        x.sum(1, keepdim=True),
        x.t() + w[:, :3],
    ]
    loss = (x * x).mean()
    return [*found, *torch.autograd.grad(loss, [w])]


def written(x: Any, w: Any) -> list[Any]:
    """Writes to tensors and views, and shapes that change in place between two equal calls."""
    y = x.detach().clone()
    a = y.mul_(2).t()
    y.t_()
    b = y.mul_(2).t()
    y.unsqueeze_(0).squeeze_(0)
    c = torch.empty(4, 3)
    torch.mul(y, 2, out=c)
    y[0].copy_(w[0, :3].detach())
    return [a, b, c, y.clone(), y.clone(memory_format=torch.contiguous_format)]


def numbers(x: Any, w: Any) -> list[Any]:
    """Numbers of the data as operands, of which a tensor and a shape are made."""
    v = x.sum().item()
    u = 1 - 0.9 ** (v * v + 1)
    y = torch.addcdiv(x, x, w[:3], value=-u)
    return [x * v, y / u**0.5, x.double() * v, x.clone().mul_(u), torch.full((2,), v), (x > 0) * v]


def kind(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.stride(), value.storage_offset(), value.device
    if isinstance(value, list | tuple):
        return [kind(each) for each in value]
    return {torch.SymFloat: float, torch.SymBool: bool}.get(type(value), type(value))


@pytest.mark.parametrize("function", [layers, written, numbers])
def test_kinds_are_torchs(function: Callable[..., Any]) -> None:
    inputs = [torch.rand(3, 4), torch.rand(4, 4, requires_grad=True)]
    module = record(function, inputs, Choices()).module
    seen = []

    interpreter: Any = torch.fx.Interpreter

    class Compared(interpreter):
        def run_node(self, n: Any) -> Any:
            made = super().run_node(n)
            if n.op == "call_function" and "val" in n.meta:
                seen.append(n)
                assert kind(n.meta["val"]) == kind(made), n.format_node()
            return made

    with torch.no_grad():
        made = Compared(module).run(*inputs)
    assert len(seen) > 10
    for got, want in zip(made, function(*inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def of_nan(model: Any, x: Any) -> Any:
    v = model(x).sum().item()
    return x * (2.0 if v != v else 1.0)


def of_two(model: Any, x: Any) -> Any:
    y = model(x).sum()
    return x * (1.0 if y.item() == y.item() else 2.0)


@pytest.mark.parametrize("step", [of_nan, of_two])
@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_nan_is_not_equal_to_itself(step: Callable[..., Any], value: float) -> None:
    model = nn.Identity()
    x = torch.full((2,), value)
    made = bridge.trace_step(step, model, None, x, replicas=1)
    [got] = made.run({"x": x.numpy()}).values()
    np.testing.assert_array_equal(
        np.asarray(got).reshape(-1), step(model, torch.tensor([value, value])).numpy()
    )


def test_a_number_of_the_step_before_is_none_of_this_one() -> None:
    class Model(nn.Module):
        def forward(self, x: Any) -> Any:
            v = x.sum().item()
            last = getattr(self, "last", v)
            self.last = v
            return x * last

    with pytest.raises(UnsupportedError):
        bridge.trace_step(lambda model, x: model(x), Model(), None, torch.ones(2), replicas=1)
