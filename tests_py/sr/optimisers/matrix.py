"""Optimisers with the same bits however they run; ``python -m tests_py.sr.optimisers.matrix`` writes the table.

Each cell is three steps of a matrix and a vector: of PyTorch beside the eager step of one process, weights and states;
of JAX the weights beside the optimiser of optax in float32 and one sum of the core for each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests_py import ROOT
from tests_py.bridge.page_table import PageTable

__all__ = [
    "JAX",
    "JAX_FORMATS",
    "PAGE",
    "TORCH",
    "TORCH_FORMATS",
    "jax_cell",
    "on_ranks",
    "table",
    "torch_cell",
]

PAGE = PageTable(Path(ROOT) / "docs/howto/running.md", "optimisers")
TORCH: dict[str, dict[str, Any]] = {
    "AdamW": {"moments": "bfloat16"},
    "Adam": {"weight_decay": 0.1},
    "SGD": {"momentum": 0.9},
    "Lion": {"weight_decay": 0.1},
    "Adafactor": {},
    "Muon": {},
}
TORCH_FORMATS = ("bfloat16", "float16", "float8_e4m3fn", "float32")
JAX: dict[str, Callable[[Any], Any]] = {
    "AdamW": lambda optax: optax.adamw(0.01),
    "Adam": lambda optax: optax.adam(0.01),
    "SGD": lambda optax: optax.sgd(0.01, momentum=0.9),
    "Lion": lambda optax: optax.lion(0.01),
    "Adafactor": lambda optax: optax.adafactor(0.01, min_dim_size_to_factor=2),
    "Muon": lambda optax: optax.contrib.muon(0.01),
}
JAX_FORMATS = ("bfloat16", "float16")  # ``optax.apply_updates`` adds no update to 8-bit floats
STEPS = 3
_SHAPES = ((8, 6), (10,))


# PyTorch


def _shapes(kind: str) -> Sequence[tuple[int, ...]]:
    return _SHAPES[:1] if kind == "Muon" else _SHAPES


def _drawn(kind: str, form: str, seed: int) -> list[Any]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(getattr(torch, form)) for shape in _shapes(kind)]


def _made(kind: str, params: Sequence[Any], **more: Any) -> Any:
    import torch

    import popsr.sr.torch as st

    options = {"lr": 0.01, "seed": 5, **TORCH[kind], **more}
    if "moments" in options:
        options["moments"] = getattr(torch, options["moments"])
    return getattr(st, kind)(params, **options)


def _trained(kind: str, form: str, run: Callable[[Any], Callable[[], Any]]) -> list[bytes]:
    """Bits of weights and states; ``run`` makes the step of an optimiser."""
    import torch

    params = [torch.nn.Parameter(each) for each in _drawn(kind, form, 0)]
    optimizer = _made(kind, params)
    step = run(optimizer)
    for number in range(STEPS):
        for p, gradient in zip(params, _drawn(kind, form, 1 + number), strict=True):
            p.grad = gradient
        step()
    return _as_bytes(params, optimizer)


def _compiled(optimizer: Any) -> Callable[[], Any]:
    import torch

    torch.compiler.reset()
    found: Callable[[], Any] = torch.compile(optimizer.step, fullgraph=True, backend="aot_eager")
    return found


def torch_cell(kind: str, form: str, way: str) -> bool:
    """Whether "a call each", or "compiled", has the bits of the eager step.

    Raises:
        Error: it is refused.
    """
    wanted = _trained(kind, form, lambda optimizer: optimizer.step)
    if way == "compiled":
        return _trained(kind, form, _compiled) == wanted

    def alone(optimizer: Any) -> Callable[[], Any]:
        for group in optimizer.param_groups:
            group["foreach"] = False
        found: Callable[[], Any] = optimizer.step
        return found

    return _trained(kind, form, alone) == wanted


def on_ranks(world: int) -> dict[str, list[str]]:
    """For each optimiser the formats in which parts on ranks have other bits than one process: for ``gloo.run``."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh("cpu", (world,))
    rank = torch.distributed.get_rank()

    def part(x: Any) -> Any:
        rows = -(-len(x) // world)
        local = x.detach()[rank * rows : (rank + 1) * rows]
        return DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=x.shape, stride=x.stride())

    wrong: dict[str, list[str]] = {}
    for kind in TORCH:
        for form in TORCH_FORMATS:
            params = [torch.nn.Parameter(part(each)) for each in _drawn(kind, form, 0)]
            optimizer = _made(kind, params)
            for number in range(STEPS):
                for p, gradient in zip(params, _drawn(kind, form, 1 + number), strict=True):
                    p.grad = part(gradient)
                optimizer.step()
            if _as_bytes(params, optimizer) != _trained(kind, form, lambda each: each.step):
                wrong.setdefault(kind, []).append(form)
    return wrong


