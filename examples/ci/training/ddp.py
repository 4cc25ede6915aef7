"""A step of PyTorch: data parallel by ``DistributedDataParallel``."""

import torch
from torch.nn.parallel import DistributedDataParallel


def make_model():
    """The model of a rank."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
    return DistributedDataParallel(torch.nn.Sequential(*layers))


def make_optimizer(model):
    """The optimizer of a rank."""
    return torch.optim.SGD(model.parameters(), lr=0.1)


def step(model, optimizer, x, y):
    """One step of a rank on its part of the batch."""
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()


# Read by `python -m popsr prove training/ddp.py::step`: what `popsr.prove` takes behind the step, and its options.
step_args = (make_model, make_optimizer, torch.ones(4, 8), torch.ones(4, 1))
step_options = {"replicas": 2}
