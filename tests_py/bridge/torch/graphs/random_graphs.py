"""Random graphs of ATen ops with collectives, views, writes in place and random numbers."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests_py.bridge.torch.ops import decomposed_rows, more_rows, rows  # noqa: E402

WORLD = 4
GROUPS = {"0": [[0, 1, 2, 3]], "pairs": [[0, 1], [2, 3]], "strided": [[0, 2], [1, 3]]}
SHAPE = (4, 3)
ATEN, COLLECTIVES = torch.ops.aten, torch.ops._c10d_functional
ROWS: dict[str, list[Any]] = {
    **rows.ARITHMETIC,
    **rows.COMPARISONS,
    **rows.FUNCTIONS,
    **rows.SHAPES,
    **more_rows.REDUCTIONS,
    **more_rows.INDEXING,
    **more_rows.BAGS,
    **more_rows.PRODUCTS,
    **more_rows.NETWORKS,
    **decomposed_rows.DECOMPOSED,
}

Maker = Callable[["Program"], Any]


@dataclass(frozen=True)
class RandomGraph:
    """A graph of a state and of data, and what the replicas share.

    Attributes:
        module: its first result is the state's new value, unless it writes the state.
        writes_state: whether it writes the state in place.
        groups: groups of the data and of the random seed, by path.
    """

    module: Any
    writes_state: bool
    groups: dict[str, list[list[int]]] = field(default_factory=dict)


class Program:
    """A graph that grows: values of one shape, of which an op takes some and makes one."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.graph, self.root = torch.fx.Graph(), torch.nn.Module()
        self.state, self.data = self.graph.placeholder("state"), self.graph.placeholder("data")
        self.values = [self.state, self.data]
        self._reshapes = self.random.random() < 0.25  # which makes a view or a copy, as strides are

    def one(self) -> Any:
        return self.random.choice([*self.values[-6:], self.state, self.data])

    def call(self, op: Any, *args: Any, **options: Any) -> Any:
        return self.graph.call_function(op, args, options)

    def constant(self, t: Any) -> Any:
        name = f"constant_{len(self.root._buffers)}"
        self.root.register_buffer(name, t)
        return self.call(ATEN.clone.default, self.graph.get_attr(name))

    def number(self) -> float:
        return round(self.random.uniform(-1.5, 1.5), 2)

    def group(self) -> str:
        return self.random.choice(list(GROUPS))

    def waited(self, op: Any, *args: Any) -> Any:
        return self.call(COLLECTIVES.wait_tensor.default, self.call(op, *args))

    def stretched(self, value: Any, shape: tuple[int, ...], start: int = 0) -> Any:
        """Elements of a value in a shape, from the first again where there are more places."""
        size, count = math.prod(SHAPE), math.prod(shape)
        flat = self.shaped(value, [size])
        if start + count > size:
            flat = self.call(ATEN.repeat.default, flat, [-(-(start + count) // size)])
        return self.call(
            ATEN.view.default, self.call(ATEN.slice.Tensor, flat, 0, start, start + count), list(shape)
        )

    def shaped(self, value: Any, shape: list[int]) -> Any:
        """A value in another shape, whatever its strides."""
        if self._reshapes:
            return self.call(ATEN.reshape.default, value, shape)
        copy = self.call(ATEN.clone.default, value, memory_format=torch.contiguous_format)
        return self.call(ATEN.view.default, copy, shape)


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
    """Elements chosen by elements, or a whole value by one condition, as a branch is."""
    name = p.random.choice(("gt", "lt", "ge", "le", "eq", "ne"))
    if p.random.random() < 0.5:
        condition = p.call(getattr(ATEN, name).Tensor, p.one(), p.one())
    else:
        condition = p.call(getattr(ATEN, name).Scalar, p.call(ATEN.sum.default, p.one()), p.number())
    return p.call(ATEN.where.self, condition, p.one(), p.one())


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
        return p.shaped(turned, list(SHAPE))
    return p.call(ATEN.cumsum.default, p.call(ATEN.tanh.default, p.one()), p.random.randrange(2))


def getitem(parts: Any, i: int) -> Any:
    return parts[i]


# Any overload that has a row in the tests of rules


def of_rows(p: Program) -> Any:
    """An op as one of its rows calls it, with operands made of values of the program."""
    name = p.random.choice(list(ROWS))
    args, options = p.random.choice(ROWS[name])
    packet, overload = name.rsplit(".", 1)
    op = getattr(getattr(ATEN, packet), overload)
    expected = op(*args, **options)
    given = functools.partial(_operands, p, fixed="backward" in name)  # whose integers fit together
    made = p.call(op, *given(args), **{key: given(each) for key, each in options.items()})
    if isinstance(expected, list | tuple):
        numbers = [i for i, each in enumerate(expected) if each is not None]
        number = p.random.choice(numbers)
        made, expected = p.call(getitem, made, number), expected[number]
    return _returned(p, made, expected)


def _operands(p: Program, value: Any, *, fixed: bool) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_operands(p, each, fixed=fixed) for each in value)
    if not isinstance(value, torch.Tensor):
        return value
    ascends = value.dtype == torch.int64 and value.dim() == 1 and bool((value.diff() >= 0).all())  # offsets
    if p.random.random() < 0.2 or ascends or not value.numel() or value.dtype == torch.bfloat16:
        return p.constant(value)
    shape = tuple(value.shape)
    if value.is_floating_point() and value.element_size() == 1:
        return p.constant(value)  # torch has few ops of float8
    if value.dtype == torch.bool:
        return p.call(ATEN.gt.Scalar, p.stretched(p.one(), shape), p.number() / 3)
    if not value.is_floating_point():
        if fixed:
            return p.constant(value)
        # the same numbers in another order, so that indices stay right
        turned = value.flip(list(range(value.dim()))).contiguous()
        some = p.call(ATEN.gt.Scalar, p.call(ATEN.sum.default, p.one()), 0.0)
        return p.call(ATEN.where.self, some, p.constant(value), p.constant(turned))
    finite = value[value.isfinite()]
    low, high = finite.min().item(), finite.max().item()
    mixed = p.call(ATEN.add.Tensor, p.stretched(p.one(), shape), p.constant(value.nan_to_num(0, 1, -1)))
    share = p.call(ATEN.sigmoid.default, mixed)  # in the range of the row, without ties
    return p.call(ATEN.add.Scalar, p.call(ATEN.mul.Scalar, share, high - low), low)


def _returned(p: Program, made: Any, expected: Any) -> Any:
    """A result of any shape and type as a value of the program."""
    count, size = expected.numel(), math.prod(SHAPE)
    if not count:
        return p.one()
    flat = p.call(ATEN._to_copy.default, p.shaped(made, [count]), dtype=torch.float32)
    flat = p.call(ATEN.repeat.default, flat, [-(-size // count)])
    start = p.random.randrange(-(-size // count) * count - size + 1)
    value = p.call(ATEN.view.default, p.call(ATEN.slice.Tensor, flat, 0, start, start + size), list(SHAPE))
    value = p.call(ATEN.clamp.default, value, -3.0, 3.0)
    return p.call(ATEN.masked_fill.Scalar, value, p.call(ATEN.isnan.default, value), 0.25)


# Writes in place


def _views(p: Program, t: Any) -> Any:
    kind = p.random.randrange(7)
    if kind == 0:
        return p.call(ATEN.select.int, t, 0, p.random.randrange(4))
    if kind == 1:
        return p.call(ATEN.slice.Tensor, t, 1, p.random.randrange(2), 3)
    if kind == 2:
        return p.call(ATEN.view.default, t, [6, 2])
    if kind == 3:
        return p.call(ATEN.t.default, t)
    if kind == 4:
        return p.call(getitem, p.call(ATEN.split.Tensor, t, 3, 0), p.random.randrange(2))
    if kind == 5:
        return p.call(ATEN.diagonal.default, t)
    return t


_IN_PLACE = ["tanh_", "relu_", "sigmoid_", "neg_", "abs_", "zero_", "sin_"]


def _write(p: Program, t: Any) -> None:
    """Write a tensor of any shape."""
    kind = p.random.randrange(5)
    if kind == 0:
        p.call(getattr(ATEN, p.random.choice(_IN_PLACE)).default, t)
    elif kind == 1:
        p.call(getattr(ATEN, p.random.choice(("add_", "mul_", "sub_"))).Tensor, t, p.number())
    elif kind == 2:
        p.call(ATEN.copy_.default, t, p.call(ATEN.mean.default, p.one()))
    elif kind == 3:
        p.call(ATEN.masked_fill_.Scalar, t, p.call(ATEN.gt.Scalar, t, p.number()), p.number())
    else:
        p.call(ATEN.clamp_.default, t, -0.5, p.random.random())


def written(p: Program) -> Any:
    """A write into a copy, or into a view of it."""
    copy = p.call(ATEN.clone.default, p.one())
    if p.random.random() < 0.3:
        return p.call(getattr(ATEN, p.random.choice(("add_", "mul_", "sub_"))).Tensor, copy, p.one())
    for _ in range(p.random.randrange(1, 3)):
        _write(p, _views(p, copy))
    return p.call(ATEN.add.Tensor, copy, 0.0) if p.random.random() < 0.5 else copy


def written_before(p: Program) -> Any:
    """A write into a value that others were made of, which may be views of it."""
    written = [each for each in p.values if each is not p.data]
    _write(p, _views(p, p.random.choice(written)))
    return p.call(ATEN.add.Tensor, p.one(), 0.0)


# Collectives and random numbers


def all_reduce(p: Program) -> Any:
    op = p.random.choice(("sum", "avg", "max", "min", "product"))
    return p.waited(COLLECTIVES.all_reduce.default, p.one(), op, p.group())


def all_reduced_in_place(p: Program) -> Any:
    copy, group = p.call(ATEN.clone.default, p.one()), p.group()
    return p.waited(COLLECTIVES.all_reduce_.default, copy, p.random.choice(("sum", "avg")), group)


def gathered(p: Program) -> Any:
    group = p.group()
    size = len(GROUPS[group][0])
    whole = p.waited(COLLECTIVES.all_gather_into_tensor.default, p.one(), size, group)
    first = p.random.randrange(size * SHAPE[0] - SHAPE[0] + 1)
    return p.call(ATEN.slice.Tensor, whole, 0, first, first + SHAPE[0])


def scattered(p: Program) -> Any:
    group = p.group()
    size = len(GROUPS[group][0])
    op = p.random.choice(("sum", "avg"))
    part = p.waited(COLLECTIVES.reduce_scatter_tensor.default, p.one(), op, size, group)
    return p.call(ATEN.tanh.default, p.call(ATEN.repeat.default, part, [size, 1]))


def exchanged(p: Program) -> Any:
    group = p.group()
    parts = [SHAPE[0] // len(GROUPS[group][0])] * len(GROUPS[group][0])
    return p.waited(COLLECTIVES.all_to_all_single.default, p.one(), parts, parts, group)


def broadcast(p: Program) -> Any:
    return p.waited(COLLECTIVES.broadcast.default, p.one(), p.random.randrange(2), p.group())


def drawn(p: Program) -> Any:
    kind = p.random.randrange(5)
    if kind == 0:
        return p.call(getitem, p.call(ATEN.native_dropout.default, p.one(), 0.5, True), 0)
    if kind == 1:
        return p.call(p.random.choice((ATEN.rand_like.default, ATEN.randn_like.default)), p.one())
    if kind == 2:
        chances = p.call(ATEN.sigmoid.default, p.one())
        return p.call(ATEN.bernoulli.default, chances)
    if kind == 3:
        order = p.call(ATEN.randperm.default, SHAPE[0], device=torch.device("cpu"), pin_memory=False)
        return p.call(ATEN.index_select.default, p.one(), 0, order)
    copy = p.call(ATEN.clone.default, p.one())
    return p.call(ATEN.bernoulli_.float, copy, 0.4)


MAKERS: tuple[Maker, ...] = (
    *(unary, binary, binary, extreme, selected, selected, reduced, normalised, product, moved, moved),
    *(of_rows,) * 12,
    *(written, written, written_before),
    *(all_reduce, all_reduce, all_reduced_in_place, gathered, scattered, exchanged, broadcast),
)


def random_graph(seed: int) -> RandomGraph:
    """A graph that returns the state's new value and all values that it makes; every fifth draws random numbers."""
    p = Program(seed)
    makers = MAKERS + (drawn,) * 4 if seed % 5 == 0 else MAKERS
    for _ in range(p.random.randrange(3, 10)):
        p.values.append(p.random.choice(makers)(p))
    writes_state = p.random.random() < 0.3
    if writes_state:
        p.call(ATEN.copy_.default, p.state, p.values[-1])
    shared = [GROUPS["0"], GROUPS["pairs"], GROUPS["strided"], None, None]
    groups = {path: p.random.choice(shared) for path in ("data", "random seed")}
    p.graph.output([p.values[-1], *p.values[2:]])
    module = torch.fx.GraphModule(p.root, p.graph)
    wrote = any("_." in str(n.target) and n.args[0] is p.state for n in p.graph.nodes if n.args)
    return RandomGraph(module, wrote or writes_state, {k: v for k, v in groups.items() if v is not None})
