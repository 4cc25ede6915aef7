"""Random training steps as source text: a seed gives a program, which ranks and the tracer run from its text."""

from __future__ import annotations

import dataclasses
import random
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests_py.bridge.torch.steps import communication, expressions, statements, training

__all__ = ["KINDS", "Program", "Statement", "draw", "tables"]

KINDS: dict[str, list[str]] = {
    **statements.STATEMENTS,
    **communication.STATEMENTS,
    **training.STATEMENTS,
}
"""Templates of statements by kind."""

_TABLES = {**expressions.TABLES, **training.TABLES}


def tables() -> dict[str, list[str]]:
    """Rows of expressions by the name that stands for them."""
    return _TABLES


_WRAPPED = ("wrapper", "no_sync", "shards")
_REFUSED = ("control flow", "objects", "python state", "subset")  # for the most part: drawn less often
_DEPTH = 3

HEAD = """\
import copy, functools, math, os, random
import numpy as np
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn
from torch._utils import _flatten_dense_tensors as flatten, _unflatten_dense_tensors as unflatten
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

counted = 0
remembered = []


@functools.cache
def cached(number):
    return torch.arange(number) + 1.0


def memory(kept=[]):
    return kept


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed({seed})
        rank, world = dist.get_rank(), dist.get_world_size()
        self.lin, self.head = nn.Linear(4, 4), nn.Linear(4, 4)
        for name in ("out", "acc"):
            self.register_buffer(name, torch.zeros(4))
        self.register_buffer("v", torch.tensor([1.0, 2.0, 3.0, 4.0]))
        self.register_buffer("table", torch.zeros(4, 4))
        self.register_buffer("flat", torch.zeros(16))
        self.register_buffer("wide", torch.ones(4, dtype=torch.float64))
        self.register_buffer("n", torch.arange(4))
        self.rank = rank
"""
"""Program up to what statements add to the model."""

OPTIONAL = {
    "m.number": "self.number = 2.0 if rank else 2",
    "m.numbers": "self.numbers = [0.0 if rank else -0.0, 1.0, float(rank), 2.0]",
    "m.held": "self.held = torch.full((4,), -0.0 if rank == 1 else 0.0)",
    "m.order": "self.order = torch.arange(4).roll(rank)",
    "m.norm": "self.norm = nn.BatchNorm1d(4)",
    "m.half": "self.half = [dist.new_group([k, k + 1]) for k in range(0, world, 2)][rank // 2]",
    "m.across": "self.across = [dist.new_group(list(range(k, world, 2))) for k in range(2)][rank % 2]",
    "m.all": "self.all = dist.new_group(list(range(world)))",
}
"""Lines of the constructor that only some programs need, by the text that needs them."""

FORWARD = """

    def forward(self, x):
        return self.head(torch.tanh(self.lin(x)))


def make():
    {make}


{optimizer}


def batch(rank, number=0):
    g = torch.Generator().manual_seed(100 * number + {key})
    x = torch.randn(3, 4, generator=g)
    {special}
    return x, torch.randint(0, 4, (3,), generator=g)


"""

_WRAPPERS = {
    "": "return Model()",
    "ddp": "return DistributedDataParallel(Model())",
    "ddp, no broadcast": "return DistributedDataParallel(Model(), broadcast_buffers=False)",
    "ddp, unused": "return DistributedDataParallel(Model(), find_unused_parameters=True)",
    "ddp, bucket views": "return DistributedDataParallel(Model(), gradient_as_bucket_view=True)",
    "ddp, static": "return DistributedDataParallel(Model(), static_graph=True)",
    "ddp of a part": "model = Model()\n    model.lin = DistributedDataParallel(model.lin)\n    return model",
    "ddp, frozen": "model = Model()\n    model.lin.requires_grad_(False)\n"
    "    return DistributedDataParallel(model)",
    "ddp, other start": "model = Model()\n    model.lin.weight.data.add_(dist.get_rank())\n"
    "    return DistributedDataParallel(model)",
    "shards": "model = Model()\n    fully_shard(model.lin)\n    fully_shard(model.head)\n    return fully_shard(model)",
    "other start": "model = Model()\n    model.lin.weight.data.add_(dist.get_rank())\n    return model",
    "other buffer": "model = Model()\n    model.acc.add_(dist.get_rank() % 2)\n    return model",
    "other zero": "model = Model()\n    model.acc.mul_(-1.0 if dist.get_rank() else 1.0)\n    return model",
}
"""Bodies of the function that makes the model."""


