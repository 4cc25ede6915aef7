"""Collectives of ``torch.distributed`` as they are called while a step is traced, as functional ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from popsr.bridge.torch._locations import current_place, shown_place
from popsr.errors import UnsupportedError

__all__ = ["functional_collective", "noted_reductions"]


def functional_collective(
    op: Any, args: tuple[Any, ...], options: dict[str, Any], groups: dict[str, tuple[int, ...]]
) -> Any:
    """Call a collective, one that writes its operand as a functional one and a copy; note the ranks of its group."""
    import torch.distributed as dist

    values = dict(zip([each.name for each in op._schema.arguments], args, strict=False)) | options
    if op.namespace != "c10d":
        if "group_name" not in values:
            return op(*args, **options)
        group = _group(values["group_name"])
        groups[group.group_name] = tuple(dist.get_process_group_ranks(group))
        return op(**(values | {"group_name": group.group_name}))
    name = str(op).split(".")[1]
    call = _CALLS.get(name)
    if call is None:
        where = shown_place(current_place())
        raise UnsupportedError(
            f"bridge.torch: communication without a counterpart at {where}, got {name}, expected a collective"
        )
    group = dist.ProcessGroup.unbox(values["process_group"])
    groups[group.group_name] = tuple(dist.get_process_group_ranks(group))
    return call(values, group.group_name, group.size())


def _group(given: Any) -> Any:
    """A process group, of its name or of itself."""
    from torch.distributed import distributed_c10d as module

    return getattr(module, "_resolve_process_group")(given) if isinstance(given, str) else given  # noqa: B009


def _done(results: Any) -> Any:
    import torch

    return results, torch._C._distributed_c10d.FakeWork().boxed()


_OPTIONS = ("AllreduceOptions", "AllreduceCoalescedOptions", "ReduceOptions", "ReduceScatterOptions")
_last: list[Any] = []


@contextlib.contextmanager
def noted_reductions() -> Iterator[None]:
    """Keep the options of the reduction that is called: an op that reaches dispatch does not show its own."""
    from torch.distributed import distributed_c10d as module

    def noting(make: Callable[[], Any]) -> Callable[[], Any]:
        def options() -> Any:
            _last[:] = [make()]
            return _last[0]

        return options

    kept = {name: getattr(module, name) for name in _OPTIONS}
    try:
        for name, make in kept.items():
            setattr(module, name, noting(make))
        yield
    finally:
        _last.clear()
        for name, make in kept.items():
            setattr(module, name, make)


def _reduction() -> str:
    """Name of the reduction that is called."""
    if not _last:
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


def _all_reduce(values: dict[str, Any], group: str, _size: int) -> Any:
    for t in values["tensors"]:
        t.copy_(_wait(_functional().all_reduce(t, _reduction(), group)))
    return _done(values["tensors"])


def _all_reduce_coalesced(values: dict[str, Any], group: str, size: int) -> Any:
    return _all_reduce(values, group, size)[1]


def _reduce(values: dict[str, Any], group: str, _size: int) -> Any:
    """The reduction on the root alone; others keep what they have, of which torch says nothing."""
    import torch

    is_root = torch.tensor(_group(group).rank() == values["root_rank"])
    for t in values["tensors"]:
        t.copy_(torch.where(is_root, _wait(_functional().all_reduce(t, _reduction(), group)), t))
    return _done(None)[1]


def _broadcast(values: dict[str, Any], group: str, _size: int) -> Any:
    for t in values["tensors"]:
        t.copy_(_wait(_functional().broadcast(t, values["root_rank"], group)))
    return _done(values["tensors"])


def _gathered(t: Any, size: int, group: str) -> Any:
    return _wait(_functional().all_gather_into_tensor(t, size, group))


def _all_gather_base(values: dict[str, Any], group: str, size: int) -> Any:
    out = values["output_tensor"]
    out.copy_(_gathered(values["input_tensor"], size, group).view(out.shape))
    return _done(out)


def _all_gather(values: dict[str, Any], group: str, size: int) -> Any:
    for outs, t in zip(values["output_tensors"], values["input_tensors"], strict=True):
        whole = _gathered(t.reshape(1, *t.shape), size, group)
        for i, out in enumerate(outs):
            out.copy_(whole[i])
    return _done(values["output_tensors"])


def _scattered(t: Any, size: int, group: str) -> Any:
    return _wait(_functional().reduce_scatter_tensor(t, _reduction(), size, group))


def _reduce_scatter_base(values: dict[str, Any], group: str, size: int) -> Any:
    out, t = values["output_tensor"], values["input_tensor"]
    flat = t.reshape(size, -1)
    out.copy_(_scattered(flat, size, group).view(out.shape))
    return _done(out)


def _reduce_scatter(values: dict[str, Any], group: str, size: int) -> Any:
    import torch

    for out, ts in zip(values["output_tensors"], values["input_tensors"], strict=True):
        out.copy_(_scattered(torch.stack(list(ts)), size, group)[0])
    return _done(values["output_tensors"])


def _all_to_all_base(values: dict[str, Any], group: str, size: int) -> Any:
    out, t = values["output"], values["input"]
    received = list(values["output_split_sizes"]) or [out.shape[0] // size] * size
    sent = list(values["input_split_sizes"]) or [t.shape[0] // size] * size
    out.copy_(_wait(_functional().all_to_all_single(t, received, sent, group)))
    return _done(None)[1]


def _all_to_all(values: dict[str, Any], group: str, size: int) -> Any:
    import torch

    outs, ts = values["output_tensors"], values["input_tensors"]
    if len({tuple(t.shape) for t in (*outs, *ts)}) > 1:
        shapes = sorted({tuple(t.shape) for t in (*outs, *ts)})
        raise UnsupportedError(
            f"bridge.torch: all_to_all of parts that differ, got {shapes}, expected one shape"
        )
    whole = torch.stack(list(ts))
    exchanged = _wait(_functional().all_to_all_single(whole, [1] * size, [1] * size, group))
    for i, out in enumerate(outs):
        out.copy_(exchanged[i])
    return _done(outs)


def _barrier(_values: dict[str, Any], _group: str, _size: int) -> Any:
    return _done(None)[1]


_CALLS: dict[str, Callable[[dict[str, Any], str, int], Any]] = {
    "allreduce_": _all_reduce,
    "allreduce_coalesced_": _all_reduce_coalesced,
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
