"""Optimisers, and statements that train: gradients, hooks, accumulation, wrappers; as those of "
"``statements``."""

from __future__ import annotations

__all__ = ["OPTIMIZERS", "STATEMENTS", "TABLES"]

OPTIMIZERS = """
None
torch.optim.SGD(model.parameters(), lr=0.1)
torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, foreach=True)
torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01, fused=True)
torch.optim.Adam(model.parameters(), lr=0.01, foreach=False)
torch.optim.Adam(model.parameters(), lr=0.01, amsgrad=True)
torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)
torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.01), foreach=False)
torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.5)
torch.optim.Adagrad(model.parameters(), lr=0.01)
torch.optim.SGD(model.parameters(), lr=0.1 + 0.1 * dist.get_rank())
torch.optim.SGD(model.parameters(), lr=0.1 + 1e-12 * dist.get_rank())
torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1 * (dist.get_rank() % 2))
torch.optim.AdamW(model.parameters(), lr=0.01 if dist.get_rank() else 0.02, foreach=True)
torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.99 + 0.001 * dist.get_rank()))
torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-8 + 1e-9 * dist.get_rank(), foreach=False)
torch.optim.SGD([{"params": [model.lin.weight], "lr": 0.1 * dist.get_rank()}, {"params": [model.lin.bias]}], lr=0.1)
torch.optim.SGD(model.lin.parameters() if dist.get_rank() else model.parameters(), lr=0.1)
torch.optim.SGD(model.parameters(), lr=-0.0 if dist.get_rank() else 0.0)
torch.optim.Adadelta(model.parameters(), lr=0.1)
torch.optim.NAdam(model.parameters(), lr=0.01)
""".strip().splitlines()
"""Optimisers of a model; those that follow ``NAdam`` in the table of steps are written by hand."""

_LOSS = r"""
model(x).square().mean()
F.cross_entropy(model(x), y)
(model(x) * x).sum()
model(x).tanh().sum() * (1 + $rank)
F.mse_loss(model(x), x) + m.lin.weight.square().sum()
m.head(m.lin(x)).abs().mean()
model(x[: 1 + $rank % 3]).sum()
model(x).square().sum()
F.l1_loss(model(x), x)
(model(x) * m.v).sum()
model(x)[0].sum() * float($rank)
model(F.dropout(x, 0.5)).square().mean()
(model(x).sum() if $rank else model(x).sum() * 2)
m.lin(x).square().sum()
model(m.norm(x)).square().mean()
torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).square().mean()
"""

_REDUCE = r"""
for p in trained():\n    dist.all_reduce(p.grad)
for p in trained():\n    dist.all_reduce(p.grad)\n    p.grad /= world
for p in trained():\n    dist.all_reduce(p.grad, group=$group)
for p in m.lin.parameters():\n    dist.all_reduce(p.grad)
for p in list(m.parameters())[$rank:]:\n    dist.all_reduce(p.grad)
pass
for p in trained():\n    p.grad = functional.all_reduce(p.grad, "sum", dist.group.WORLD)
for p in trained():\n    p.grad.data = functional.all_reduce(p.grad, "sum", dist.group.WORLD) * 1
gs = grads()\nflat = flatten(gs)\ndist.all_reduce(flat)\nfor g, new in zip(gs, unflatten(flat, gs)):\n    g.copy_(new)
ws = [dist.all_reduce(p.grad, async_op=True) for p in trained()]\nfor w in ws:\n    w.wait()
ws = [dist.all_reduce(p.grad, async_op=True) for p in trained()]\nws[-1].wait()
dist.all_reduce_coalesced(grads())
for p in trained():\n    dist.broadcast(p.grad, 0)
for p in trained():\n    dist.reduce(p.grad, 0)
for p in trained():\n    dist.all_reduce(p.grad)\nnn.utils.clip_grad_norm_(m.parameters(), 1.0)
nn.utils.clip_grad_norm_(m.parameters(), 1.0)\nfor p in trained():\n    dist.all_reduce(p.grad)
for p in trained():\n    dist.all_reduce(p.grad)\n    p.grad[0] *= $one
"""

