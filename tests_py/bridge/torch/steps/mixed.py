"""Random steps of sharded, tensor-parallel and wrapped models with clipping, scalers, schedulers and averages.

A program is one row of each table below, right ones and wrong ones; ``checking`` runs its text as it runs others.
"""

from __future__ import annotations

import dataclasses
import random
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests_py.bridge.torch.steps.mixed_rows import (
    AVERAGES,
    BY_HAND,
    FORMS,
    HEAD,
    OF_PLAIN_TENSORS,
    OF_SEVERAL_MESHES,
    OPTIMIZERS,
    PLACES,
    RARE,
    SCALED,
    SCALERS,
    SCHEDULED,
    SCHEDULERS,
    SHARD_PASSES,
    STEPS,
    TABLES,
    TWO_AXES,
    WRAPPED_PASSES,
)

__all__ = ["Mixed", "draw_mixed"]


@dataclass(frozen=True)
class Mixed:
    """A step of a number of ranks, as ``drawing.Program``.

    Attributes:
        seed: it was drawn with.
        world: number of ranks.
        wrapper: form of the model.
        parts: lines of each part of the program, by name.
        seeds: True if all ranks seed torch's generator alike.
    """

    seed: int
    world: int
    wrapper: str
    parts: dict[str, str]
    seeds: bool

    @property
    def kinds(self) -> list[str]:
        """Its form, and the parts that are not the plain ones."""
        return [self.wrapper, *(name for name in ("scaler", "scheduler", "average") if self.parts[name])]

    @property
    def shared(self) -> int:
        """Number of ranks next to each other that have the same batch."""
        return {"tensor": self.world, "shards of tensor": 2}.get(self.wrapper, 1)

    def options(self) -> dict[str, object]:
        """Arguments of ``trace_step``."""
        found: dict[str, object] = {"replicas": self.world}
        together = [list(range(k, k + self.shared)) for k in range(0, self.world, self.shared)]
        if self.shared > 1:
            found["groups"] = {"x": together, "y": together}
        if self.seeds:
            found["equal"] = ["random seed"]
        return found

    def text(self) -> str:
        """Source of the program."""
        p, ranks = self.parts, "rank, world = dist.get_rank(), dist.get_world_size()\n"
        unwrapped = "model.module if isinstance(model, DistributedDataParallel) else model"
        make = f"torch.manual_seed({self.seed % 7})\n{ranks}model = Model()\n{p['form']}\nreturn model"
        kept = {"scaler": p["scaler"], "scheduler": p["scheduler"], "average": p["average"]}
        extras = "".join(f"kept.{name} = {made}\n" for name, made in kept.items() if made)
        home = {"model": "model.keeper = kept\n", "optimizer": "optimizer.keeper = kept\n"}
        optimizer = (
            f"{ranks}params = {p['params']}\noptimizer = torch.optim.{p['optimizer']}\n"
            + (f"kept = Keeper()\n{extras}" if extras else "")
            + (home.get(p["place"], "global KEPT\nKEPT = kept\n") if extras else "")
            + "return optimizer"
        )
        scaled = "keeper.scaler.scale(loss)" if p["scaler"] else "loss"
        keeper = {"model": "model.keeper", "optimizer": "optimizer.keeper"}.get(p["place"], "KEPT")
        step = (
            ranks
            + (f"keeper = {keeper}\n" if extras else "")
            + f"loss_of = lambda made: {p['loss']}\nforward = lambda x: loss_of(model(x))\n\n"
            + f"def backward(loss):\n    {scaled}.backward()\n\n"
            + "def whole(x):\n    loss = forward(x)\n    backward(loss)\n    return loss\n\n"
            + f"optimizer.zero_grad()\nloss = torch.zeros(())\n{p['passes']}\n{p['reduce']}\n"
            + f"{p['update']}\n{p['scheduled']}\n"
            + "with torch.no_grad():\n"
            + textwrap.indent(f"{p['averaged']}\n{p['end']}", "    ")
        )
        last = (self.world - 1) // self.shared
        batch = (
            f"of = rank // {self.shared}  # ranks that split layers share their batch\n"
            "g = torch.Generator().manual_seed(100 * number + of)\nx = torch.randn(4, 4, generator=g)\n"
            f"if of == {last} and number:\n    {p['data']}\n"
            "return x, torch.randint(0, 4, (4,), generator=g)"
        )
        functions = {
            "model_of(model)": f"return {unwrapped}",
            "make()": make,
            "optimizer(model)": optimizer,
            "batch(rank, number=0)": batch,
            "step(model, optimizer, x, y)": step,
        }
        return HEAD + "\n\n\n".join(
            f"def {name}:\n{textwrap.indent(body, '    ')}" for name, body in functions.items()
        )

    def without(self) -> Iterator[Mixed]:
        """Smaller programs, one part plain each."""
        plain = _plain(self.wrapper)
        for name, value in plain.items():
            if self.parts[name] != value:
                together = {name: value}
                if name in ("scaler", "scheduler", "average"):
                    follower = {"scaler": "update", "scheduler": "scheduled", "average": "averaged"}[name]
                    together[follower] = plain[follower]
                elif name in ("update", "scheduled", "averaged"):
                    continue
                yield dataclasses.replace(self, parts={**self.parts, **together})


