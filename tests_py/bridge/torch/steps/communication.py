"""Statements with collectives of ``torch.distributed``, by kind, as those of ``statements``."""

from __future__ import annotations

__all__ = ["STATEMENTS"]

_OPS = ("SUM", "SUM", "MAX", "MIN", "PRODUCT")
STATEMENTS: dict[str, list[str]] = {}
"""Templates by kind."""

STATEMENTS["reduction"] = [
    *(
        f"u$i = $value.float().contiguous().clone()\n"
        f"dist.all_reduce(u$i, dist.ReduceOp.{op}, group=$group)\nt$i = u$i"
        for op in _OPS
    ),
    "dist.all_reduce($whole)",
    "dist.all_reduce($whole, group=$group)",
    "$whole.copy_($value)\ndist.all_reduce($whole, group=$group)",
    "u$i = $value.float().clone()\ndist.reduce(u$i, 0)\nt$i = u$i",
    "u$i = $value.float().clone()\ndist.reduce(u$i, 1, op=dist.ReduceOp.MAX)\nt$i = u$i",
    "u$i = $value.float().clone()\ndist.reduce(u$i, 0)\ndist.broadcast(u$i, 0)\nt$i = u$i",
    "t$i = functional.all_reduce($value.float().clone(), 'sum', dist.group.WORLD) + 0",
    "t$i = functional.all_reduce($value.float().clone(), 'max', $group or dist.group.WORLD) * 1",
    "u$i = [$value.float().clone(), $value.float().clone()]\ndist.all_reduce_coalesced(u$i)\nt$i = u$i[1]",
    "u$i = m.n * $rank\ndist.all_reduce(u$i)\nm.n.copy_(u$i)",
    "u$i = (m.n + $rank) % 4\ndist.all_reduce(u$i, dist.ReduceOp.BAND)\nt$i = u$i.float()",
    "u$i = $value.float().clone()\ndist.all_reduce(u$i)\nu$i /= world\nt$i = u$i",
    "u$i = $value.float().norm()\ndist.all_reduce(u$i)\nt$i = m.v / u$i",
    "out$i = torch.zeros(1)\ndist.reduce_scatter_tensor(out$i, torch.zeros(world) + rank)\n"
    "t$i = out$i.expand(4)",
    "out$i = torch.zeros(4)\ndist.reduce_scatter_tensor(out$i, $value.float().repeat(world))\nt$i = out$i",
    "out$i = torch.zeros(4)\n"
    "dist.reduce_scatter(out$i, [$value.float().clone() for _ in range(world)])\nt$i = out$i",
]
STATEMENTS["gather"] = [
    "u$i = [torch.zeros(4) for _ in range(world)]\n"
    "dist.all_gather(u$i, $value.float().contiguous())\nt$i = u$i[$rank]",
    "u$i = [torch.zeros(4) for _ in range(world)]\n"
    "dist.all_gather(u$i, $value.float().contiguous())\nt$i = sum(u$i)",
    "u$i = torch.zeros(4 * world)\ndist.all_gather_into_tensor(u$i, $value.float().contiguous())\n"
    "t$i = u$i[-4:]",
    "u$i = torch.zeros(4 * world)\ndist.all_gather_into_tensor(u$i, $value.float().contiguous())\n"
    "t$i = u$i[4 * $rank:4 * $rank + 4]",
    "dist.all_gather_into_tensor(m.table.view(-1)[:4 * world], m.table[$rank].clone())",
    "dist.all_gather(list(m.table[:world].unbind()), $value.float().contiguous())",
    "m.table[rank].fill_(rank + 1.0)\n"
    "dist.all_gather_into_tensor(m.table[:world].view(-1), m.table[rank].clone())",
    "u$i = [torch.zeros(4) for _ in range(world)] if rank == 0 else None\n"
    "dist.gather($value.float().contiguous(), u$i, dst=0)\nt$i = u$i[1] if rank == 0 else torch.zeros(4)",
    "u$i = torch.zeros(4)\n"
    "dist.scatter(u$i, [m.v + k for k in range(world)] if rank == 0 else None, src=0)\nt$i = u$i",
    "u$i = torch.zeros(4)\n"
    "dist.scatter(u$i, [m.v.clone() for k in range(world)] if rank == 1 else None, src=1)\nt$i = u$i",
    "u$i = $value.float().contiguous().clone()\ndist.broadcast(u$i, 1)\nt$i = u$i",
    "u$i = $value.float().contiguous().clone()\n"
    "dist.broadcast(u$i, rank // 2 * 2 if world > 2 else rank, group=m.half)\nt$i = u$i",
    "dist.broadcast($whole, world - 1)",
    "u$i = torch.zeros(world)\ndist.all_to_all_single(u$i, torch.arange(world) * 1.0 + rank)\n"
    "t$i = u$i[-1].expand(4)",
    "u$i = torch.zeros(4 * world)\ndist.all_to_all_single(u$i, $value.float().repeat(world))\nt$i = u$i[:4]",
    "u$i = [torch.zeros(4) for _ in range(world)]\n"
    "dist.all_to_all(u$i, [m.v * k for k in range(world)])\nt$i = u$i[$rank]",
    "t$i = functional.all_gather_tensor($value.float().contiguous(), 0, dist.group.WORLD)[:4] * 1",
    "t$i = functional.broadcast($value.float().clone(), 1, dist.group.WORLD) * 1",
    "if rank == 0:\n    dist.send(m.v, 1)\nelif rank == 1:\n    dist.recv(m.out, 0)",
    "dist.barrier()\nt$i = $value.float()",
    "dist.monitored_barrier()",
]
STATEMENTS["subset"] = [
    "self.pair$i = dist.new_group([0, 1])\n---\nif rank < 2:\n    dist.all_reduce(m.acc, group=m.pair$i)",
    "self.pair$i = dist.new_group([0, 1])\n---\nu$i = $value.float().clone()\n"
    "dist.all_reduce(u$i, group=m.pair$i)\nt$i = u$i",
    "self.last$i = dist.new_group([world - 1])\n---\nif rank == world - 1:\n"
    "    dist.all_reduce(m.acc, group=m.last$i)",
    "u$i = $value.float().clone()\ndist.all_reduce(u$i, group=m.half)\nt$i = u$i",
    "u$i = $value.float().clone()\ndist.all_reduce(u$i, group=m.half)\n"
    "dist.all_reduce(u$i, group=m.across)\nt$i = u$i",
    "u$i = $value.float().clone()\ndist.all_reduce(u$i, group=m.half)\ndist.all_reduce(u$i)\nt$i = u$i",
    "u$i = $value.float().clone()\ndist.all_reduce(u$i, group=dist.new_group(list(range(world))))\nt$i = u$i",
    "t$i = m.v * dist.get_rank(m.half)",
    "t$i = m.v * dist.get_rank(m.across) + dist.get_world_size(m.half)",
    "t$i = m.v * dist.get_group_rank(m.across, rank)",
    "t$i = m.v + float(dist.get_process_group_ranks(m.half)[0])",
    "t$i = m.v * (dist.get_global_rank(m.half, 0) + 1)",
    "u$i = [torch.zeros(4) for _ in range(m.half.size())]\n"
    "dist.all_gather(u$i, $value.float().contiguous(), group=m.half)\nt$i = u$i[-1]",
    "u$i = [torch.zeros(4) for _ in range(m.across.size())]\n"
    "dist.all_gather(u$i, $value.float().contiguous(), group=m.across)\nt$i = u$i[0]",
    "g$i = m.half if $rank else m.across\nu$i = m.v.clone()\ndist.all_reduce(u$i, group=g$i)\nt$i = u$i",
    "self.turned$i = dist.new_group(list(range(world))[::-1])\n---\n"
    "u$i = [torch.zeros(4) for _ in range(world)]\n"
    "dist.all_gather(u$i, x[0].contiguous(), group=m.turned$i)\nt$i = u$i[0]",
    "mesh$i = init_device_mesh('cpu', (world // 2, 2), mesh_dim_names=('a', 'b'))\n"
    "u$i = x[0].clone()\ndist.all_reduce(u$i, group=mesh$i.get_group('b'))\nt$i = u$i",
    "subgroup$i, _ = dist.new_subgroups(2)\nu$i = x[0].clone()\n"
    "dist.all_reduce(u$i, group=subgroup$i)\nt$i = u$i",
]
STATEMENTS["asynchronous"] = [
    "u$i = x[0].clone()\nw$i = dist.all_reduce(u$i, async_op=True)\nt$i = u$i.clone()\nw$i.wait()",
    "u$i = x[0].clone()\nw$i = dist.all_reduce(u$i, async_op=True)\nw$i.wait()\nt$i = u$i.clone()",
    "u$i = x[0].clone()\nw$i = dist.all_reduce(u$i, async_op=True)\nm.acc.add_(1)\nw$i.wait()\n"
    "t$i = u$i.clone()",
    "w$i = dist.all_reduce(m.acc.add_(x[0]), async_op=True)\nm.out.copy_(m.acc)\nw$i.wait()",
    "u$i = x[0].clone()\nw$i = dist.broadcast(u$i, 0, async_op=True)\nm.out.add_(u$i)\nw$i.wait()",
    "u$i = [torch.zeros(4) for _ in range(world)]\n"
    "w$i = dist.all_gather(u$i, x[0].contiguous(), async_op=True)\n"
    "m.out.copy_(u$i[0])\nw$i.wait()",
    "u$i = [torch.zeros(4) for _ in range(world)]\n"
    "w$i = dist.all_gather(u$i, x[0].contiguous(), async_op=True)\n"
    "w$i.wait()\nm.out.copy_(u$i[0])",
    "u$i = x[0].clone()\nw$i = [dist.all_reduce(u$i, async_op=True), dist.all_reduce(m.acc, async_op=True)]\n"
    "for each in w$i:\n    each.wait()\nt$i = u$i",
    "u$i = x[0].clone()\na$i = m.v.clone()\nw$i = dist.all_reduce(u$i, async_op=True)\n"
    "w$i = dist.all_reduce(a$i, async_op=True)\nw$i.wait()\nt$i = u$i.clone()",
    "u$i = x[0].clone()\nw$i = dist.all_reduce(u$i[:4], async_op=True)\nt$i = u$i * 1\nw$i.wait()",
    "u$i = x[0].clone()\nw$i = dist.all_reduce(u$i, async_op=True)\nu$i.add_(1)\nw$i.wait()\nt$i = u$i",
    "u$i = functional.all_reduce(x[0].clone(), 'sum', dist.group.WORLD)\nt$i = u$i.clone()",
    "u$i = torch.zeros(4 * world)\nw$i = dist.all_gather_into_tensor(u$i, x[0].contiguous(), async_op=True)\n"
    "t$i = u$i[:4].clone()\nw$i.wait()",
    "u$i = torch.zeros(4)\n"
    "w$i = dist.reduce_scatter_tensor(u$i, x[0].repeat(world), async_op=True)\nw$i.wait()\nt$i = u$i",
    "u$i = x[0].clone()\ndist.all_reduce(u$i, async_op=True)\nt$i = u$i.clone()\ndist.barrier()",
    "u$i = x[0].clone()\nw$i = dist.all_reduce(u$i, async_op=True)\nwhile not w$i.is_completed():\n"
    "    pass\nt$i = u$i",
    "u$i = x[0].clone()\nf$i = dist.all_reduce(u$i, async_op=True).get_future()\nt$i = f$i.wait()[0].clone()",
    "f$i = dist.all_reduce(x[0].clone(), async_op=True).get_future()\n"
    "t$i = f$i.then(lambda f: f.value()[0] * 2).wait()",
]
STATEMENTS["objects"] = [
    "o$i = [$rank]\ndist.broadcast_object_list(o$i, src=0)\nt$i = m.v * o$i[0]",
    "o$i = [None] * world\ndist.all_gather_object(o$i, $rank)\nt$i = m.v * sum(o$i)",
    "o$i = [None] * world\ndist.all_gather_object(o$i, float(rank))\nm.acc.add_(o$i[1])",
    "o$i = [None]\ndist.scatter_object_list(o$i, list(range(world)) if rank == 0 else None, src=0)\n"
    "m.acc.add_(o$i[0])",
    "o$i = [None] * world if rank == 0 else None\ndist.gather_object($rank, o$i, dst=0)\n"
    "if rank == 0:\n    m.acc.add_(float(sum(o$i)))",
]