@dataclass(frozen=True)
class Statement:
    """One statement.

    Attributes:
        kind: its kind.
        setup: lines of the model's constructor.
        body: lines of the step.
    """

    kind: str
    setup: str
    body: str


@dataclass(frozen=True)
class Program:
    """A step of a number of ranks.

    Attributes:
        seed: it was drawn with.
        world: number of ranks.
        wrapper: key of the function that makes the model.
        optimizer: an expression of ``model``.
        statements: of the step, in order.
        key: expression of the rank; where it is equal, data is.
        special: a statement that changes the data.
        seeds: True if all ranks seed torch's generator alike.
        results: names of locals that the step returns.
    """

    seed: int
    world: int
    wrapper: str
    optimizer: str
    statements: tuple[Statement, ...]
    key: str
    special: str
    seeds: bool

    @property
    def kinds(self) -> list[str]:
        """Kinds of its statements."""
        return [each.kind for each in self.statements]

    def options(self) -> dict[str, object]:
        """Arguments of ``trace_step``."""
        found: dict[str, object] = {"replicas": self.world}
        equal = ["random seed"] * self.seeds + ["x", "y"] * (self.key == "0")
        if equal:
            found["equal"] = equal
        if "//" in self.key:
            pairs = [[k, k + 1] for k in range(0, self.world, 2)]
            found["groups"] = {"x": pairs, "y": pairs}
        return found

    def text(self) -> str:
        """Source of the program."""
        setups = "\n".join(each.setup for each in self.statements if each.setup)
        body = "\n".join(each.body for each in self.statements)
        needed = [line for name, line in OPTIONAL.items() if name in body + setups]
        lines = (
            HEAD.format(seed=self.seed % 7) + textwrap.indent("\n".join([*needed, setups]), " " * 8).rstrip()
        )
        none = self.optimizer == "None"
        optimizer = (
            "optimizer = None"
            if none
            else f"def optimizer(model):\n    model = getattr(model, 'module', model)\n    return {self.optimizer}"
        )
        lines += FORWARD.format(
            make=_WRAPPERS[self.wrapper], optimizer=optimizer, key=self.key, special=self.special
        )
        lines += f"def step(model, {'' if none else 'optimizer, '}x, y):\n"
        return lines + textwrap.indent(self._prologue(body, none) + self._body(), " " * 4)

    def _prologue(self, body: str, none: bool) -> str:
        """Names that statements use."""
        wrapped = self.wrapper.startswith("ddp") and self.wrapper != "ddp of a part"
        lines = ["global counted"] * ("counted" in body)
        lines += ["rank, world = dist.get_rank(), dist.get_world_size()"]
        lines += [f"m = model{'.module' if wrapped else ''}"]
        made = {
            "trained(": "trained = lambda: [p for p in m.parameters() if p.grad is not None]",
            "grads(": "grads = lambda: [p.grad for p in m.parameters() if p.grad is not None]",
            "clear(": "clear = lambda *a: model.zero_grad(*a)"
            if none
            else "clear = lambda *a: optimizer.zero_grad(*a)",
            "update(": "update = lambda: None" if none else "update = optimizer.step",
            "groups(": "groups = lambda: ()" if none else "groups = lambda: optimizer.param_groups",
            "entries(": "entries = lambda: ()" if none else "entries = lambda: optimizer.state.values()",
        }
        lines += [line for name, line in made.items() if re.search(rf"(?<![\w.]){re.escape(name)}", body)]
        return "\n".join(lines) + "\n"

    def _body(self) -> str:
        lines = []
        for each in self.statements:
            trains = each.kind in training.STATEMENTS
            lines.append(
                each.body if trains else "with torch.no_grad():\n" + textwrap.indent(each.body, "    ")
            )
        found = sorted(set(re.findall(r"^ *(t\d+) = ", "\n".join(lines), re.M)))
        lines.append(f"return {{{', '.join(f'{name!r}: {name}' for name in found)}}}")
        return "\n".join(lines)

    def without(self) -> Iterator[Program]:
        """Smaller programs, one part less each."""
        for k in range(len(self.statements)):
            rest = self.statements[:k] + self.statements[k + 1 :]
            if rest:
                yield dataclasses.replace(self, statements=rest)
        plain: dict[str, Any] = {
            "optimizer": "None",
            "wrapper": "",
            "special": "pass",
            "key": "rank",
            "seeds": False,
            "world": 2,
        }
        for name, value in plain.items():
            if getattr(self, name) != value:
                yield dataclasses.replace(self, **{name: value})
        for k, each in enumerate(self.statements):
            for part in ("setup", "body"):
                lines = getattr(each, part).split("\n")
                for i in range(len(lines) if len(lines) > 1 else 0):
                    shorter = dataclasses.replace(each, **{part: "\n".join(lines[:i] + lines[i + 1 :])})
                    yield dataclasses.replace(
                        self, statements=(*self.statements[:k], shorter, *self.statements[k + 1 :])
                    )