def _plain(form: str) -> dict[str, str]:
    """The parts of the plainest program of a form."""
    return {
        "form": FORMS[form][0],
        "optimizer": OPTIMIZERS[0],
        "params": "list(model.parameters())",
        "loss": TABLES["loss"][0],
        "passes": TABLES["passes"][0],
        "reduce": BY_HAND[0] if form == "by hand" else "pass",
        "scaler": "",
        "update": "optimizer.step()",
        "scheduler": "",
        "scheduled": "pass",
        "average": "",
        "averaged": "pass",
        "end": "pass",
        "data": "pass",
        "place": "model",
    }


def draw_mixed(seed: int, worlds: Sequence[int] = (2, 4), forms: Sequence[str] = ()) -> Mixed:
    """The program of a seed.

    Args:
        seed: any number.
        worlds: numbers of ranks to choose from; forms of two axes have four.
        forms: of the model to choose from; default all.
    """
    source = random.Random(seed)
    form = source.choice(list(forms) or [*FORMS, "shards"])
    few = RARE if form in ("wrapped", "by hand") else RARE | OF_PLAIN_TENSORS

    def one_of(rows: Sequence[str]) -> str:
        return source.choices(rows, [0.1 if row in few else 1.0 for row in rows])[0]

    chosen = {name: one_of(rows) for name, rows in TABLES.items()}
    chosen |= {"form": one_of(FORMS[form]), "optimizer": one_of(OPTIMIZERS)}
    chosen["place"] = source.choice(PLACES)
    own = {
        "shards": SHARD_PASSES,
        "hybrid": SHARD_PASSES,
        "shards of tensor": SHARD_PASSES,
        "wrapped": WRAPPED_PASSES,
    }
    if form in own and source.random() < 0.3:
        chosen["passes"] = one_of(own[form])
    if form == "by hand":
        chosen["reduce"] = source.choice(BY_HAND)
    if source.random() < 0.7:
        chosen["end"] = source.choice(TABLES["end"][2:5])
    chosen["scaler"] = source.choice(SCALERS[1:]) if source.random() < 0.2 else ""
    chosen["scheduler"] = source.choice(SCHEDULERS[1:]) if source.random() < 0.2 else ""
    chosen["scheduled"] = one_of(SCHEDULED) if chosen["scheduler"] else "pass"
    averages = (
        AVERAGES[1:] if form in ("wrapped", "by hand") else [*AVERAGES[1:3], *AVERAGES[5:]]
    )  # no deepcopy
    chosen["average"], chosen["averaged"] = source.choice(averages) if source.random() < 0.2 else AVERAGES[0]
    apart = form in OF_SEVERAL_MESHES and source.random() < 0.95
    lists = apart and ("foreach=True" in chosen["optimizer"] or "fused" in chosen["optimizer"])
    whole = "list(model.parameters())"
    chosen["params"] = "[{'params': part} for part in by_mesh(model.parameters())]" if lists else whole
    clip, of_clip = chosen.pop("clip"), "by_mesh(model.parameters())" if apart else f"[{whole}]"
    if clip != "pass":
        clip = f"for params in {of_clip}:\n{textwrap.indent(clip, '    ')}"
    steps = source.choice(STEPS) if source.random() < 0.15 else STEPS[0]
    scaled = one_of(SCALED).format(clip=clip)
    chosen["update"] = scaled if chosen["scaler"] else f"{clip}\n{steps}"
    chosen["data"] = source.choice(["pass"] * 6 + ["x[0, 0] = float('inf')", "x[1] = 0.0"])
    world = max(worlds) if form in TWO_AXES else source.choice(worlds)
    return Mixed(seed, world, form, chosen, source.random() < 0.25)
