"""Random graphs of ATen ops with collectives, writes and views, and torch's answer for all ranks in one process."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

WORLD = 4
GROUPS = {"0": [[0, 1, 2, 3]], "pairs": [[0, 1], [2, 3]], "strided": [[0, 2], [1, 3]]}
SHAPE = (4, 3)
ATEN, COLLECTIVES = torch.ops.aten, torch.ops._c10d_functional

Maker = Callable[["Program"], Any]


class Program:
    """A graph that grows: values of one shape, of which an op takes some and makes one."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.graph = torch.fx.Graph()
        self.state, self.data = self.graph.placeholder("state"), self.graph.placeholder("data")
        self.values = [self.state, self.data]

    def one(self) -> Any:
        return self.random.choice([*self.values[-6:], self.state, self.data])

    def call(self, op: Any, *args: Any, **options: Any) -> Any:
        return self.graph.call_function(op, args, options)

    def number(self) -> float:
        return round(self.random.uniform(-1.5, 1.5), 2)

    def group(self) -> str:
        return self.random.choice(list(GROUPS))

    def waited(self, op: Any, *args: Any) -> Any:
        return self.call(COLLECTIVES.wait_tensor.default, self.call(op, *args))


def unary(p: Program) -> Any:
    names = ("tanh", "relu", "sigmoid", "neg", "abs", "sin", "cos", "gelu", "sign", "floor", "erf")
    return p.call(getattr(ATEN, p.random.choice(names)).default, p.one())


def binary(p: Program) -> Any:
    name = p.random.choice(("add", "sub", "mul"))
    other = p.one() if p.random.random() < 0.7 else p.number()
    return p.call(getattr(ATEN, name).Tensor, p.one(), other)


def extreme(p: Program) -> Any:
    return p.call(getattr(ATEN, p.random.choice(("maximum", "minimum"))).default, p.one(), p.one())


def selected(p: Program) -> Any:
    name = p.random.choice(("gt", "lt", "ge", "le", "eq", "ne"))
    return p.call(ATEN.where.self, p.call(getattr(ATEN, name).Tensor, p.one(), p.one()), p.one(), p.one())


def reduced(p: Program) -> Any:
    op = p.random.choice((ATEN.sum.dim_IntList, ATEN.mean.dim, ATEN.amax.default, ATEN.amin.default))
    made = p.call(op, p.one(), [p.random.randrange(2)], True)
    return p.call(ATEN.tanh.default, p.call(ATEN.expand.default, made, list(SHAPE)))


def normalised(p: Program) -> Any:
    op = p.random.choice((ATEN._softmax.default, ATEN._log_softmax.default))
    return p.call(op, p.one(), p.random.choice((0, 1, -1)), False)


def product(p: Program) -> Any:
    square = p.call(ATEN.mm.default, p.call(ATEN.t.default, p.one()), p.one())
    return p.call(ATEN.tanh.default, p.call(ATEN.mm.default, p.one(), square))


def moved(p: Program) -> Any:
    kind = p.random.randrange(6)
    if kind == 0:
        return p.call(ATEN.view.default, p.call(ATEN.clone.default, p.one()), list(SHAPE))
    if kind == 1:
        return p.call(ATEN.flip.default, p.one(), [p.random.randrange(2)])
    if kind == 2:
        return p.call(ATEN.roll.default, p.one(), [p.random.randrange(1, 3)], [p.random.randrange(2)])
    if kind == 3:
        parts = p.call(ATEN.split.Tensor, p.one(), 2, 0)
        two, one = (p.call(getitem, parts, i) for i in (1, 0))
        return p.call(ATEN.cat.default, [two, one])
    if kind == 4:
        turned = p.call(ATEN.permute.default, p.one(), [1, 0])
        return p.call(ATEN.reshape.default, turned, list(SHAPE))
    return p.call(ATEN.cumsum.default, p.call(ATEN.tanh.default, p.one()), p.random.randrange(2))


def getitem(parts: Any, i: int) -> Any:
    return parts[i]


def written(p: Program) -> Any:
    """A write into a copy, or into a view of it."""
    copy = p.call(ATEN.clone.default, p.one())
    if p.random.random() < 0.5:
        return p.call(getattr(ATEN, p.random.choice(("add_", "mul_", "sub_"))).Tensor, copy, p.one())
    row = p.call(ATEN.select.int, copy, 0, p.random.randrange(4))
    p.call(getattr(ATEN, p.random.choice(("add_", "mul_"))).Tensor, row, p.number())
    return p.call(ATEN.add.Tensor, copy, 0.0)


