"""Statements of steps, by kind: what the constructor of the model makes for it above ``---``, what the step does below.

Each has one thing that a proof may get wrong. ``$i`` is a number of its own; names that begin with ``t`` are tensors of
four elements, which later statements read.
"""

from __future__ import annotations

__all__ = ["STATEMENTS"]

STATEMENTS: dict[str, list[str]] = {}
"""Templates by kind."""

STATEMENTS["write"] = [
    "$write",
    "$write",
    "$write\n$write",
    "w$i = $view\nw$i.add_($value)\nt$i = w$i.clone()",
]
STATEMENTS["constant"] = [
    "m.out.copy_($constant)",
    "m.acc.add_($constant)",
    "t$i = ($constant).float()",
    "m.wide.copy_($constant)",
]
STATEMENTS["slice"] = ["m.out.copy_($slice)", "m.acc.add_($slice)", "t$i = ($slice).float()"]
STATEMENTS["value"] = ["t$i = ($value).float()", "m.acc.copy_($value)"]
STATEMENTS["local"] = [
    "t$i = ($value).float().clone()\nt$i[$rank] = $one",
    "u$i = torch.zeros(4, 4)\nu$i[$rank] = $value\nt$i = u$i.sum(0)",
    "u$i = torch.zeros(4, 4)\nu$i[:, $rank].add_($value)\nm.table.copy_(u$i)",
    "u$i = m.table.clone()\nu$i.narrow(0, $rank, 1).zero_().add_(1)\nt$i = u$i[1]",
    "u$i = list(m.table.unbind())\nu$i[$rank].add_(1)\nt$i = u$i[0].clone()",
    "a$i, b$i = torch.stack([m.v, x[0]]).chunk(2)\n(a$i if $rank else b$i).mul_(2)\nt$i = (a$i + b$i)[0]",
]
STATEMENTS["shared storage"] = [
    "self.register_buffer('view$i', self.flat[:4])\n---\nm.flat.add_($value.float().repeat(4))",
    "self.register_buffer('view$i', self.flat[4:8])\n---\nm.view$i.copy_($value)\nm.out.copy_(m.flat[4:8])",
    "self.register_buffer('view$i', self.table.t())\n---\nm.view$i[$rank].copy_($value)",
    "self.register_buffer('same$i', self.out)\n---\nm.same$i.add_($value)",
    "self.register_buffer('same$i', self.out.detach())\n---\nm.out.add_($value)",
    "self.same$i = self.acc\n---\nm.same$i.add_($value)",
    "self.lin.weight.data = self.flat.view(4, 4)\n---\nm.flat.mul_(0.5).add_($value.float().repeat(4))",
    "self.lin.weight.data = self.flat.view(4, 4)\n---\nm.lin.weight.add_($value.float())",
    "self.lin.bias.data = self.acc\n---\nm.acc.add_($value)",
    "self.head.weight = self.lin.weight\n---\nm.head.weight.add_($value)",
    "self.head.weight.data = self.lin.weight.data\n---\nm.head.weight[0].add_($value)",
    "self.half = self.table[:2]\n---\nm.half[1].add_($value)",
    "self.state_list = [self.out, self.acc]\n---\nfor each in m.state_list:\n    each.add_($value)",
    "self.register_buffer('tail$i', self.flat[8:], persistent=False)\n---\nm.flat[8:12].copy_($value)",
    "self.register_buffer('row$i', self.table[1])\n---\nm.table[$rank].add_($value)",
    "self.register_buffer('row$i', self.table[1])\n---\nm.row$i.add_($value)\nt$i = m.table[1].clone()",
    "self.register_buffer('bits$i', self.acc.view(torch.int32))\n---\nm.acc.copy_($value)",
    "self.shared$i = np.zeros(4, np.float32)\n"
    "self.register_buffer('array$i', torch.from_numpy(self.shared$i))"
    "\n---\nm.shared$i += 1.0 + rank",
    "self.register_buffer('wider$i', self.v.expand(4, 4))\n---\nm.v.add_($value)",
    "vector$i = torch.nn.utils.parameters_to_vector(m.lin.parameters())\nvector$i.mul_($one)\n"
    "torch.nn.utils.vector_to_parameters(vector$i, m.lin.parameters())\nvector$i.add_(x.sum())",
]
STATEMENTS["data replaced"] = [
    "m.lin.bias.data = $value.float()",
    "m.lin.bias.data = $value.float().clone()\nm.lin.bias.data.add_(1)",
    "m.lin.weight.data = m.lin.weight.data * $one",
    "m.lin.weight.data[$rank] = $value",
    "m.out.data = $value.float()",
    "m.lin.bias.data.copy_($value)",
    "m.lin.bias.data = m.acc\nm.acc.add_($value)",
    "m.lin.bias.data, m.head.bias.data = m.head.bias.data, m.lin.bias.data\nm.lin.bias.add_($value)",
    "m.acc.set_($value.float().clone())",
    "m.out.set_(m.flat[4:8])\nm.flat.add_(x.sum())",
    "m.lin.weight.data.mul_(0.5)\nm.lin.weight.data = m.lin.weight.data + x.sum()",
    "for p in m.lin.parameters():\n    p.data = p.data - 0.1 * x.sum()",
    "m.lin.bias.detach().copy_($value)",
    "m.lin.bias.data.add_($value)\nt$i = m.lin.bias.detach() * 1",
    "m.out.resize_(4).copy_($value)",
    "torch.utils.swap_tensors(m.acc, m.out)\nm.acc.add_($value)",
]
STATEMENTS["replaced"] = [
    "m.out = $value.float()",
    "m.out = $value.float().clone()\nm.out.add_(1)",
    "m.acc = m.acc + $value",
    "m.lin.bias = nn.Parameter($value.float())",
    "m.lin.weight = nn.Parameter(m.lin.weight * $one)",
    "m.register_buffer('out', $value.float())",
    "m._buffers['acc'] = $value.float()",
    "m.load_state_dict({**m.state_dict(), 'acc': $value.float()})",
    "m.out, m.acc = m.acc, m.out\nm.out.add_($value)",
    "kept$i = m.out\nm.out = m.out + 1\nkept$i.add_($value)\nt$i = m.out * 1",
    "m.table = m.table.t()\nm.table[$rank].add_($value)",
    "m.table = m.table.t().contiguous()\nm.table[$rank].add_($value)",
    "m.lin, m.head = m.head, m.lin\nm.lin.bias.add_($value)",
    "m.out = m.flat[:4]\nm.flat.add_(x.sum())",
    "del m.out\nm.register_buffer('out', $value.float())",
    "m.acc = m.acc.double() * $one",
    "torch.nn.init.constant_(m.lin.bias, $one)",
    "torch.nn.init.eye_(m.table)\nm.table[$rank] *= 2",
]
STATEMENTS["uninitialised"] = [
    "m.out.copy_(torch.empty(4))",
    "m.out.add_(torch.empty_like(m.out))",
    "t$i = torch.cat([x.new_empty(2), torch.ones(2)])",
    "m.out.copy_(torch.empty_strided((4,), (1,)))",
    "u$i = torch.empty(8)\nu$i[:4] = 1\nt$i = u$i[4:].clone()",
    "u$i = torch.empty(8)\nu$i[:4] = 1\nt$i = u$i[:4].clone()",
    "u$i = torch.empty(4)\nu$i[$rank] = 1.0\nt$i = u$i * 1",
    "u$i = torch.empty(4)\nu$i.copy_($value)\nt$i = u$i",
    "u$i = torch.empty(4, 4)\nu$i[:] = $value\nt$i = u$i[$rank]",
    "u$i = torch.empty(4)\ntorch.add(m.v, m.v, out=u$i)\nt$i = u$i",
    "m.out.copy_(torch.empty(4).fill_($one))",
    "m.out.copy_(torch.empty(4).zero_())",
    "m.acc.add_(torch.empty(4) * 0)",
    "m.n.copy_(torch.empty(4, dtype=torch.int64))",
    "m.wide.copy_(torch.empty(4, dtype=torch.float64).abs())",
    "m.acc.add_(torch.Tensor(4))",
    "m.out.copy_(torch.FloatTensor(4))",
    "m.out.resize_(6)[4:].copy_(x[0, :2])\nm.out.resize_(4)",
    "t$i = torch.zeros(2).resize_(4).clone()",
    "u$i = m.v.new_empty(4, 4).t()\nt$i = torch.where(m.v > 9, u$i[0], m.v)",
    "t$i = torch.where(m.v > 2, torch.empty(4), m.v)",
    "u$i = nn.Linear(4, 4)\nt$i = u$i(m.v).detach()",
    "u$i = nn.Linear(4, 4, device='meta').to_empty(device='cpu')\nt$i = u$i.bias.detach() * 1",
    "u$i = nn.utils.skip_init(nn.Linear, 4, 4)\nt$i = u$i.weight[0].detach() * 1",
    "u$i = torch.empty(4)\ndist.all_reduce(u$i)\nt$i = u$i",
    "u$i = torch.empty(4)\ndist.broadcast(u$i, 0)\nt$i = u$i",
    "u$i = [torch.empty(4) for _ in range(world)]\n"
    "dist.all_gather(u$i, $value.float().contiguous())\nt$i = u$i[$rank]",
    "u$i = torch.empty(4)\nm.out.copy_(u$i.exponential_())",
    "m.out.copy_(torch.empty_permuted((4,), (0,)))",
    "t$i = torch.empty(3, 4).sum(0)",
    "t$i = torch.full_like(torch.empty(4), 2.0)",
    "t$i = torch.ones_like(torch.empty(4)) * $value",
    "t$i = torch.bernoulli(torch.empty(4).fill_(1.0))",
]
STATEMENTS["python state"] = [
    "self.calls$i = 0\n---\nm.calls$i += 1\nif m.calls$i > 1:\n    $write",
    "self.calls$i = 0\n---\nm.calls$i += 1\nif m.calls$i == 3:\n    m.out.copy_(x[0])",
    "self.calls$i = 0\n---\nm.calls$i += 1\nm.acc.add_($value, alpha=m.calls$i)",
    "self.calls$i = 0\n---\nm.calls$i += $rank\nm.acc.add_(m.calls$i)",
    "if m.training:\n    m.eval()\nelse:\n    m.out.copy_(x[0])\n    m.train()",
    "m.train(not m.training)\nt$i = F.dropout(m.v, 0.5, m.training)",
    "self.kept$i = torch.zeros(4)\n---\nm.out.copy_(m.kept$i)\nm.kept$i = $value.float().clone()",
    "self.kept$i = None\n---\nif m.kept$i is None:\n    m.kept$i = x[0].clone()\nm.out.add_(m.kept$i)",
    "self.kept$i = []\n---\nm.kept$i.append(1.0)\nm.acc.add_(float(len(m.kept$i)))\n"
    "if len(m.kept$i) > 1:\n    $write",
    "self.kept$i = {}\n---\nm.kept$i.setdefault('x', x[0].clone())\nm.acc.copy_(m.kept$i['x'])",
    "self.items$i = iter(range(9))\n---\nif next(m.items$i):\n    m.out.copy_(x[0])",
    "global counted\ncounted += 1\nif counted > 1:\n    m.out.copy_(x[0])",
    "step.calls = getattr(step, 'calls', 0) + 1\nif step.calls > 1:\n    m.out.copy_($value)",
    "Model.shared = getattr(Model, 'shared', 0) + 1\nif Model.shared > 1:\n    m.out.copy_($value)",
    "remembered.append(x[0].clone())\nm.acc.copy_(remembered[0])",
    "remembered.append(0)\nm.acc.add_(float(len(remembered)) * $rank)",
    "t$i = cached(4) * $value",
    "default$i = memory()\ndefault$i.append(1)\nif len(default$i) > 1:\n    $write",
    "self.calls$i = np.zeros(1)\n---\nm.calls$i += 1\nif m.calls$i[0] > 1:\n    m.out.copy_(x[0])",
    "self.scale$i = 1.0\n---\nm.scale$i = m.scale$i * $one\nm.acc.add_(m.v, alpha=m.scale$i)",
    "os.environ['STEP$i'] = str(int(os.environ.get('STEP$i', 0)) + 1)\n"
    "if os.environ['STEP$i'] != '1':\n    m.out.copy_(x[0])",
    "m.lin.weight.requires_grad_(not m.lin.weight.requires_grad)",
    "self.order$i = [1.0, 2.0]\n---\nm.order$i.reverse()\nm.acc.mul_(m.order$i[$rank % 2])",
    "m.head = nn.Linear(4, 4)\nt$i = m.head(m.v).detach()",
    "m.extra$i = nn.Parameter($value.float())",
    "m.register_buffer('extra$i', $value.float())",
    "m.note$i = $rank\nm.acc.add_(float(m.note$i))",
    "if m.out.requires_grad:\n    m.acc.copy_(x[0])\nm.out.requires_grad_(False)",
    "self.last$i = self.v\n---\nm.acc.add_(m.last$i)\nm.last$i = m.out * 1",
    "self.pair$i = [0.5, 2.0]\n---\nm.acc.mul_(m.pair$i.pop() if m.pair$i else 3.0)\nm.acc.add_(x[0] * 0)",
]
STATEMENTS["environment"] = [
    "m.out.fill_(float(os.environ['RANK']))",
    "m.out.fill_(float(os.environ.get('RANK', 0)))",
    "m.acc.add_(float(os.environ.get('LOCAL_RANK', 0)))",
    "t$i = m.v * float(os.environ.get('WORLD_SIZE', 1))",
    "if os.environ.get('RANK', '0') == '0':\n    $write",
    "self.own$i = int(os.environ.get('RANK', 0))\n---\nm.table[m.own$i] = $value",
    "t$i = torch.full((4,), float(int(os.environ.get('RANK', '0')) % 2))",
]
STATEMENTS["control flow"] = [
    "if rank == 0:\n    $write",
    "if $rank:\n    $write\nelse:\n    $write",
    "for _ in range($rank):\n    m.acc.add_(1)",
    "if dist.get_rank() == world - 1:\n    m.out.copy_(x[0])",
    "t$i = $value if $rank else $value",
    "if rank < 1:\n    m.lin.bias.add_($value)",
    "try:\n    m.table[rank + 3].add_(1)\nexcept IndexError:\n    m.out.add_(1)",
    "{0: m.out, 1: m.acc}.get(rank, m.v).add_($value)",
    "getattr(m, ['out', 'acc', 'v', 'out'][rank]).add_(1)",
    "w$i = m.out if $rank else m.acc\nw$i.add_($value)",
    "if rank == 1:\n    m.out.mul_(1)\nelse:\n    m.out.add_(0)",
    "m.acc.add_(x[0]) if rank else m.acc.sub_(x[0])",
    "a$i, b$i = (m.v, x[0]) if rank else (x[0], m.v)\nt$i = a$i - b$i",
    "a$i, b$i = (m.out, m.acc) if rank else (m.acc, m.out)\na$i.add_(1)",
    "t$i = [m.v, m.out, m.acc, x[0]][$rank] * 1",
    "t$i = torch.where(torch.tensor($rank > 0), $value, $value)",
    "t$i = torch.cond(m.v.sum() > $rank, lambda a: a + 1, lambda a: a * 2, (m.v,))",
]
STATEMENTS["generator"] = [
    "t$i = torch.rand(4, generator=torch.Generator().manual_seed(1))",
    "t$i = torch.randn(4, generator=torch.Generator().manual_seed($rank))",
    "m.out.copy_(torch.randperm(4, generator=torch.Generator().manual_seed(3 + $rank)))",
    "g$i = torch.Generator().manual_seed(1)\n"
    "t$i = torch.rand(4, generator=g$i) + torch.rand(4, generator=g$i)",
    "self.g$i = torch.Generator().manual_seed(1)\n---\nt$i = torch.rand(4, generator=m.g$i)",
    "self.g$i = torch.Generator().manual_seed(1 + dist.get_rank())\n---\n"
    "t$i = torch.rand(4, generator=m.g$i)",
    "self.g$i = torch.Generator().manual_seed(dist.get_rank() % 2)\n---\nm.out.normal_(generator=m.g$i)",
    "m.acc.normal_(generator=torch.Generator().manual_seed(5))",
    "m.acc.uniform_(generator=torch.Generator().manual_seed($rank))",
    "g$i = torch.Generator()\nt$i = torch.rand(4, generator=g$i)",
    "g$i = torch.Generator()\ng$i.seed()\nt$i = torch.rand(4, generator=g$i)",
    "g$i = torch.Generator().manual_seed(7)\nt$i = torch.bernoulli(torch.full((4,), 0.5), generator=g$i)",
    "g$i = torch.Generator().manual_seed(7)\nif rank:\n    torch.rand(1, generator=g$i)\n"
    "t$i = torch.rand(4, generator=g$i)",
    "torch.Generator().manual_seed(2)\nt$i = torch.rand(4)",
    "g$i = torch.Generator().set_state(torch.get_rng_state())\nt$i = torch.rand(4, generator=g$i)",
    "self.g$i = torch.Generator()\n---\nm.g$i.manual_seed(int(world))\nt$i = torch.rand(4, generator=m.g$i)",
    "t$i = torch.multinomial(m.v.abs() + 1, 4, generator=torch.Generator().manual_seed(1)).float()",
    "t$i = torch.rand(4, generator=torch.default_generator)",
    "t$i = torch.from_numpy(np.random.default_rng($rank).random(4, dtype=np.float32))",
    "t$i = torch.tensor([random.Random($rank).random() for _ in range(4)])",
]
STATEMENTS["random"] = [
    "t$i = torch.rand(4)",
    "t$i = F.dropout(m.v, 0.5)",
    "torch.manual_seed(5)\nt$i = torch.rand(4)",
    "torch.manual_seed($rank)\nt$i = torch.rand(4)",
    "m.out.normal_()",
    "m.acc.bernoulli_(0.5)",
    "t$i = torch.randperm(4).float()",
    "t$i = m.v[torch.randperm(4)]",
    "if rank:\n    torch.rand(3)\nt$i = torch.rand(4)",
    "with torch.random.fork_rng():\n    torch.manual_seed(1)\n    t$i = torch.rand(4)",
    "kept$i = torch.get_rng_state()\nt$i = torch.rand(4)\ntorch.set_rng_state(kept$i)\n"
    "m.acc.copy_(torch.rand(4))",
    "torch.manual_seed(3)\ntorch.manual_seed($rank % 2)\nm.out.uniform_()",
    "torch.nn.init.normal_(m.table[$rank])",
    "t$i = torch.randint(0, $rank + 2, (4,)).float()",
    "t$i = torch.normal(m.v, 1.0 + $rank)",
    "torch.seed()\nt$i = torch.rand(4)",
    "torch.manual_seed(11)\nm.lin.reset_parameters()",
    "t$i = torch.rand_like(m.v)\ntorch.manual_seed(0)",
]