def _as_bytes(params: Sequence[Any], optimizer: Any) -> list[bytes]:
    """Bits of whole parameters and states; bytes are gathered, as gloo does not know all formats."""
    import torch
    from torch.distributed.tensor import DTensor

    def whole(x: Any) -> bytes:
        is_cut = isinstance(x, DTensor) and not all(each.is_replicate() for each in x.placements)
        local = (x.to_local() if isinstance(x, DTensor) else x).detach()
        own = bytes(local.contiguous().reshape(-1).view(torch.uint8).tolist())
        if not is_cut:
            return own
        found: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(found, own)
        return b"".join(found)

    kept = [value for p in params for _, value in sorted(optimizer.state[p].items())]
    return [whole(each) for each in (*params, *kept)]


# JAX


def jax_cell(kind: str, form: str, way: str) -> bool:
    """Whether "jit", "portable" or "shard_map" has the bits of optax in float32 and one sum of the core."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from jax.sharding import Mesh, PartitionSpec

    from popsr import sr

    key, narrow = sr.Key(7), jnp.dtype(form)
    inner = JAX[kind](optax)

    def tree(seed: int) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        shapes = zip("wb", _SHAPES, strict=True)
        return {
            name: jnp.asarray(rng.standard_normal(shape), jnp.float32).astype(narrow)
            for name, shape in shapes
        }

    options: dict[str, Any] = {"portable": way != "jit"}
    if way == "shard_map":
        options["offset"] = lambda p: sr.jax.shard_offset(p, "data")
    rounding = sr.optax.stochastic_rounding(inner, key=key, **options)

    def step(params: Any, state: Any, gradients: Any) -> Any:
        updates, state = rounding.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    params, state = tree(0), rounding.init(tree(0))
    if way == "shard_map":
        mesh = Mesh(np.array(jax.devices()[:2]), ("data",))
        specs = jax.tree.map(lambda x: PartitionSpec("data") if x.ndim else PartitionSpec(), (params, state))
        given = (*specs, specs[0])
        step = jax.shard_map(step, mesh=mesh, in_specs=given, out_specs=specs, check_vma=False)
    run = jax.jit(step)
    wide = jax.jit(inner.update)
    kept = inner.init(jax.tree.map(lambda x: x.astype(jnp.float32), params))
    for number in range(1, STEPS + 1):
        gradients = tree(number)
        as_wide: Mapping[str, Any] = jax.tree.map(lambda x: x.astype(jnp.float32), params)
        updates, kept = wide(jax.tree.map(lambda x: x.astype(jnp.float32), gradients), kept, as_wide)
        new, state = run(params, state, gradients)
        for name, before in params.items():
            own = key.at(number).fold_in(f"['{name}']")
            wanted = sr.add(np.asarray(before), np.asarray(updates[name]), key=own)
            if np.asarray(new[name]).tobytes() != wanted.tobytes():
                return False
        params = new
    return True


# The table

_TORCH_WAYS = {"a call each": "each", "`torch.compile`": "compiled", "parts on 2 ranks": "ranks"}
_JAX_WAYS = {"JAX `jit`": "jit", "portable": "portable", "`shard_map`": "shard_map"}


def needs_whole(kind: str, way: str) -> bool:
    """Whether shards of a parameter, as inside of ``shard_map``, do not do."""
    return way == "shard_map" and kind in ("Adafactor", "Muon")


def table(is_same: Callable[[str, str, str], bool]) -> str:
    """The table of the page.

    Args:
        is_same: of an optimiser, a format and a way, whether the bits are the same.
    """
    heads = (*_TORCH_WAYS, *_JAX_WAYS)
    rows = [f"| optimiser | {' | '.join(heads)} |", "|" + " --- |" * (1 + len(heads))]
    for kind in TORCH:
        cells = [
            _formats(form for form in TORCH_FORMATS if is_same(kind, form, way))
            for way in _TORCH_WAYS.values()
        ]
        cells += [
            "needs whole rows"
            if needs_whole(kind, way)
            else _formats(form for form in JAX_FORMATS if is_same(kind, form, way))
            for way in _JAX_WAYS.values()
        ]
        rows.append(f"| `{kind}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def _measured() -> str:
    from tests_py.bridge.torch import gloo

    apart = gloo.run(2, on_ranks, 2)[0]

    def is_same(kind: str, form: str, way: str) -> bool:
        if way == "ranks":
            return form not in apart.get(kind, ())
        return (torch_cell if way in _TORCH_WAYS.values() else jax_cell)(kind, form, way)

    return table(is_same)


def _formats(names: Any) -> str:
    short = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float8_e4m3fn": "fp8"}
    return " ".join(short[name] for name in names) or "none"


if __name__ == "__main__":
    from tests_py.support.host_devices import ask_for_host_devices

    ask_for_host_devices()
    PAGE.write(_measured())
