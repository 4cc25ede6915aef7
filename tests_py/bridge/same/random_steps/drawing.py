"""Random parallel training steps that are right: each part has a meaning on one device, and a drawn parallel form."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from tests_py.bridge.same.planted.cases import Program
from tests_py.bridge.same.random_steps import layers
from tests_py.bridge.same.random_steps.heads import CLASSES, embedding, end_of
from tests_py.bridge.same.random_steps.layers import WIDTH, Layer
from tests_py.bridge.same.random_steps.plan import MESHES, Plan, Way, size
from tests_py.bridge.same.random_steps.updates import Optimiser, reduction

__all__ = ["drawn"]

WAYS: tuple[Way, ...] = ("linear", "typed", "layers")


def drawn(seed: int) -> tuple[Program, str]:
    """The right step of a seed, and its choices in words."""
    rng = np.random.default_rng(seed)
    mesh = dict(MESHES[int(rng.integers(len(MESHES)))])
    sharded = "model" in mesh and not {"seq", "pipe"} & {*mesh} and rng.random() < 0.4
    plan = Plan(rng, mesh, WAYS[int(rng.integers(2 if sharded else 3))], sharded)
    program = _Step(plan).program()
    head = f"{mesh}, {plan.way}{', sequence-parallel norms' if sharded else ''}"
    return program, "; ".join([head, *plan.words])


def _blocks(plan: Plan) -> list[Layer]:
    """One or two layers with norms between; the first is cut over an axis that the mesh has, where one is."""
    kinds: list[Callable[[Plan], Layer]] = [layers.feed_forward, layers.attention, layers.feed_forward]
    special = {"expert": layers.experts, "pipe": layers.stages, "seq": layers.attention}
    chosen = [plan.one_of(*([special[axis] for axis in special if plan.has(axis)] or kinds))]
    if plan.chance(0.4):
        chosen.append(plan.one_of(*kinds, layers.experts))
    found = []
    for kind in chosen:
        if plan.chance(0.6):
            found.append(plan.one_of(layers.norm, layers.norm, layers.batch_norm)(plan))
        made = kind(plan)
        found.append(jax.checkpoint(made) if plan.chance(0.2) else made)
    return found


class _Step:
    """A step as it is drawn; its arguments have a row for each round of accumulation."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        own = plan.one_of(2, 1) if plan.batch else 2
        self.examples = own * plan.static(*plan.batch)
        self.length = plan.static(plan.time) * plan.one_of(2, 1) if plan.time else plan.one_of(2, 3)
        self.rounds = plan.one_of(1, 1, 2, 3)
        self.start: Any = None
        table = None
        if plan.chance():
            self.start, table = embedding(plan)
        self.position = plan.weight("pos", self.length, WIDTH) if plan.chance(0.3) else ""
        self.blocks = _blocks(plan)
        self.end = end_of(plan, table)
        self.mean = self.end.labels != "classes" and plan.chance(0.4)
        forms = ["loop", "inside"] if plan.way == "typed" else ["loop", "inside", "scan"]
        self.form = plan.form(f"{self.rounds} rounds", *forms) if self.rounds > 1 else "loop"
        if self.mean:
            plan.words.append("mean of replicas")
        self.cut = (*plan.batch, *([self.end.axis] if self.end.axis else []))
        self.reduced = reduction(plan)
        self.optimiser = Optimiser(plan)

    def forward(self, p: Any, x: Any) -> Any:
        h = x if self.start is None else self.start(p, x)
        if self.position:
            at = p[self.position]
            h = h + (self.plan.own_positions(at, self.plan.time, 0) if self.plan.time else at)
        for block in self.blocks:
            h = block(p, h)
        return h

    def divisor(self) -> Any:
        """The factor between the sum of the losses of all replicas and the loss of one device."""
        copies = size(self.end.copies) if self.plan.way != "layers" else 1
        return copies * (size(self.cut) * self.rounds if self.mean else 1)

    def count(self, y: Any) -> Any:
        """Number of losses of all replicas and rounds that count."""
        if self.end.labels == "classes":
            own = (y >= 0).sum()
            return lax.psum(own, self.cut) if self.cut else own
        return math.prod(y.shape[: 2 if self.end.labels == "none" else 3]) * size(self.cut)

    def loss(self, p: Any, x: Any, y: Any, count: Any) -> Any:
        """The share of a replica and a round."""
        total, own = self.end.losses(p, self.forward(p, x), y)
        share = total / (own if self.mean else count)
        return self.total(share) if self.plan.way == "typed" else share

    def total(self, share: Any) -> Any:
        """The loss of one device."""
        axes = self.cut if self.plan.way == "layers" else tuple(self.plan.mesh)
        if (
            self.plan.way == "typed"
        ):  # a sum over other axes than those along which JAX takes a value to vary is refused
            axes = tuple(axis for axis in axes if axis in (*self.cut, *self.end.varying))
            share = share * size([axis for axis in self.plan.mesh if axis not in axes])
        return (lax.psum(share, axes) if axes else share) / self.divisor()

    def gradients(self, p: Any, x: Any, y: Any) -> tuple[Any, Any]:
        """Loss and gradients of a replica, of all rounds."""
        count = self.count(y)
        if self.form == "inside":
            whole = lambda p: sum(self.loss(p, x[i], y[i], count) for i in range(self.rounds))  # noqa: E731
            return jax.value_and_grad(whole)(p)
        one = lambda x, y: jax.value_and_grad(self.loss)(p, x, y, count)  # noqa: E731
        if self.form == "scan":
            add = lambda found, each: (jax.tree.map(jnp.add, found, one(*each)), None)  # noqa: E731
            zeros = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, p))
            return lax.scan(add, zeros, (x, y))[0]
        found = [one(x[i], y[i]) for i in range(self.rounds)]
        return jax.tree.map(lambda *each: sum(each), *found)

    def step(self, *args: Any) -> Any:
        states, (x, y) = [*args[:-2]], args[-2:]
        loss, grads = self.gradients(states[0], x, y)
        if self.plan.way != "typed":
            loss = self.total(loss)
            grads = {name: t / self.divisor() for name, t in self.reduced(grads).items()}
        return (*self.optimiser.apply(states, grads), loss)

    def program(self) -> Program:
        """The step with its arguments."""
        plan, names = self.plan, self.optimiser.names
        shape = self.rounds, self.examples, self.length
        batch, seq = plan.batch or None, "seq" if plan.has("seq") else None
        x, x_axis = self._floats(*shape, WIDTH), plan.time
        if self.start is not None:
            x, x_axis = plan.rng.integers(0, CLASSES, shape).astype(np.int32), seq
        y = self._floats(*shape, WIDTH)
        if self.end.labels == "classes":
            y = plan.rng.integers(-1, CLASSES, shape).astype(np.int32)
        if self.end.labels == "none":
            y = y[..., 0, 0]
        cut_y = P(None, batch) if self.end.labels == "none" else P(None, batch, self.end.axis)
        given = (*self.optimiser.specs, P(None, batch, x_axis), cut_y)

        def step(*args: Any) -> Any:
            return self.step(*args)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(name, kind) for name in (*names, "x", "y")]
        step.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        made = (*self.optimiser.specs, P())
        return Program(step, (*self.optimiser.states, x, y), plan.mesh, given, made, plan.way == "typed")

    def _floats(self, *shape: int) -> Any:
        return self.plan.rng.normal(size=shape)
