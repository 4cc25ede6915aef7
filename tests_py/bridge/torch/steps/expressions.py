"""Expressions that steps are made of, by kind: ``$name`` stands for one that is drawn from the table of that name."""

from __future__ import annotations

__all__ = ["TABLES"]

RANKS = """
rank
rank
dist.get_rank()
m.rank
(rank + 1) % world
world - 1 - rank
rank % 2
rank // 2
min(rank, 1)
0
0
1
1
1
int(os.environ["RANK"])
int(os.environ.get("LOCAL_RANK", 0))
"""
"""Numbers from 0 to the number of ranks less 1."""

NUMBERS = """
(-0.0 if $rank == 1 else 0.0)
(2.0 if $rank else 2)
(True if $rank else 1)
(False if $rank else -0.0)
1 + 1e-12 * $rank
(0.1 if $rank else 0.1 + 2**-56)
(16777217.0 if $rank else 16777217)
float($rank)
$rank
0.5 * $rank
math.copysign(float("nan"), -1.0 if $rank else 1.0)
(float("inf") if $rank == 1 else -float("inf"))
[0.5, 0.25, 0.5, 0.25][$rank]
1e-46 * $rank
0.5
0.5
0.25
2
2
-1.5
1.0
3.0
-0.5
0.0
float("nan")
world / 2
1 / world
m.number
"""
"""Numbers of Python, some of which differ between ranks in type, sign or last bit alone."""

CONSTANTS = """
torch.full((4,), $one)
torch.tensor([$one, 1.0, 2.0, 3.0])
torch.tensor($one).expand(4)
torch.tensor([$one] * 4, dtype=torch.float64)
m.v * $one
m.v + $one
m.v.double() * $one
m.v.clamp(max=$one)
m.v.masked_fill(m.v > 2, $one)
1 / (m.v * $one)
1 / torch.tensor([$one, 1.0, $one, 2.0])
torch.arange(4) * $one
torch.where(m.v > 2, $one, m.v)
torch.copysign(m.v, torch.tensor(float($one)))
torch.atan2(m.v, torch.full((4,), float($one)))
m.n * $one
m.n + $one
(m.n + 16777216) * $one
torch.ones(4) * $one
torch.full_like(m.v, $one)
m.v.new_tensor([$one, 0.0, 1.0, 2.0])
torch.add(m.v, m.v, alpha=$one)
m.v.pow($one)
torch.lerp(m.v, x[0], float($one))
m.wide.add($one)
F.threshold(m.v, 2.0, float($one))
F.leaky_relu(-m.v, float($one))
F.hardtanh(m.v, -1.0, max(float($one), 0.0))
torch.scalar_tensor($one).expand(4)
torch.linspace(0, 1, 4) - $one
torch.addcmul(m.v, m.v, x[0], value=$one)
torch.tensor([[$one, 2.0, 3.0, 4.0]])[0]
torch.from_numpy(np.full(4, $one, np.float32))
torch.nan_to_num(m.v / 0, $one)
torch.cumsum(m.v * $one, 0)
m.held
torch.tensor(m.numbers)
"""
"""Four values in which numbers of the ranks are."""

SLICES = """
m.table[$rank]
m.table[:, $rank]
x[$rank % 3]
m.table.narrow(0, $rank, 1)[0]
m.table.chunk(4)[$rank][0]
m.table.view(-1)[4 * $rank:4 * $rank + 4]
torch.roll(m.v, $rank)
m.v.index_select(0, torch.tensor([$rank, 1, 2, 3]))
m.v[torch.tensor([$rank, 0, 1, 1])]
m.table[torch.tensor($rank)]
torch.cat([m.v, x[0]])[$rank:$rank + 4]
torch.stack([m.v, x[0], m.acc, m.out])[$rank]
F.pad(m.v, ($rank, 0))[:4]
x[: $rank + 1].sum(0)
torch.ones($rank + 1, 4).sum(0)
torch.arange($rank, $rank + 4)
torch.linspace(0, 1 + $rank, 4)
F.one_hot(torch.tensor($rank), 4).float()
torch.eye(4)[$rank]
m.v.repeat($rank + 1)[:4]
m.table.diagonal($rank).sum().expand(4)
m.table.gather(0, torch.full((1, 4), $rank))[0]
torch.tril(m.table, $rank)[0]
m.table.flip($rank % 2)[0]
m.table.unbind($rank % 2)[$rank]
m.table.transpose(0, $rank % 2)[1]
m.table.sum($rank % 2)
m.v[m.order]
m.table.take(torch.arange(4) + 4 * $rank)
m.table.split([1, 1, 2])[min($rank, 1)][0]
m.table[$rank, $rank].expand(4)
m.v.view(2, 2)[$rank % 2].repeat(2)
m.table[..., $rank]
m.table[$rank:][0]
"""
"""Four values in whose places ranks are."""