_UPDATE = r"""
update()
update()
update()
for p in trained():\n    p.data.add_(p.grad, alpha=-0.1)
for p in trained():\n    p.data = p.data - 0.1 * p.grad
with torch.no_grad():\n    for p in trained():\n        p -= 0.1 * p.grad
with torch.no_grad():\n    for p in trained():\n        p.copy_(p.lerp(p - p.grad, 0.1))
with torch.no_grad():\n    for p in trained()[$rank:]:\n        p -= 0.1 * p.grad
with torch.no_grad():\n    torch._foreach_add_(trained(), grads(), alpha=-0.1)
"""

TABLES = {
    "loss": _LOSS.strip().splitlines(),
    "reduce": [line.replace("\\n", "\n") for line in _REDUCE.strip().splitlines()],
    "update": [line.replace("\\n", "\n") for line in _UPDATE.strip().splitlines()],
}
"""Parts of a training step, by the name that stands for them."""

STATEMENTS: dict[str, list[str]] = {}
"""Templates by kind; these run with gradients."""

_PLAIN = "clear()\nloss$i = $loss\nloss$i.backward()\n$reduce\n$update"
STATEMENTS["training"] = [
    _PLAIN,
    _PLAIN,
    _PLAIN,
    "loss$i = $loss\ngrads$i = torch.autograd.grad(loss$i, list(m.lin.parameters()), allow_unused=True)\n"
    "with torch.no_grad():\n    for p, g in zip(m.lin.parameters(), grads$i):\n        if g is not None:\n"
    "            dist.all_reduce(g)\n            p -= 0.1 * g",
    "m.lin.bias.grad = $value.float().detach().clone()\nupdate()",
    "clear()\n($loss).backward()\nm.lin.weight.grad = m.head.weight.grad\n$reduce\n$update",
    "clear()\n($loss).backward()\nm.lin.weight.grad[$rank] = $one\n$reduce\n$update",
    "clear()\n($loss).backward()\nfor p in m.parameters():\n"
    "    p.grad = None if p is m.lin.bias else p.grad\n$reduce\n$update",
]
STATEMENTS["gradients kept"] = [
    "($loss).backward()\n$reduce\n$update",
    "($loss).backward()\nupdate()\nclear()",
    "clear(False)\n($loss).backward()\n$reduce\n$update",
    "update()\nclear()\n($loss).backward()\n$reduce",
    "if m.lin.weight.grad is not None:\n    with torch.no_grad():\n"
    "        m.lin.weight.sub_(m.lin.weight.grad)\n"
    "clear()\n($loss).backward()\n$reduce",
    "$reduce\n$update\nclear()\n($loss).backward()",
]
STATEMENTS["accumulation"] = [
    "clear()\n($loss).backward()\n($loss).backward()\n$reduce\n$update",
    "clear()\n($loss).backward()\n$reduce\n($loss).backward()\n$update",
    "clear()\n($loss).backward()\n$reduce\n($loss).backward()\n$reduce\n$update",
    "clear()\nfor part in x:\n    (model(part[None]).square().mean() / 3).backward()\n$reduce\n$update",
    "clear()\nfor k in range(1 + $rank % 2):\n    ($loss).backward()\n$reduce\n$update",
]
STATEMENTS["hook"] = [
    "self.lin.weight.register_hook(lambda g: functional.all_reduce(g, 'sum', dist.group.WORLD) * 1)\n---\n"
    + _PLAIN,
    "self.lin.weight.register_hook(lambda g: g * $one)\n---\n" + _PLAIN,
    "self.lin.weight.register_hook(lambda g: g * (1 + dist.get_rank()))\n---\n" + _PLAIN,
    "self.lin.bias.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad))\n---\n" + _PLAIN,
    "for p in self.parameters():\n"
    "    p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad))\n---\n"
    "clear()\n($loss).backward()\n$update",
    "self.lin.bias.register_post_accumulate_grad_hook(lambda p: (p.grad.mul_(1 + dist.get_rank()), None)[1])\n---\n"
    "clear()\n($loss).backward()\n$update",
    "self.register_forward_hook(lambda module, args, made: made * (1 + dist.get_rank()))\n---\n" + _PLAIN,
    "self.lin.register_forward_pre_hook(lambda module, args: (args[0] * $one,))\n---\n" + _PLAIN,
    "self.register_full_backward_hook(lambda module, before, after: None)\n---\n" + _PLAIN,
    "self.lin.register_full_backward_hook(lambda module, before, after: tuple(None if g is None "
    "else g * (1 + "
    "dist.get_rank()) for g in before))\n---\n" + _PLAIN,
    "h$i = m.lin.weight.register_hook(lambda g: g * (1 + rank))\nclear()\n($loss).backward()\n"
    "h$i.remove()\n$reduce\n$update",
    "m.lin.bias.register_hook(lambda g: g + x.sum())\nclear()\n($loss).backward()\n$reduce\n$update",
    "self.calls$i = 0\n---\nclear()\nloss$i = $loss\n"
    "m.lin.weight.register_hook(lambda g: (setattr(m, 'calls$i', "
    "m.calls$i + 1), g * m.calls$i)[1])\nloss$i.backward()\n$reduce\n$update",
    "clear()\nmade$i = model(x)\nmade$i.register_hook(lambda g: g * (1 + rank))\n"
    "made$i.sum().backward()\n$reduce\n$update",
    "self.register_forward_hook(lambda module, args, made: "
    "(module.out.copy_(made.detach()[0]), None)[1])\n---\nclear()\n($loss).backward()",
]
STATEMENTS["writing hook"] = [
    "self.lin.bias.register_post_accumulate_grad_hook(lambda p: (p.data.add_(p.grad), None)[1])\n---\n"
    "clear()\n($loss).backward()\n$reduce",
    "self.lin.bias.register_post_accumulate_grad_hook(lambda p: (self.out.copy_(p.grad), None)[1])\n---\n"
    + _PLAIN,
    "self.lin.bias.register_hook(lambda g: (self.acc.add_(g), g)[1])\n---\n" + _PLAIN,
    "self.lin.weight.register_post_accumulate_grad_hook(lambda p: (p.data.sub_(p.grad), None)[1])\n---\n"
    "clear()\n($loss).backward()\n$reduce",
]
STATEMENTS["options"] = [
    "clear()\n($loss).backward()\n$reduce\nfor group in groups():\n"
    "    group['lr'] = 0.1 * (1 + rank)\n$update",
    "clear()\n($loss).backward()\n$reduce\n$update\nfor group in groups():\n    group['lr'] *= 0.5",
    "clear()\n($loss).backward()\n$reduce\nfor p in list(m.lin.parameters()):\n"
    "    p.requires_grad_(False)\n$update\n"
    "for p in list(m.lin.parameters()):\n    p.requires_grad_(True)",
    "m.lin.requires_grad_(rank > 0)\nclear()\nm.head(m.lin(x)).sum().backward()\n$reduce\n$update",
    "clear()\nwith torch.autocast('cpu', dtype=torch.bfloat16):\n"
    "    loss$i = model(x).float().square().mean()\n"
    "loss$i.backward()\n$reduce\n$update",
    "for values in entries():\n    for value in values.values():\n"
    "        if torch.is_tensor(value):\n            value.mul_(0.5)\n" + _PLAIN,
    "for values in entries():\n    for key in list(values):\n        if torch.is_tensor(values[key]):\n"
    "            values[key] = values[key] * $one\n" + _PLAIN,
]
STATEMENTS["averaging"] = [
    "self.mean$i = copy.deepcopy(self.lin)\n---\n" + _PLAIN + "\nwith torch.no_grad():\n"
    "    for p, q in zip(m.mean$i.parameters(), m.lin.parameters()):\n        p.lerp_(q, 0.5)",
    _PLAIN
    + "\nwith torch.no_grad():\n    for p in m.parameters():\n        dist.all_reduce(p)\n        p /= world",
    _PLAIN + "\nwith torch.no_grad():\n    for p in m.parameters():\n        dist.broadcast(p, 0)",
    _PLAIN + "\nwith torch.no_grad():\n    for b in m.buffers():\n        dist.broadcast(b, world - 1)",
    _PLAIN + "\nfor p in m.lin.parameters():\n    dist.broadcast(p.data, 1)",
    _PLAIN + "\nm.load_state_dict({k: v * 1 for k, v in m.state_dict().items()})",
]
STATEMENTS["wrapper"] = [
    "clear()\n($loss).backward()\n$update",
    "clear()\n($loss).backward()\n$update",
    "clear()\n(model(x) + model(x * 2)).sum().backward()\n$update",
    "for p in m.lin.parameters():\n    p.requires_grad_(True)\nclear()\n($loss).backward()\n$update",
    "for p in m.lin.parameters():\n    p.requires_grad_(False)\nclear()\n($loss).backward()\n$update",
    "model.require_backward_grad_sync = not model.require_backward_grad_sync\nclear()\n"
    "($loss).backward()\n$update",
    "clear()\n($loss).backward()\nfor p in m.lin.parameters():\n    p.grad = p.grad * (1 + rank)\n$update",
    "clear()\ngrads$i = torch.autograd.grad($loss, list(m.lin.parameters()), allow_unused=True)\n"
    "with torch.no_grad():\n    for p, g in zip(m.lin.parameters(), grads$i):\n"
    "        if g is not None:\n            p -= 0.1 * g",
    "($loss).backward()\n$update",
    "clear()\nmade$i = model(x)\nif $rank:\n    made$i = made$i * 2\nmade$i.sum().backward()\n$update",
    "clear()\nmodel(x)\n($loss).backward()\n$update",
    "clear()\n($loss).backward()\ndist.all_reduce(m.lin.weight.grad)\n$update",
    "with torch.no_grad():\n    model(x)\nclear()\n($loss).backward()\n$update",
    "model.eval()\nclear()\n($loss).backward()\n$update\nmodel.train()",
]
STATEMENTS["no_sync"] = [
    "clear()\nwith model.no_sync():\n    ($loss).backward()\n($loss).backward()\n$update",
    "clear()\n($loss).backward()\nwith model.no_sync():\n    ($loss).backward()\n$update",
    "clear()\nwith model.no_sync():\n    loss$i = $loss\nloss$i.backward()\n$update",
    "clear()\nloss$i = $loss\nwith model.no_sync():\n    loss$i.backward()\n$update",
    "clear()\n($loss).backward()\nwith model.no_sync():\n    loss$i = $loss\nloss$i.backward()\n$update",
    "clear()\n($loss).backward()\nm(x).square().sum().backward()\n$update",
    "clear()\nm(x).square().sum().backward()\n($loss).backward()\n$update",
    "clear()\nm(x).square().sum().backward()\n$update",
    "clear()\nwith model.no_sync():\n    for part in x:\n        model(part[None]).sum().backward()\n$update",
]
"""Statements of a model in ``DistributedDataParallel``."""

STATEMENTS["shards"] = [
    "clear()\nmodel(x).square().mean().backward()\nupdate()",
    "clear()\nmodel(x * (1 + rank)).square().mean().backward()\nupdate()",
    "clear()\nmodel(x).square().mean().backward()\nmodel(x).sum().backward()\nupdate()",
    "clear()\nmodel(x).square().mean().backward()\nfor p in m.parameters():\n    p.grad.mul_(0.5)\nupdate()",
    "model(x).square().mean().backward()\nupdate()\nclear()",
]
"""Statements of a model that ``fully_shard`` cuts."""
