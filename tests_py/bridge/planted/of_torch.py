"""Steps of PyTorch: ``step(model, *batch)`` with collectives by hand, on 4 ranks."""

from __future__ import annotations

from tests_py.bridge.planted.cases import Case

__all__ = ["CASES", "PRELUDE"]

PRELUDE = """
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
from torch import nn
"""

_MLP = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.two(torch.tanh(self.one(x)))


def mean(t, group=None):
    return fc.all_reduce(t, "avg", dist.group.WORLD if group is None else group)


def gradients(model, x, y):
    loss = ((model(x) - y) ** 2).mean()
    names, ps = zip(*model.named_parameters())
    return loss, dict(zip(names, torch.autograd.grad(loss, ps)))


model, batch, options = Net, (torch.ones(2, 4), torch.zeros(2, 2)), {}

"""

_SGD = (
    _MLP
    + """
def step(model, x, y):
    loss, grads = gradients(model, x, y)
    with torch.no_grad():
        for name, p in model.named_parameters():
            g = grads[name]
            {{}}
            p -= 0.1 * g
    return mean(loss.detach())
"""
)

_LAST = (
    _MLP
    + """
def step(model, x, y):
    loss, grads = gradients(model, x, y)
    with torch.no_grad():
        for layer, name in ((model.one, "weight"), (model.one, "bias"), (model.two, "weight")):
            getattr(layer, name).sub_(0.1 * mean(grads[f"{'one' if layer is model.one else 'two'}.{name}"]))
        {{}}
    return mean(loss.detach())
"""
)

_PAIRS = (
    _MLP
    + """
def step(model, x, y):
    pair = dist.new_subgroups_by_enumeration([[0, 1], [2, 3]])[0]
    loss, grads = gradients(model, x, y)
    with torch.no_grad():
        for name, p in model.named_parameters():
            {{}}
            p -= 0.1 * g
    return mean(loss.detach())
"""
)

_DECAY = (
    _MLP
    + """
def step(model, x, y):
    loss, grads = gradients(model, x, y)
    with torch.no_grad():
        for name, p in model.named_parameters():
            {{}}
            p -= 0.1 * mean(grads[name])
    return mean(loss.detach())
"""
)

_NOISE = (
    _MLP
    + """
def step(model, x, y):
    loss, grads = gradients(model, x, y)
    with torch.no_grad():
        noise = torch.randn(8)
        {{}}
        for name, p in model.named_parameters():
            p -= 0.1 * mean(grads[name])
        model.one.bias.add_(0.001 * noise)
    return mean(loss.detach())
"""
)

_SCHEDULE = (
    _MLP.replace(
        "self.one, self.two",
        'self.register_buffer("rates", torch.linspace(0.1, 0.4, 4))\n        self.one, self.two',
    )
    + """
def step(model, x, y):
    loss, grads = gradients(model, x, y)
    {{}}
    with torch.no_grad():
        for name, p in model.named_parameters():
            p -= rate * mean(grads[name])
    return mean(loss.detach())
"""
)

_NORM = (
    _MLP.replace("self.one, self.two", "self.norm = nn.BatchNorm1d(4)\n        self.one, self.two").replace(
        "self.one(x)", "self.one(self.norm(x))"
    )
    + """
def step(model, x, y):
    loss, grads = gradients(model, x, y)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p -= 0.1 * mean(grads[name])
        for stat in (model.norm.running_mean, model.norm.running_var):
            {{}}
    return mean(loss.detach())
"""
)

_BUFFERS = _MLP.replace(
    "self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 2)",
    """self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 2)
        for name, p in list(self.named_parameters()):
            self.register_buffer("extra_" + name.replace(".", "_"), torch.zeros_like(p))""",
)

_MOMENT = (
    _BUFFERS
    + """
def step(model, x, y):
    loss, grads = gradients(model, x, y)
    with torch.no_grad():
        for name, p in model.named_parameters():
            m = model.get_buffer("extra_" + name.replace(".", "_"))
            local, g = grads[name], mean(grads[name])
            {{}}
            p -= 0.1 * m
    return mean(loss.detach())
"""
)

_AVERAGE = (
    _BUFFERS
    + """