def all_reduce(p: Program) -> Any:
    return p.waited(
        COLLECTIVES.all_reduce.default, p.one(), p.random.choice(("sum", "avg", "max", "min")), p.group()
    )


def gathered(p: Program) -> Any:
    group = p.group()
    size = len(GROUPS[group][0])
    whole = p.waited(COLLECTIVES.all_gather_into_tensor.default, p.one(), size, group)
    first = p.random.randrange(size * SHAPE[0] - SHAPE[0] + 1)
    return p.call(ATEN.slice.Tensor, whole, 0, first, first + SHAPE[0])


def scattered(p: Program) -> Any:
    group = p.group()
    size = len(GROUPS[group][0])
    part = p.waited(COLLECTIVES.reduce_scatter_tensor.default, p.one(), "sum", size, group)
    return p.call(ATEN.tanh.default, p.call(ATEN.repeat.default, part, [size, 1]))


def exchanged(p: Program) -> Any:
    group = p.random.choice(("0", "pairs", "strided"))
    parts = [SHAPE[0] // len(GROUPS[group][0])] * len(GROUPS[group][0])
    return p.waited(COLLECTIVES.all_to_all_single.default, p.one(), parts, parts, group)


def broadcast(p: Program) -> Any:
    return p.waited(COLLECTIVES.broadcast.default, p.one(), p.random.randrange(2), p.group())


MAKERS: tuple[Maker, ...] = (
    *(unary, binary, binary, extreme, selected, reduced, normalised, product, moved, moved, written),
    *(all_reduce, all_reduce, gathered, scattered, exchanged, broadcast),
)


def random_graph(seed: int) -> Any:
    """A graph module that returns the state's new value and another result."""
    program = Program(seed)
    for _ in range(program.random.randrange(3, 14)):
        made = program.random.choice(MAKERS)(program)
        program.values.append(made)
    program.graph.output([program.values[-1], program.one()])
    return torch.fx.GraphModule(torch.nn.Module(), program.graph)


# torch's answer: every rank, node by node


def members(name: str, rank: int) -> list[int]:
    return next(group for group in GROUPS[name] if rank in group)


def collective(name: str, of_ranks: list[Any], args: tuple[Any, ...]) -> list[Any]:
    """The results of a collective, in ascending rank order."""
    found = []
    for rank in range(WORLD):
        group = members(args[-1], rank)
        ts, place = [of_ranks[r] for r in group], group.index(rank)
        if name == "all_reduce":
            found.append(_reduced(ts, args[0]))
        elif name == "all_gather_into_tensor":
            found.append(torch.cat(ts))
        elif name == "reduce_scatter_tensor":
            found.append(_reduced(ts, "sum").chunk(len(ts))[place])
        elif name == "all_to_all_single":
            found.append(torch.cat([t.chunk(len(ts))[place] for t in ts]))
        else:
            assert name == "broadcast"
            found.append(ts[args[0]].clone())
    return found


def _reduced(ts: list[Any], op: str) -> Any:
    whole = torch.stack(ts)
    return {"sum": whole.sum(0), "avg": whole.sum(0) / len(ts), "max": whole.amax(0), "min": whole.amin(0)}[
        op
    ]


def run_all(module: Any, inputs: list[list[Any]]) -> list[list[Any]]:
    """Results of all ranks; ``inputs`` has a list for each rank."""
    values: list[dict[Any, Any]] = [{} for _ in range(WORLD)]
    given = [iter(each) for each in inputs]
    for node in module.graph.nodes:
        if node.op == "output":
            return [list(torch.fx.node.map_arg(node.args[0], lambda n, of=of: of[n])) for of in values]
        if node.op == "placeholder":
            for of, its in zip(values, given, strict=True):
                of[node] = next(its)
            continue
        args = [torch.fx.node.map_arg(node.args, lambda n, of=of: of[n]) for of in values]
        name = str(node.target).split(".")[1] if "_c10d" in str(node.target) else ""
        if name and name != "wait_tensor":
            made = collective(name, [each[0] for each in args], args[0][1:])
        else:
            made = [each[0] if name else node.target(*each, **node.kwargs) for each in args]
        for of, value in zip(values, made, strict=True):
            of[node] = value
    raise AssertionError("no output")
