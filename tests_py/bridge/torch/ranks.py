"""torch's own answer: a step as all ranks of a job, in threads of one process."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")


def run_ranks(world: int, function: Callable[[int], Any]) -> list[Any]:
    """The results of a function of the rank, on all ranks; its process groups work."""
    import torch.distributed as dist
    from torch.testing._internal.distributed import multi_threaded_pg as threaded

    results, errors = [None] * world, []
    hook = sys.excepthook
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    threaded._install_threaded_pg()
    store = torch._C._distributed_c10d.HashStore()

    def work(rank: int) -> None:
        dist.init_process_group("threaded", rank=rank, world_size=world, store=store)
        try:
            results[rank] = function(rank)
        except BaseException as error:
            errors.append(error)
            threaded.ProcessLocalGroup.exception_handle(error)
        finally:
            dist.destroy_process_group()

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(world)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
    finally:
        threaded.ProcessLocalGroup.reset()
        threaded._uninstall_threaded_pg()
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
        sys.excepthook = hook
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "ranks hang"
    return results


def local(t: Any) -> Any:
    """A rank's part of a tensor, as an array."""
    t = t.detach()
    return (t.to_local() if hasattr(t, "to_local") else t).numpy().copy()


def states_after(
    step: Any, model: Any, optimizer: Any, batch: Callable[[int], Any], world: int, times: int = 2
) -> dict[str, list[Any]]:
    """Parameters and the optimiser's state by path, a row for each rank, after some steps of torch."""

    def work(rank: int) -> dict[str, Any]:
        made = model()
        updater = optimizer(made)
        for _ in range(times):
            step(made, updater, *batch(rank))
        names = {p: name for name, p in made.named_parameters()}
        found = {name: local(p) for p, name in names.items()}
        found |= {name: local(b) for name, b in made.named_buffers()}
        for p, values in updater.state.items():
            found |= {
                f"optimizer.{names[p]}.{key}": local(value)
                for key, value in values.items()
                if isinstance(value, torch.Tensor)
            }
        return found

    rows = run_ranks(world, work)
    return {path: [each[path] for each in rows] for path in rows[0]}
