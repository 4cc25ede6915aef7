"""torch's own answer: a function as all ranks of a job of processes that gloo connects.

Threads of one process do for collectives; the reducer of ``DistributedDataParallel`` needs processes. They are started
once for each number of ranks and kept, and each call has process groups of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import functools
import gc
import multiprocessing
import os
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["PRELOADED", "Bits", "RankError", "bits", "run", "states"]

Bits = tuple[str, tuple[int, ...], bytes]
"""Element type, shape and bytes of a tensor."""

_HANG = datetime.timedelta(seconds=60)
"""Wait of a rank for the others of a collective; a rank that ends or fails is noticed at once."""

_PATIENCE = 5 * _HANG.total_seconds()
"""Seconds until a rank that gives no answer is ended."""

_THREADS = 16
"""Threads of a rank after which groups are freed that cycles of objects keep: theirs poll all the time."""

PRELOADED = (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "popsr.bridge.torch",
    "pytest",
)
"""Modules that most ranks import: optimisers need the first."""


class RankError(RuntimeError):
    """Errors that ranks raised.

    Attributes:
        errors: the traceback of each rank as text, None of those that raised nothing.
    """

    def __init__(self, errors: list[str | None]) -> None:
        """The tracebacks, of which the first are shown."""
        super().__init__("\n".join(f"rank {rank}: {text}" for rank, text in enumerate(errors) if text))
        self.errors = errors


def run(world: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Call a function on each rank of a job and return the results, in the order of the ranks.

    Args:
        world: number of ranks.
        function: a function of a module, which ranks import; it asks ``torch.distributed`` for its rank.
        args: its arguments, alike on all ranks.
    Raises:
        RankError: a rank raised, or ended; the next call starts new ones if one ended.
    """
    return _job(world).run(function, args)


def bits(t: Any) -> Bits:
    """A tensor bit by bit, of a DTensor the part of this rank."""
    import torch

    t = t.detach()
    t = (t.to_local() if hasattr(t, "to_local") else t).contiguous()
    data = (
        t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
    )  # an empty one may have any strides
    return str(t.dtype), tuple(t.shape), data


def states(model: Any, optimizer: Any = None) -> dict[str, Bits]:
    """Parameters, buffers and the optimiser's tensors on this rank, under the paths of ``trace_step``."""
    import torch

    names = {p: name for name, p in model.named_parameters()}
    found = {name: bits(p) for p, name in names.items()} | {
        name: bits(b) for name, b in model.named_buffers()
    }
    for p, values in {} if optimizer is None else optimizer.state.items():
        for key, value in values.items():
            if isinstance(value, torch.Tensor):
                found[f"optimizer.{names[p]}.{key}"] = bits(value)
    return found


class _Job:
    """Processes that wait for calls."""

    def __init__(self, world: int) -> None:
        """One process a rank."""
        start = multiprocessing.get_context("forkserver")  # PyTorch is imported once for all ranks
        start.set_forkserver_preload(list(PRELOADED))
        self._folder = tempfile.TemporaryDirectory()
        self._count = 0
        self._pipes, self._processes = [], []
        for rank in range(world):
            here, there = start.Pipe()
            process = start.Process(target=_serve, args=(rank, world, there), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    def run(self, function: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
        """As the function of the module."""
        self._count += 1
        store = str(Path(self._folder.name) / f"store{self._count}")
        results: list[Any] = []
        errors: list[str | None] = []
        ended = False
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send((store, function, args))
        for pipe in self._pipes:
            try:
                result, error = pipe.recv() if pipe.poll(_PATIENCE) else (None, "the rank does not answer")
                ended = ended or error == "the rank does not answer"
            except (EOFError, OSError):
                result, error, ended = None, "the process ended", True
            results.append(result)
            errors.append(error)
        if ended:
            self.close()
            _jobs.pop(len(self._processes))
        if any(errors):
            raise RankError(errors)
        return results

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.kill()
            process.join()
        self._folder.cleanup()


_jobs: dict[int, _Job] = {}


def _job(world: int) -> _Job:
    if world not in _jobs:
        _jobs[world] = _Job(world)
        atexit.register(_jobs[world].close)
    return _jobs[world]


def _serve(rank: int, world: int, pipe: Any) -> None:
    """Answer calls until the other end is closed."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "1",
    }  # launchers set them; a file connects the ranks
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    while True:
        try:
            store, function, args = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        except Exception:  # a function that cannot be imported
            pipe.send((None, traceback.format_exc()))
            continue
        result, error = None, None
        try:
            with _connected(rank, world, store):
                result = function(*args)
        except BaseException:
            error = traceback.format_exc()
        pipe.send((result, error))
        if len(os.listdir("/proc/self/task")) > _THREADS:
            gc.collect()


@contextlib.contextmanager
def _connected(rank: int, world: int, path: str) -> Iterator[None]:
    import torch
    import torch.distributed as dist

    made: Any = dist
    store = made.FileStore(path, world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=_HANG)
    torch.manual_seed(0)
    plain = made.all_reduce
    made.all_reduce = plain if _has_means(plain) else functools.partial(_mean_or, plain)
    try:
        yield
    finally:
        made.all_reduce = plain
        dist.destroy_process_group()


def _has_means(all_reduce: Callable[..., Any]) -> bool:
    """Whether gloo has means, which it has not in older versions."""
    import torch
    import torch.distributed as dist

    try:
        all_reduce(torch.zeros(1), dist.ReduceOp.AVG)
    except RuntimeError:
        return False
    return True


def _mean_or(
    all_reduce: Callable[..., Any], t: Any, op: Any = None, group: Any = None, **options: Any
) -> Any:
    """A mean as a sum that is divided, as gloo computes it elsewhere; other reductions as they are."""
    import torch.distributed as dist

    if op != dist.ReduceOp.AVG:
        return all_reduce(t, *(() if op is None else (op,)), group=group, **options)
    all_reduce(t, dist.ReduceOp.SUM, group=group, **options)
    t.div_(dist.get_world_size(group))
    return None