def step(model, x, y):
    loss, grads = gradients(model, x, y)
    with torch.no_grad():
        for name, p in model.named_parameters():
            average = model.get_buffer("extra_" + name.replace(".", "_"))
            mine = p - 0.1 * grads[name]
            p -= 0.1 * mean(grads[name])
            {{}}
    return mean(loss.detach())
"""
)

_CLIP = (
    _MLP
    + """
def step(model, x, y):
    loss, grads = gradients(model, x, y)
    with torch.no_grad():
        means = {name: mean(g) for name, g in grads.items()}
        {{}}
        factor = torch.clamp(1.0 / norm, max=1.0)
        for name, p in model.named_parameters():
            p -= 0.1 * factor * means[name]
    return mean(loss.detach())
"""
)

_SCALER = (
    _MLP.replace(
        "self.one, self.two",
        'self.register_buffer("scale", torch.tensor(1024.0))\n        self.one, self.two',
    )
    + """
def step(model, x, y):
    loss, grads = gradients(model, x, y)
    means = {name: mean(g) for name, g in grads.items()}
    {{}}
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.where(finite, p - 0.1 * means[name], p))
        model.scale.copy_(torch.where(finite, model.scale * 1.01, model.scale * 0.5))
    return mean(loss.detach())
"""
)

_TENSOR = '''
class Net(nn.Module):
    """Two data groups of two ranks that split the hidden layer."""

    def __init__(self):
        super().__init__()
        part = dist.get_rank() % 2
        torch.manual_seed(0)
        one, two = torch.randn(8, 4), torch.randn(2, 8)
        self.one = nn.Parameter(one.chunk(2, 0)[part].clone())
        self.two = nn.Parameter(two.chunk(2, 1)[part].clone())
        self.bias = nn.Parameter(torch.zeros(2))


def step(model, x, y):
    ranks, rank = [[0, 1], [2, 3]], dist.get_rank()
    within = dist.new_subgroups_by_enumeration(ranks)[0]
    across = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])[0]
    with torch.no_grad():
        h = torch.tanh(x @ model.one.T)
        part = h @ model.two.T
        LINE_SUM
        d = 2.0 * (out + model.bias - y) / out.numel()
        dh = (d @ model.two) * (1.0 - h * h)
        for p, g in ((model.one, dh.T @ x), (model.two, d.T @ h), (model.bias, d.sum(0))):
            LINE_MEAN
            p -= 0.1 * g


model, batch = Net, (torch.ones(2, 4), torch.zeros(2, 2))
options = {"groups": {"[xy]": [[0, 1], [2, 3]], "one": [[0, 2], [1, 3]], "two": [[0, 2], [1, 3]]}}
'''
_TENSOR_SUM = _TENSOR.replace("LINE_SUM", "{{}}").replace("LINE_MEAN", 'g = fc.all_reduce(g, "avg", across)')
_TENSOR_MEAN = _TENSOR.replace("LINE_SUM", 'out = fc.all_reduce(part, "sum", within)').replace(
    "LINE_MEAN", "{{}}"
)

_SHARDED = '''
class Net(nn.Module):
    """Weights in shards: the two ranks of a group hold a half each, and two groups hold the same."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.w = nn.Parameter(torch.randn(4, 2).chunk(2, 0)[dist.get_rank() % 2].clone())


def step(model, x, y):
    within = dist.new_subgroups_by_enumeration([[0, 1], [2, 3]])[0]
    across = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])[0]
    full = fc.all_gather_tensor(model.w.detach(), 0, within).requires_grad_()
    loss = ((x @ full - y) ** 2).mean()
    (grad,) = torch.autograd.grad(loss, full)
    with torch.no_grad():
        {{}}
        model.w.sub_(0.1 * shard)


