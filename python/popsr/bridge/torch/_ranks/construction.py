"""Collectives while a model is made: in a job of one rank after the other nothing arrives by itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from popsr._support.text.shown import shown
from popsr.bridge._step.replaced import replaced
from popsr.bridge.torch._ranks.job import rank_of
from popsr.bridge.torch._user.locations import current_place, shown_place
from popsr.errors import ReplicaError, UnsupportedError

__all__ = ["Construction", "wrappers_made"]

_WITHOUT_DATA = ("barrier", "monitored_barrier_", "wait_tensor")


class Construction:
    """Broadcasts that ranks send as they make a model, kept for the ranks that receive.

    Args:
        make: makes the model and the optimiser, as one rank.
        where: the call, for messages.
    """

    def __init__(self, make: Callable[[], tuple[Any, Any]], where: str) -> None:
        """Nothing is sent yet."""
        self._make, self._where = make, where
        self._sent: dict[tuple[tuple[int, ...], int], Any] = {}

    def learn(self, ranks: Iterable[int], world: int) -> None:
        """Make the model as each rank that may send something, the first one first."""
        from torch.distributed import distributed_c10d as module

        for rank in ranks:
            with rank_of(rank, world, self._where):
                self.made(rank)
                if len(module._world.pg_map) == 1 and not self._sent:
                    return  # the first rank is in all groups, and sends nothing

    def made(self, rank: int) -> tuple[Any, Any]:
        """The model and the optimiser, made as a rank."""
        with wrappers_made(), _mode()(self, rank):
            return self._make()

    def broadcast(self, t: Any, source: int, key: tuple[tuple[int, ...], int], rank: int) -> None:
        """Send a tensor, or receive it in place.

        Args:
            t: what this rank has.
            source: the rank that sends.
            key: the ranks of the group, and the number of broadcasts before.
            rank: this rank.
        Raises:
            ReplicaError: the source sends nothing, or something else, at this place.
        """
        if key not in self._sent and rank == source:
            self._sent[key] = t.detach().clone()
        value = self._sent.get(key)
        if value is None or (value.shape, value.dtype) != (t.shape, t.dtype):
            got = "nothing" if value is None else f"{value.dtype} of shape {tuple(value.shape)}"
            raise ReplicaError(
                f"{self._where}: ranks {source} and {rank} do not make the same model at "
                f"{shown_place(current_place())}, got {got} from rank {source}, expected {t.dtype} of shape "
                f"{tuple(t.shape)}"
            )
        if value is not t:
            t.copy_(value)


@contextlib.contextmanager
def wrappers_made() -> Iterator[None]:
    """Let ``DistributedDataParallel`` compare no shapes, and not ask for devices.

    States of ranks are compared when all are known. ``SyncBatchNorm`` and sums in bf16 are refused on a CPU, where a
    step is traced whatever it is for.
    """
    from torch.nn.parallel import distributed

    module: Any = distributed
    wrapper: Any = module.DistributedDataParallel
    check_hook = wrapper._check_comm_hook

    def check(self: Any, hook: Any) -> None:
        is_of_devices = getattr(hook, "__name__", "").startswith("bf16_compress")
        with contextlib.suppress(TypeError) if is_of_devices else contextlib.nullcontext():
            check_hook(self, hook)

    changes = [
        (module, "_verify_param_shape_across_processes", lambda *_: None),
        (wrapper, "_passing_sync_batchnorm_handle", lambda *_: None),
        (wrapper, "_check_comm_hook", check),
    ]
    with replaced(changes):
        yield


def _mode() -> Any:
    """The mode in which a model is made; in a function as its base is torch's."""
    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d
    from torch.utils._python_dispatch import TorchDispatchMode

    group_of_name: Any = getattr(distributed_c10d, "_resolve_process_group")  # noqa: B009

    class Mode(TorchDispatchMode):
        def __init__(self, construction: Construction, rank: int) -> None:
            super().__init__()
            self._construction, self._rank = construction, rank
            self._counts: dict[tuple[int, ...], int] = {}

        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            options = kwargs or {}
            if op.namespace not in ("c10d", "_c10d_functional"):
                return op(*args, **options)
            name = str(op).split(".")[1]
            if name in _WITHOUT_DATA:
                return op(*args, **options)
            values = dict(zip([each.name for each in op._schema.arguments], args, strict=False)) | options
            if name == "broadcast_":
                group = dist.ProcessGroup.unbox(values["process_group"])
                for t in values["tensors"]:
                    self._broadcast(t, values["root_rank"], group)
                return op(*args, **options)
            if name == "broadcast":
                made = values["input"].clone()
                self._broadcast(made, values["src"], group_of_name(values["group_name"]))
                return made
            raise UnsupportedError(
                f"{self._construction._where}: a collective while the model is made at "
                f"{shown_place(current_place())}, got {shown(name)}, expected a broadcast, or collectives in the "
                "step: a model is made as one rank after the other"
            )

        def _broadcast(self, t: Any, root: int, group: Any) -> None:
            ranks = tuple(dist.get_process_group_ranks(group))
            count = self._counts[ranks] = self._counts.get(ranks, 0) + 1
            with torch.no_grad():
                self._construction.broadcast(t, ranks[root], (ranks, count), self._rank)

    return Mode
