"""Functions that ``popsr.prove`` reads: of which framework they are, and what it says when it cannot tell."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("torch")
import jax
import jax.numpy as jnp
import torch
import torch.distributed as dist
from jax import lax
from torch import nn

import popsr
from popsr import errors
from popsr.bridge import BridgedStep
from popsr.bridge._step import options as _options
from popsr.bridge.jax import from_jax
from popsr.bridge.onnx import load
from popsr.bridge.torch import from_fx, trace_step
from popsr.testing import assert_in_step

X = torch.ones(4, 3)
ROWS = np.ones((2, 2, 3), np.float32)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        return self.layer(x)


def step(model: Any, *rest: Any) -> Any:
    """With an optimiser, or by hand."""
    *optimizer, x = rest
    model(x).square().mean().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, dist.ReduceOp.AVG)
        if not optimizer:
            p.data.sub_(p.grad)
    for each in optimizer:
        each.step()


def sgd(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def jax_step(w: Any, x: Any) -> Any:
    return w - lax.pmean(jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w), "data")


OF_TORCH: dict[str, tuple[Any, ...]] = {
    "a module": (Net(), None, X),
    "a function that makes it": (lambda: Net(), sgd, X),
    "a class": (Net, None, X),
    "a partial function": (functools.partial(Net), sgd, X),
    "a batch of each rank": (Net, sgd, lambda rank: (X * rank,)),
}


@pytest.mark.parametrize("name", OF_TORCH)
@pytest.mark.parametrize("call", [popsr.prove, assert_in_step])
def test_functions_of_torch(call: Any, name: str) -> None:
    proof = call(step, *OF_TORCH[name], replicas=2)
    assert proof.ok, str(proof)
    assert isinstance(proof.step, BridgedStep)
    assert proof.step.source == "trace_step"


@pytest.mark.parametrize("w", [np.ones(3, np.float32), jnp.ones(3)], ids=["numpy", "jax"])
def test_functions_of_jax(w: Any) -> None:
    options: dict[str, Any] = {"replicas": 2, "axis_name": "data", "in_axes": (None, 0)}
    for f in (jax_step, functools.partial(jax_step)):
        proof = popsr.prove(f, w, ROWS, **options)
        assert proof.ok
        assert isinstance(proof.step, BridgedStep)
        assert proof.step.source == "from_jax"


W = np.ones(3, np.float32)
WRONG: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any], str]] = {
    "an option of each": (
        jax_step,
        (W, ROWS),
        {"replicas": 2, "axis_name": "data", "equal": ["x"]},
        "arguments are of two frameworks, got equal= of PyTorch and axis_name= of JAX, expected .*trace_step or",
    ),
    "a function for an array": (
        jax_step,
        (lambda: W, ROWS),
        {"mesh": {"data": 2}},
        "of two frameworks, got .* of PyTorch and mesh= of JAX",
    ),
    "a module for a jitted function": (
        jax.jit(lambda model, x: x),
        (Net(), X),
        {"replicas": 2},
        "of two frameworks, got .*Net.* of PyTorch and",
    ),
    "tensors without a model": (
        step,
        (X, X),
        {"replicas": 2},
        "no model, got .*, expected step, model, optimizer",
    ),
    "a module as step": (Net(), (X,), {"replicas": 2}, "no model, got"),
    "no replicas": (step, (Net(), None, X), {}, "no number of replicas, got no options, expected replicas=N"),
    "another thing": ("step.py", (), {}, "step cannot be read, got 'step.py', expected"),
    "a function that makes something else": (
        step,
        (dict, None, X),
        {"replicas": 2},
        "model is not a module, got dict",
    ),
    "a class of modules that needs arguments": (
        step,
        (torch.nn.Linear, None, X),
        {"replicas": 2},
        "model needs arguments, got 'Linear' with missing a required argument: 'in_features', expected a module",
    ),
    "a class of optimisers": (
        step,
        (Net(), functools.partial(torch.optim.SGD, lr=0.1), X),
        {"replicas": 2},
        r"optimizer takes parameters, got 'SGD', .*: lambda model: SGD\(model.parameters\(\), ...\)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("call", [popsr.prove, assert_in_step], ids=["prove", "assert_in_step"])
def test_what_cannot_be_told_is_refused(call: Any, name: str) -> None:
    f, args, options, text = WRONG[name]
    with pytest.raises(errors.ArgumentTypeError, match=text) as caught:
        call(f, *args, **options)
    assert len(str(caught.value).splitlines()) == 1


READERS: list[tuple[Any, Any]] = [
    (_options.JaxOptions, from_jax),
    (_options.TorchOptions, trace_step),
    (_options.GraphOptions, from_fx),
    (_options.ModelOptions, load),
]


@pytest.mark.parametrize(("options", "reader"), READERS, ids=lambda each: each.__name__)
def test_keywords_are_those_of_the_readers(options: Any, reader: Any) -> None:
    parameters = inspect.signature(reader).parameters.values()
    keywords = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert options.__annotations__.keys() - inspect.signature(BridgedStep.prove).parameters.keys() == keywords


def test_codes_of_lints_that_are_allowed_are_checked() -> None:
    ir = popsr.Ir(replication=2)
    with pytest.raises(errors.AttributeValueError, match="allow"):
        assert_in_step(ir, allow=["L2"])
    with pytest.raises(errors.ArgumentTypeError, match="allow is not a sequence"):
        assert_in_step(ir, allow="L6")