model, batch = Net, (torch.ones(2, 4), torch.zeros(2, 2))
options = {"groups": {"w": [[0, 2], [1, 3]]}}
'''

_MEAN = "g = mean(g)"
_ACROSS = 'g = fc.all_reduce(g, "avg", across)'
_SUM = 'out = fc.all_reduce(part, "sum", within)'
_SHARD = 'shard = fc.all_reduce(fc.reduce_scatter_tensor(grad, "avg", 0, within), "avg", across)'

CASES = (
    Case("gradients without all_reduce", "forgotten collective", _SGD, _MEAN, "g = g * 1.0"),
    Case(
        "one gradient without all_reduce",
        "forgotten collective",
        _LAST,
        'model.two.bias.sub_(0.1 * mean(grads["two.bias"]))',
        'model.two.bias.sub_(0.1 * grads["two.bias"])',
    ),
    Case("partial outputs without a sum", "forgotten collective", _TENSOR_SUM, _SUM, "out = part * 1.0"),
    Case(
        "shards without a mean over groups",
        "forgotten collective",
        _SHARDED,
        _SHARD,
        'shard = fc.reduce_scatter_tensor(grad, "avg", 0, within) * 1.0',
    ),
    Case(
        "shards of local gradients",
        "forgotten collective",
        _SHARDED,
        _SHARD,
        'shard = fc.all_reduce(grad.view(2, 2, 2)[dist.get_rank() % 2] * 1.0, "avg", across)',
    ),
    Case(
        "all_reduce twice",
        "doubled collective",
        _SGD,
        _MEAN,
        'g = fc.all_reduce(mean(g), "sum", dist.group.WORLD)',
    ),
    Case(
        "sum of partial outputs twice",
        "doubled collective",
        _TENSOR_SUM,
        _SUM,
        'out = fc.all_reduce(fc.all_reduce(part, "sum", within), "sum", within)',
    ),
    Case(
        "mean over the tensor group",
        "wrong axis",
        _TENSOR_MEAN,
        _ACROSS,
        'g = fc.all_reduce(g, "avg", within)',
    ),
    Case(
        "sum over the data group", "wrong axis", _TENSOR_SUM, _SUM, 'out = fc.all_reduce(part, "sum", across)'
    ),
    Case(
        "mean over everyone",
        "wrong group",
        _TENSOR_MEAN,
        _ACROSS,
        'g = fc.all_reduce(g, "avg", dist.group.WORLD)',
    ),
    Case(
        "mean in pairs",
        "wrong group",
        _PAIRS,
        "g = mean(grads[name])",
        'g = fc.all_reduce(grads[name], "avg", pair)',
    ),
    Case(
        "decay by rank",
        "rank-dependent branch",
        _DECAY,
        "p.mul_(0.99)",
        "p.mul_(0.9 if dist.get_rank() == 0 else 0.99)",
    ),
    Case(
        "noise of each rank",
        "rank-dependent seed",
        _NOISE,
        "noise = fc.broadcast(noise, 0, dist.group.WORLD)",
        "noise = noise * 1.0",
    ),
    Case(
        "rate looked up by rank",
        "rank-dependent data order",
        _SCHEDULE,
        "rate = model.rates[1] * 1.0",
        "rate = model.rates[dist.get_rank()] * 1.0",
    ),
    Case(
        "statistics of each rank",
        "state not synchronised",
        _NORM,
        "stat.copy_(mean(stat))",
        "stat.copy_(stat * 1.0)",
    ),
    Case(
        "moment of each rank",
        "state not synchronised",
        _MOMENT,
        "m.mul_(0.9).add_(g)",
        "m.mul_(0.9).add_(local)",
    ),
    Case(
        "average of each rank",
        "state not synchronised",
        _AVERAGE,
        "average.mul_(0.99).add_(0.01 * p)",
        "average.mul_(0.99).add_(0.01 * mine)",
    ),
    Case(
        "norm of each rank",
        "state not synchronised",
        _CLIP,
        "norm = torch.sqrt(sum((g * g).sum() for g in means.values()))",
        "norm = torch.sqrt(sum((g * g).sum() for g in grads.values()))",
    ),
    Case(
        "update skipped by each rank",
        "cond on a varying predicate",
        _SCALER,
        'finite = torch.isfinite(means["one.weight"]).all()',
        'finite = torch.isfinite(grads["one.weight"]).all()',
    ),
    Case(
        "mean of partial outputs",
        "mean for sum",
        _TENSOR_SUM,
        _SUM,
        'out = fc.all_reduce(part, "avg", within)',
    ),
)