class _Drawer:
    """Expands templates with one random source."""

    def __init__(self, source: random.Random) -> None:
        """No locals yet."""
        self.source, self.locals, self.count = source, list[str](), 0

    def expand(self, text: str, depth: int = 0) -> str:
        """A template without its names."""

        def one(match: re.Match[str]) -> str:
            name = match[1]
            if name == "i":
                return str(self.count)
            made = self.expand(self.choice(name, depth), depth + 1)
            indent = re.search(r"(?:^|\n)( *)$", text[: match.start()])
            if indent is not None and name in ("write", "reduce", "update"):
                return made.replace("\n", "\n" + indent[1])
            simple = re.fullmatch(r"[\w.]+(\([^()]*\))?", made) is not None
            return (
                made
                if simple or name in ("write", "reduce", "update", "loss", "view", "whole", "group")
                else f"({made})"
            )

        return re.sub(r"\$([a-z]+)", one, text)

    def choice(self, name: str, depth: int) -> str:
        """A row of a table; plain ones deep inside of an expression."""
        if name == "value" and self.locals and self.source.random() < 0.3:
            return self.source.choice(self.locals)
        rows = _TABLES[name]
        if depth >= _DEPTH:
            rows = [
                row for row in rows if "$value" not in row and "$constant" not in row and "$slice" not in row
            ]
        return self.source.choice(rows)

    def statement(self, kind: str) -> Statement:
        """A statement of a kind."""
        self.count += 1
        template = self.source.choice(KINDS[kind])
        setup, _, body = template.rpartition("\n---\n")
        made = Statement(kind, self.expand(setup), self.expand(body))
        self.locals += re.findall(r"^(t\d+) = ", made.body, re.M)
        return made


def _kinds(source: random.Random, wrapper: str, kinds: Sequence[str]) -> list[str]:
    """Kinds of the statements of one step."""
    if kinds:
        return [source.choice(kinds) for _ in range(source.choice([1, 1, 1, 2, 2, 3]))]
    if wrapper == "shards":
        return ["shards", *source.sample(["shards", "value", "reduction"], source.randrange(2))]
    count = source.choice([1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6])
    plain = [kind for kind in KINDS if kind not in _WRAPPED]
    weights = [1 if kind in _REFUSED else 4 for kind in plain]
    if not wrapper.startswith("ddp"):
        return source.choices(plain, weights, k=count)
    others = source.choices(plain, weights, k=source.choice([0, 0, 1, 2]))
    made = [*others, *source.choices(["wrapper", "no_sync"], k=source.choice([1, 1, 1, 2]))]
    source.shuffle(made)
    return made


def _wrapper(source: random.Random) -> str:
    """Most programs have none."""
    kind = source.random()
    if kind < 0.75:
        return ""
    start = "ddp" if kind < 0.93 else "shards" if kind < 0.95 else "other"
    return source.choice([name for name in _WRAPPERS if name.startswith(start)])


def draw(
    seed: int, worlds: Sequence[int] = (2, 4), kinds: Sequence[str] = (), wrapper: str | None = None
) -> Program:
    """The program of a seed.

    Args:
        seed: any number.
        worlds: numbers of ranks to choose from.
        kinds: of statements to choose from; default all.
        wrapper: key of the function that makes the model; default any.
    """
    source = random.Random(seed)
    if wrapper is None:
        wrapper = _wrapper(source)
    drawer = _Drawer(source)
    drawn = _kinds(source, wrapper, kinds)
    made = tuple(drawer.statement(kind) for kind in drawn)
    trains = any(kind in training.STATEMENTS for kind in drawn)
    optimizer = source.choice(training.OPTIMIZERS[wrapper != "" :]) if trains else "None"
    if wrapper == "shards":
        optimizer = source.choice(training.OPTIMIZERS[1:4])
    key = source.choice(["rank"] * 6 + ["0", "rank // 2"])
    special = source.choice(["pass"] * 5 + ["x[0, 0] = -0.0", "x[1] = 0.0", "x[0, 1] = float('nan')"])
    if key == "rank" and source.random() < 0.1:
        special = "x[0, rank % 4] = 0.0 if rank else -0.0"
    world = source.choice(worlds)
    return Program(seed, world, wrapper, optimizer, made, key, special, source.random() < 0.25)
