"""Rules of functional collectives. A process group is a replica grouping; the importer knows it by the group's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from popsr import ops
from popsr._program.tensor import Tensor
from popsr._support.text.shown import shown
from popsr.bridge.torch._rules.table import Gap, Site, collective
from popsr.ops import collectives

__all__: list[str] = []

_REDUCTIONS = {"sum": "add", "avg": "mean", "product": "mul", "min": "min", "max": "max"}


def _reduction(name: str) -> Any:
    found = _REDUCTIONS.get(name.lower())
    if found is None:
        raise Gap(f"reduction {shown(name)}")
    return found


@collective("wait_tensor.default")
def _wait_tensor(_site: Site, t: Tensor) -> Tensor:
    return t


@collective("all_reduce.default", "all_reduce_.default")
def _all_reduce(site: Site, t: Tensor, reduction: str, group: str) -> Tensor:
    return collectives.replicated_all_reduce(t, _reduction(reduction), site.grouping(group))


@collective("all_reduce_coalesced.default", "all_reduce_coalesced_.default")
def _all_reduce_coalesced(site: Site, ts: Sequence[Tensor], reduction: str, group: str) -> list[Tensor]:
    return [_all_reduce(site, t, reduction, group) for t in ts]


@collective("all_gather_into_tensor.default")
def _all_gather(site: Site, t: Tensor, _size: int, group: str) -> Tensor:
    wide = t if t.rank else ops.reshape(t, (1,))
    return collectives.replicated_all_gather(wide, 0, site.grouping(group), "concat")


@collective("all_gather_into_tensor_coalesced.default")
def _all_gather_coalesced(site: Site, ts: Sequence[Tensor], size: int, group: str) -> list[Tensor]:
    return [_all_gather(site, t, size, group) for t in ts]


@collective("reduce_scatter_tensor.default")
def _reduce_scatter(site: Site, t: Tensor, reduction: str, size: int, group: str) -> Tensor:
    if t.shape[0] % size:
        raise Gap("parts of different sizes")
    part = collectives.replicated_reduce_scatter(t, _reduction(reduction), site.grouping(group))
    return ops.reshape(part, (t.shape[0] // size, *t.shape[1:]))


@collective("reduce_scatter_tensor_coalesced.default")
def _reduce_scatter_coalesced(
    site: Site, ts: Sequence[Tensor], reduction: str, size: int, group: str
) -> list[Tensor]:
    return [_reduce_scatter(site, t, reduction, size, group) for t in ts]


@collective("all_to_all_single.default")
def _all_to_all(site: Site, t: Tensor, received: Sequence[int], sent: Sequence[int], group: str) -> Tensor:
    if len({*received, *sent}) > 1:
        raise Gap("parts of different sizes")
    return collectives.replicated_all_to_all(t, 0, site.grouping(group))


@collective("broadcast.default", "broadcast_.default")
def _broadcast(site: Site, t: Tensor, source: int, group: str) -> Tensor:
    return collectives.replicated_broadcast(t, source, site.grouping(group))


@collective("shard_dim_alltoall.default")
def _shard_dim(site: Site, t: Tensor, gathered: int, sharded: int, group: str) -> Tensor:
    grouping = site.grouping(group)
    size = grouping.group_size
    if t.shape[sharded] % size:
        raise Gap("parts of different sizes")
    part = t.shape[sharded] // size
    parts = ops.split(t, [part] * size, sharded)
    stacked = ops.concat([ops.reshape(each, (1, *each.shape)) for each in parts], 0)
    exchanged = collectives.replicated_all_to_all(stacked, 0, grouping)
    received = [ops.reshape(each, parts[0].shape) for each in ops.split(exchanged, [1] * size, 0)]
    return ops.concat(received, gathered)


@collective("message_moved.default")
def _message(_site: Site, t: Tensor, destinations: Sequence[int]) -> Tensor:
    return collectives.replicated_permute(t, list(destinations))
