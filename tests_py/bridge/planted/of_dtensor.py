"""Steps of PyTorch with DTensors: placements that are wrong, and parts that are taken for whole values."""

from __future__ import annotations

from tests_py.bridge.planted.cases import Case

__all__ = ["CASES", "PRELUDE"]

PRELUDE = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
"""

_DATA = '''
class Net(nn.Module):
    """A weight and a bias on all ranks; each rank has rows of its own."""

    def __init__(self):
        super().__init__()
        self.mesh = init_device_mesh("cpu", (4,))
        self.w = nn.Parameter(distribute_tensor(torch.linspace(-1, 1, 8).view(4, 2), self.mesh, [Replicate()]))
        self.b = nn.Parameter(distribute_tensor(torch.ones(2), self.mesh, [Replicate()]))
        for name in ("stat", "moment"):
            self.register_buffer(name, distribute_tensor(torch.zeros(2), self.mesh, [Replicate()]))


def gradients(model, rows):
    loss = ((rows @ model.w + model.b) ** 2).mean()
    return loss.detach(), *torch.autograd.grad(loss, (model.w, model.b))


model, batch, options = Net, (torch.ones(2, 4),), {}

'''

_ROWS = (
    _DATA
    + """
def step(model, x):
    {{}}
    loss, gw, gb = gradients(model, rows)
    with torch.no_grad():
        model.w.sub_(0.1 * gw)
        model.b.sub_(0.1 * gb)
    return loss.full_tensor()
"""
)

_LOCAL = (
    _DATA
    + """
def step(model, x):
    rows = DTensor.from_local(x, model.mesh, [Shard(0)])
    loss, gw, gb = gradients(model, rows)
    with torch.no_grad():
        model.w.sub_(0.1 * gw)
        {{}}
        model.b.to_local().sub_(0.1 * g)
    return loss.full_tensor()
"""
)

_STAT = (
    _DATA
    + """
def step(model, x):
    rows = DTensor.from_local(x, model.mesh, [Shard(0)])
    loss, gw, gb = gradients(model, rows)
    with torch.no_grad():
        {{}}
        model.stat.copy_(0.9 * model.stat + 0.1 * stat.redistribute(model.mesh, [Replicate()]))
        model.w.sub_(0.1 * gw)
        model.b.sub_(0.1 * gb)
    return loss.full_tensor()
"""
)

_NOISE = (
    _DATA
    + """
def step(model, x):
    rows = DTensor.from_local(x, model.mesh, [Shard(0)])
    loss, gw, gb = gradients(model, rows)
    with torch.no_grad():
        {{}}
        model.w.sub_(0.1 * gw)
        model.b.sub_(0.1 * gb)
        model.b.sub_(0.001 * noise)
    return loss.full_tensor()
"""
)

_MOMENT = (
    _DATA
    + """
def step(model, x):
    rows = DTensor.from_local(x, model.mesh, [Shard(0)])
    loss, gw, gb = gradients(model, rows)
    mine = ((x @ model.w.to_local() + model.b.to_local()) ** 2).mean(0)
    with torch.no_grad():
        {{}}
        model.w.sub_(0.1 * gw)
        model.b.sub_(0.1 * model.moment)
    return loss.full_tensor()
"""
)

_MEAN = (
    _DATA
    + """
def step(model, x):
    local = (x.t() @ (x @ model.w.to_local())) / x.shape[0]
    g = DTensor.from_local(local, model.mesh, [Partial("avg")]).full_tensor()
    with torch.no_grad():
        {{}}
        model.w.to_local().sub_(0.1 * g)
    return g.sum()
