"""Collectives of ``torch.distributed`` as they are called while a step is traced, as functional ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from popsr.bridge._step.replaced import replaced
from popsr.bridge.torch._tracing.asynchronous import Pending, Write, flat_tensors
from popsr.bridge.torch._tracing.messages import Messages, refuse_any_source
from popsr.bridge.torch._tracing.uninitialised import named_memory
from popsr.bridge.torch._user.locations import current_place, shown_place
from popsr.bridge.torch._versions import work_of_fakes
from popsr.errors import UnsupportedError

__all__ = ["functional_collective", "noted_reductions"]


def functional_collective(
    op: Any,
    args: tuple[Any, ...],
    options: dict[str, Any],
    groups: dict[str, tuple[int, ...]],
    pending: Pending,
    messages: Messages,
) -> Any:
    """Call a collective, one that writes its operand as a functional one and a copy; note the ranks of its group."""
    import torch.distributed as dist

    values = dict(zip([each.name for each in op._schema.arguments], args, strict=False)) | options
    if op.namespace != "c10d":
        if "group_name" not in values:
            return op(*args, **options)
        group = _group(values["group_name"])
        groups[group.group_name] = tuple(dist.get_process_group_ranks(group))
        messages.collective(str(op).split(".")[1], group)
        return op(**(values | {"group_name": group.group_name}))
    name = str(op).split(".")[1]
    if name in ("send", "recv_"):
        group = dist.ProcessGroup.unbox(values["process_group"])
        return messages.called(name, values, group, pending).boxed()
    if name == "recv_any_source_":
        raise refuse_any_source()
    call = _CALLS.get(name)
    if call is None:
        where = shown_place(current_place())
        raise UnsupportedError(
            f"bridge.torch: communication without a counterpart at {where}, got {name}, expected a collective"
        )
    group = dist.ProcessGroup.unbox(values["process_group"])
    groups[group.group_name] = tuple(dist.get_process_group_ranks(group))
    messages.collective(_SHOWN.get(name, name), group)
    writes = list(call(values, group.group_name, group.size()))
    pending.note_writes([t for t, _ in writes])
    work = (
        _done(writes) if _is_synchronous() else pending.start(_SHOWN.get(name, name), _read(values), writes)
    )
    _last.clear()
    # Ops of c10d return the tensors of their first argument, if any, before the handle.
    return work.boxed() if len(op._schema.returns) == 1 else (args[0], work.boxed())


def _read(values: dict[str, Any]) -> list[Any]:
    return [t for value in values.values() for t in flat_tensors(value)]


def _group(given: Any) -> Any:
    """A process group, of its name or of itself."""
    from torch.distributed import distributed_c10d as module

    return getattr(module, "_resolve_process_group")(given) if isinstance(given, str) else given  # noqa: B009


def _done(writes: Sequence[Write]) -> Any:
    """The handle of a collective whose results are there."""
    kind, _ = work_of_fakes()
    for t, new in writes:
        t.copy_(new)
    return kind()


def _is_synchronous() -> bool:
    """True if the caller says that it does not go on before the results are there, and may not wait for the handle."""
    _, is_done = work_of_fakes()
    return is_done and bool(_last) and not getattr(_last[0], "asyncOp", True)


_REDUCTIONS = ("AllreduceOptions", "AllreduceCoalescedOptions", "ReduceOptions", "ReduceScatterOptions")
_OPTIONS = (*_REDUCTIONS, "AllgatherOptions", "AllToAllOptions", "BarrierOptions", "BroadcastOptions")
_last: list[Any] = []


@contextlib.contextmanager
def noted_reductions() -> Iterator[None]:
    """Keep the options of the collective that is called: an op that reaches dispatch does not show its own."""
    from torch.distributed import distributed_c10d as module

    def noting(make: Callable[[], Any]) -> Callable[[], Any]:
        def options() -> Any:
            _last[:] = [make()]
            return _last[0]

        return options

    try:
        with replaced((module, name, noting(getattr(module, name))) for name in _OPTIONS):
            yield
    finally:
        _last.clear()


def _reduction() -> str:
    """Name of the reduction that is called."""
    if not hasattr(_last[0] if _last else None, "reduceOp"):
        raise UnsupportedError(
            "bridge.torch: a reduction is not called by torch.distributed's functions, got another caller, expected "
            "torch.distributed or its functional collectives"
        )
    return str(_last[0].reduceOp.op.name).lower()


def _wait(t: Any) -> Any:
    import torch

    return torch.ops._c10d_functional.wait_tensor(t)


def _functional() -> Any:
    import torch

    return torch.ops._c10d_functional


def _all_reduce(values: dict[str, Any], group: str, _size: int) -> Iterable[Write]:
    return [(t, _wait(_functional().all_reduce(t, _reduction(), group))) for t in values["tensors"]]


def _reduce(values: dict[str, Any], group: str, _size: int) -> Iterable[Write]:
    """The reduction on the root alone; backends leave parts of it on other ranks, or what these have."""
    import torch

    is_root = torch.tensor(_group(group).rank() == values["root_rank"])
    made = []
    for t in values["tensors"]:
        reduced = _wait(_functional().all_reduce(t, _reduction(), group))
        with named_memory("result of reduce on ranks that are not its root"):
            other = torch.empty_like(t)
        made.append((t, torch.where(is_root, reduced, other)))
    return made


def _broadcast(values: dict[str, Any], group: str, _size: int) -> Iterable[Write]:
    source = values["root_rank"]
    return [(t, _wait(_functional().broadcast(t, source, group))) for t in values["tensors"]]


def _gathered(t: Any, size: int, group: str) -> Any:
    return _wait(_functional().all_gather_into_tensor(t, size, group))


def _all_gather_base(values: dict[str, Any], group: str, size: int) -> Iterable[Write]:
    out = values["output_tensor"]
    return [(out, _gathered(values["input_tensor"], size, group).view(out.shape))]


def _all_gather(values: dict[str, Any], group: str, size: int) -> Iterable[Write]:
    for outs, t in zip(values["output_tensors"], values["input_tensors"], strict=True):
        whole = _gathered(t.reshape(1, *t.shape), size, group)
        for i, out in enumerate(outs):
            yield out, whole[i]


def _scattered(t: Any, size: int, group: str) -> Any:
    return _wait(_functional().reduce_scatter_tensor(t, _reduction(), size, group))


def _reduce_scatter_base(values: dict[str, Any], group: str, size: int) -> Iterable[Write]:
    out, t = values["output_tensor"], values["input_tensor"]
    return [(out, _scattered(t.reshape(size, -1), size, group).view(out.shape))]


def _reduce_scatter(values: dict[str, Any], group: str, size: int) -> Iterable[Write]:
    import torch

    for out, ts in zip(values["output_tensors"], values["input_tensors"], strict=True):
        yield out, _scattered(torch.stack(list(ts)), size, group)[0]


def _all_to_all_base(values: dict[str, Any], group: str, size: int) -> Iterable[Write]:
    out, t = values["output"], values["input"]
    received = list(values["output_split_sizes"]) or [out.shape[0] // size] * size
    sent = list(values["input_split_sizes"]) or [t.shape[0] // size] * size
    return [(out, _wait(_functional().all_to_all_single(t, received, sent, group)))]


def _all_to_all(values: dict[str, Any], group: str, size: int) -> Iterable[Write]:
    import torch

    outs, ts = values["output_tensors"], values["input_tensors"]
    if len({tuple(t.shape) for t in (*outs, *ts)}) > 1:
        shapes = sorted({tuple(t.shape) for t in (*outs, *ts)})
        raise UnsupportedError(
            f"bridge.torch: all_to_all of parts that differ, got {shapes}, expected one shape"
        )
    whole = torch.stack(list(ts))
    exchanged = _wait(_functional().all_to_all_single(whole, [1] * size, [1] * size, group))
    return [(out, exchanged[i]) for i, out in enumerate(outs)]


def _barrier(_values: dict[str, Any], _group: str, _size: int) -> Iterable[Write]:
    return ()


_CALLS: dict[str, Callable[[dict[str, Any], str, int], Iterable[Write]]] = {
    "allreduce_": _all_reduce,
    "allreduce_coalesced_": _all_reduce,
    "reduce_": _reduce,
    "broadcast_": _broadcast,
    "_allgather_base_": _all_gather_base,
    "allgather_": _all_gather,
    "_reduce_scatter_base_": _reduce_scatter_base,
    "reduce_scatter_": _reduce_scatter,
    "alltoall_base_": _all_to_all_base,
    "alltoall_": _all_to_all,
    "barrier": _barrier,
}

_SHOWN = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce_coalesced",
    "reduce_": "reduce",
    "broadcast_": "broadcast",
    "_allgather_base_": "all_gather_into_tensor",
    "allgather_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter_tensor",
    "reduce_scatter_": "reduce_scatter",
    "alltoall_base_": "all_to_all_single",
    "alltoall_": "all_to_all",
}
"""Names in ``torch.distributed``."""
