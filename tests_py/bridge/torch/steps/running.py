"""A program as a rank of a real job runs it, step by step."""

from __future__ import annotations

import os
import struct
import sys
import tempfile
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests_py.bridge.torch.gloo import Bits, bits, states

__all__ = ["STEPS", "Rows", "loaded", "run_text"]

STEPS = 3
"""Steps of each program."""

Rows = dict[str, Bits]
"""States and results of a rank after a step, by path."""


def loaded(text: str, name: str = "program.py") -> dict[str, Any]:
    """The names of a program; its lines are in a file, as those of a user are."""
    folder = Path(tempfile.gettempdir()) / f"steps{os.getpid()}"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text)
    module = types.ModuleType("program")
    module.__file__ = str(path)
    sys.modules["program"] = module
    exec(compile(text, str(path), "exec"), vars(module))
    return vars(module)


def run_text(text: str, seeds_alike: bool) -> tuple[list[Rows], str | None]:
    """Run a program on this rank; what it has after each step, and what it raised."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    kept = dict(os.environ)
    found: list[Rows] = []
    dist.barrier()  # a rank that is done before another is connected would close what that connects to
    try:
        names = loaded(text, f"rank{rank}.py")
        _soil(rank)
        model = names["make"]()
        optimizer = None if names["optimizer"] is None else names["optimizer"](model)
        torch.manual_seed(1000 + (0 if seeds_alike else rank))
        for number in range(STEPS):
            _soil(rank + number)
            given = names["batch"](rank, number)
            taken = (model,) if optimizer is None else (model, optimizer)
            made = names["step"](*taken, *given)
            rows = states(model, optimizer) | dict(_results(made)) | dict(_places(model))
            found.append(rows | dict(_beside(names, model, optimizer)))
        dist.barrier()
    except Exception:
        return found, traceback.format_exc(limit=-3)
    finally:
        os.environ.clear()
        os.environ.update(kept)
    return found, None


def _results(made: Any) -> Iterator[tuple[str, Bits]]:
    import torch
    import torch.utils._pytree as trees

    for path, value in trees.tree_flatten_with_path(made)[0]:
        name = f"result{trees.keystr(path)}"
        if isinstance(value, torch.Tensor):
            yield name, bits(value)
        elif isinstance(value, int | float):
            yield name, (type(value).__name__, (), struct.pack("d", float(value)))


def _beside(names: dict[str, Any], model: Any, optimizer: Any) -> Iterator[tuple[str, Bits]]:
    """Averages and scales that a ``Keeper`` of the program has, under the paths of ``trace_step``."""
    import torch

    homes = {
        "keeper": getattr(model, "keeper", None),
        "optimizer.keeper": getattr(optimizer, "keeper", None),
        "KEPT": names.get("KEPT"),
    }
    for name, keeper in homes.items():
        average, scaler = getattr(keeper, "average", None), getattr(keeper, "scaler", None)
        parts: dict[str, Any] = {}
        if isinstance(average, torch.nn.Module):
            parts = {f".{key}": t for key, t in (*average.named_parameters(), *average.named_buffers())}
        elif average is not None:
            items = average.items() if isinstance(average, dict) else enumerate(average)
            parts = {f"[{key!r}]": t for key, t in items}
        yield from ((f"{name}.average{part}", bits(t)) for part, t in parts.items())
        for key in ("_scale", "_growth_tracker"):
            if isinstance(getattr(scaler, key, None), torch.Tensor):
                yield f"{name}.scaler.{key[1:]}", bits(getattr(scaler, key))


def _places(model: Any) -> Iterator[tuple[str, Bits]]:
    """The place of this rank's part among the parts of each parameter, as a row of its own."""
    for name, p in model.named_parameters():
        where: tuple[int, ...] = ()
        if hasattr(p, "placements"):
            place = p.device_mesh.get_coordinate()
            where = tuple(place[k] for k, each in enumerate(p.placements) if not each.is_replicate())
        yield f"place of {name}", ("place", where, b"")


def _soil(rank: int) -> None:
    """Leave values of this rank in memory that is freed, for what reads memory before it is written."""
    import torch

    dirty = [torch.full((n,), rank + 1.5) for n in (2, 4, 8, 12, 16, 24, 32) for _ in range(40)]
    del dirty