VALUES = """
x[0]
x.sum(0)
x.mean(0)
m.v
m.out
m.acc
m.flat[:4]
m.table.sum(0)
m.lin.bias.detach()
m.lin.weight[1].detach()
m.n.float()
m.wide
F.one_hot(y, 4)[0].float()
m.lin(x).detach().mean(0)
(x[0] > x[1]).float()
torch.ones(4)
torch.zeros(4)
torch.tensor([1.0, -0.0, 2.0, 3.0])
$constant
$constant
$slice
$slice
$value + $value
$value * $one
torch.minimum($value, $value)
torch.where($value > 0, $value, $value)
$value.abs().sqrt()
-$value
($value).clone()
torch.sort($value)[0]
"""
"""Four values of a tensor."""

VIEWS = """
m.out
m.acc
m.v
m.flat[:4]
m.table[$rank]
m.table[:, $rank]
m.table.select(0, $rank)
m.table.narrow(0, $rank, 1).squeeze(0)
m.table.chunk(4)[$rank][0]
m.table.split(1)[$rank].view(4)
m.table.unbind()[$rank]
m.table.view(-1)[4 * $rank:4 * $rank + 4]
m.table.view(2, 8)[$rank % 2][:4]
m.table.t()[$rank]
m.table.diagonal()
m.table[$rank:$rank + 1][0]
m.table.reshape(-1)[4 * $rank:].narrow(0, 0, 4)
m.table.tensor_split(4)[$rank].view(-1)
m.table.detach()[$rank]
m.table.data[$rank]
m.table[1]
m.table[..., $rank]
m.table.permute(1, 0)[$rank]
m.table.unflatten(0, (2, 2))[$rank % 2, 0]
m.flat[4 * $rank:4 * $rank + 4]
m.flat.unfold(0, 4, 4)[$rank]
m.flat.as_strided((4,), (1,), 4)
m.lin.weight.data[$rank]
m.lin.weight.detach()[0]
m.lin.bias.data
m.lin.weight.view(-1)[4 * $rank:4 * $rank + 4]
m.state_dict()["acc"]
dict(m.named_buffers())["out"]
"""
"""Views of four elements that are written."""

WRITES = """
$view.copy_($value)
$view.add_($value)
$view.mul_($one)
$view.fill_($one)
$view.zero_()
$view[:] = $value
$view[$rank] = $one
$view.add_($one)
torch.add(m.v, m.v, out=$view)
torch.mul(x[0], 2, out=$view)
$view.sub_($value, alpha=2)
$view.lerp_(x[0], 0.5)
$view.masked_fill_(m.v > 1, $one)
$view.clamp_(min=float($one))
$view.index_fill_(0, torch.tensor([$rank]), $one)
$view.index_put_((torch.tensor([$rank]),), torch.tensor(1.0))
$view.scatter_(0, torch.tensor([$rank]), 5.0)
$view.index_copy_(0, torch.tensor([$rank, 1]), x[0, :2])
$view.index_add_(0, torch.tensor([$rank, 1]), x[0, :2])
torch._foreach_add_([$view], [x[0]])
$view.addcmul_(m.v, x[0])
$view.neg_()
$view[1:].copy_(x[0, :3])
$view[m.v > 2] = $one
$view.exponential_()
m.n.add_($rank)
m.n[$rank] += 1
m.wide.mul_($one)
m.wide.add_($one)
m.table[$rank, $rank] = $one
m.table[:, $rank] = $one
m.table[$rank] += 1
m.table.index_fill_(0, torch.tensor([$rank]), $one)
m.table.fill_diagonal_($one)
m.table[[$rank, 0]] = x[:2]
m.table.narrow(1, $rank, 1).fill_($one)
m.table.scatter_(0, torch.full((1, 4), $rank), 1.5)
"""
"""Writes in place."""

CONTIGUOUS = """
m.out
m.acc
m.table[$rank]
m.table.select(0, $rank)
m.table.view(-1)[4 * $rank:4 * $rank + 4]
m.flat[4 * $rank:4 * $rank + 4]
m.flat[:4]
m.table[1]
m.table.chunk(4)[$rank]
"""
"""Views that a collective can write."""

GROUPS = """
None
None
m.half
m.half
m.across
m.all
"""
"""Process groups, of which each rank is a member."""

TABLES = {
    name: [line for line in text.strip().splitlines() if line]
    for name, text in {
        "rank": RANKS,
        "one": NUMBERS,
        "constant": CONSTANTS,
        "slice": SLICES,
        "value": VALUES,
        "view": VIEWS,
        "write": WRITES,
        "whole": CONTIGUOUS,
        "group": GROUPS,
    }.items()
}
"""Expressions by the name that stands for them."""