"""
)

_SPLIT = '''
class Net(nn.Module):
    """A hidden layer that is split over the ranks; all have the same rows."""

    def __init__(self):
        super().__init__()
        self.mesh = init_device_mesh("cpu", (4,))
        self.one = nn.Parameter(distribute_tensor(torch.linspace(-1, 1, 32).view(4, 8), self.mesh, [Shard(1)]))
        self.two = nn.Parameter(distribute_tensor(torch.linspace(1, -1, 16).view(8, 2), self.mesh, [Shard(0)]))
        self.bias = nn.Parameter(distribute_tensor(torch.zeros(2), self.mesh, [Replicate()]))


def step(model, x):
    rows = DTensor.from_local(x, model.mesh, [Replicate()])
    with torch.no_grad():
        h = torch.tanh(rows @ model.one)
        part = h @ model.two
        LINE_SUM
        d = 2.0 * (out + model.bias.to_local()) / out.numel()
        g = DTensor.from_local(d, model.mesh, [Replicate()])
        gtwo = h.t() @ g
        LINE_NORM
        factor = torch.clamp(1.0 / norm, max=1.0)
        model.two.to_local().sub_(0.1 * factor * gtwo.to_local())
        model.bias.to_local().sub_(0.1 * factor * d.sum(0))
    return out


model, batch, options = Net, (torch.ones(2, 4),), {"equal": ["x"]}
'''
_NORM_LINE = "norm = (gtwo * gtwo).sum().full_tensor().sqrt()"
_SUM_LINE = "out = part.redistribute(model.mesh, [Replicate()]).to_local()"
_SUM = _SPLIT.replace("LINE_SUM", "{{}}").replace("LINE_NORM", _NORM_LINE)
_NORM = _SPLIT.replace("LINE_SUM", _SUM_LINE).replace("LINE_NORM", "{{}}")

_MESH = '''
class Net(nn.Module):
    """Two data groups of two ranks that hold the same weight and the same rows."""

    def __init__(self):
        super().__init__()
        self.mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
        whole = torch.linspace(-1, 1, 8).view(4, 2)
        self.w = nn.Parameter(distribute_tensor(whole, self.mesh, [Replicate(), Replicate()]))


def step(model, x):
    LINE_ROWS
    loss = ((rows @ model.w) ** 2).mean()
    (g,) = torch.autograd.grad(loss, (model.w,))
    with torch.no_grad():
        model.w.sub_(0.1 * g)
    local = (x.t() @ x).detach()
    LINE_MEAN
    return loss.detach().full_tensor(), mean.sum()


model, batch = Net, (torch.ones(2, 4),)
options = {"groups": {"x": [[0, 1], [2, 3]]}}
'''
_ROWS_LINE = "rows = DTensor.from_local(x, model.mesh, [Shard(0), Replicate()])"
_AXIS = _MESH.replace("LINE_ROWS", "{{}}").replace(
    "LINE_MEAN", 'mean = DTensor.from_local(local, model.mesh["data"], [Partial("avg")]).full_tensor()'
)

CASES = (
    Case(
        "rows called replicated",
        "wrong placement",
        _ROWS,
        "rows = DTensor.from_local(x, model.mesh, [Shard(0)])",
        "rows = DTensor.from_local(x, model.mesh, [Replicate()])",
    ),
    Case(
        "statistics called replicated",
        "wrong placement",
        _STAT,
        'stat = DTensor.from_local(x.mean(0)[:2], model.mesh, [Partial("avg")])',
        "stat = DTensor.from_local(x.mean(0)[:2], model.mesh, [Replicate()])",
    ),
    Case(
        "part of a gradient taken for the whole",
        "forgotten collective",
        _LOCAL,
        "g = gb.redistribute(model.mesh, [Replicate()]).to_local()",
        "g = (x @ model.w.to_local() + model.b.to_local()).mean(0)",
    ),
    Case(
        "partial products taken for whole ones",
        "forgotten collective",
        _SUM,
        _SUM_LINE,
        "out = part.to_local()",
    ),
    Case(
        "whole gradient called partial",
        "doubled collective",
        _MEAN,
        "g = DTensor.from_local(g, model.mesh, [Replicate()]).full_tensor()",
        "g = DTensor.from_local(g, model.mesh, [Partial()]).full_tensor()",
    ),
    Case(
        "rows along the other axis of the mesh",
        "wrong axis",
        _AXIS,
        _ROWS_LINE,
        "rows = DTensor.from_local(x, model.mesh, [Replicate(), Shard(0)])",
    ),
    Case(
        "decay of a local tensor by rank",
        "rank-dependent branch",
        _LOCAL,
        "g = gb.full_tensor() * 1.0",
        "g = gb.full_tensor() * (0.5 if dist.get_rank() == 0 else 1.0)",
    ),
    Case(
        "noise called replicated",
        "rank-dependent seed",
        _NOISE,
        "noise = distribute_tensor(torch.randn(2), model.mesh, [Replicate()])",
        "noise = DTensor.from_local(torch.randn(2), model.mesh, [Replicate()])",
    ),
    Case(
        "moment of a local gradient",
        "state not synchronised",
        _MOMENT,
        "model.moment.to_local().mul_(0.9).add_(gb.full_tensor())",
        "model.moment.to_local().mul_(0.9).add_(mine)",
    ),
    Case(
        "norm of a shard",
        "state not synchronised",
        _NORM,
        _NORM_LINE,
        "norm = (gtwo.to_local() * gtwo.to_local()).sum().sqrt()",
    ),
    Case(
        "mean of partial products by placement",
        "mean for sum",
        _SUM,
        _SUM_LINE,
        'out = DTensor.from_local(part.to_local(), model.mesh, [Partial("avg")]).full_tensor()',
    ),
)
