"""Types of proofs of steps of torch."""

from typing import assert_type

import torch

import popsr
from popsr.bridge import Proof
from popsr.testing import assert_in_step


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    model(x).backward()
    optimizer.step()


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters())


def net() -> torch.nn.Module:
    return torch.nn.Linear(3, 1)


x = torch.zeros(2, 3)
assert_type(popsr.prove(step, net, sgd, x, replicas=2), Proof)
popsr.prove(step, net(), sgd(net()), x, replicas=2, groups={"x": [[0, 1]]}, equal=["x"], ranks="first")
assert_type(assert_in_step(step, net, sgd, x, replicas=2, allow=("L6", "L7")), Proof)
popsr.prove(step, net, sgd, x, replicas=2, rank="first")  # E: call-overload: No overload variant
popsr.prove(step, net, sgd, x, replicas=2, ranks="some")  # E: call-overload: No overload variant
popsr.prove(step, net, sgd, x, replicas="2")  # E: call-overload: No overload variant
popsr.prove(step, net, sgd, x, replicas=2, mesh={}, groups={})  # E: call-overload: No overload variant
assert_in_step(step, net, sgd, x, replicas=2, unsupported="maybe")  # E: call-overload: No overload variant

program = torch.export.export(net(), (x,))
assert_type(popsr.prove(program, replicas=2, equal=["x"]), Proof)
popsr.prove(torch.fx.symbolic_trace(net()), x, replicas=2, states={"w": 0})
popsr.prove(program, replicas=2, states=3)  # E: call-overload: No overload variant
