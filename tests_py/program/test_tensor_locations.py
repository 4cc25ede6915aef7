"""Locations of tensors: on the chip or in remote memory, whole or sharded."""

from __future__ import annotations

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.ops import collectives
from popsr.tensorlocation import ReplicatedTensorSharding, TensorLocation, TensorStorage, TileSet

F32 = popsr.float32


def test_location_info() -> None:
    on, off = ReplicatedTensorSharding.On, ReplicatedTensorSharding.Off
    with popsr.Ir(replication=2).main_graph:
        v = popsr.variable(np.ones(2), F32)
        remote = popsr.remote_variable(np.ones(2), popsr.remote_buffer((2,), F32), dtype=F32)
        buffer = popsr.replica_sharded_buffer((2,), F32)
        in_parts = popsr.remote_replica_sharded_variable(np.ones(2), buffer, dtype=F32)
        whole, shard = popsr.replica_sharded_variable(np.ones(2), F32)
        scalar, part = popsr.replica_sharded_variable(1.0, F32)
        scattered = collectives.replicated_reduce_scatter(
            v, configure_output_for_replicated_tensor_sharding=True
        )
        assert v.location_info == ops.relu(v).location_info == popsr.constant(1).location_info
        assert v.location_info == TensorLocation()
        assert remote.location_info == TensorLocation(TensorStorage.OffChip)
        assert in_parts.location_info == TensorLocation(TensorStorage.OffChip, on)
        for t in (whole, shard, scalar, part, scattered):
            assert t.location_info == TensorLocation(replicated_tensor_sharding=on)
        assert v.location_info.replicated_tensor_sharding is off


def test_locations_are_values() -> None:
    location = TensorLocation(TensorStorage.OffChip, ReplicatedTensorSharding.On)
    assert (location.storage, location.replicated_tensor_sharding) == (
        TensorStorage.OffChip,
        ReplicatedTensorSharding.On,
    )
    assert location != TensorLocation()
    assert location != "OffChip"
    assert len({location, TensorLocation(), TensorLocation(TensorStorage.OnChip)}) == 2
    assert repr(location) == "TensorLocation(storage=OffChip, replicated_tensor_sharding=On)"
    with pytest.raises(AttributeError):
        location.storage = TensorStorage.OnChip  # type: ignore[misc]
    for name in ("ExecutionContext", "ReplicatedTensorSharding", "TensorLocation", "TensorStorage"):
        assert getattr(popsr, name) is getattr(popsr.tensorlocation, name)
    assert [tiles.name for tiles in TileSet] == ["Compute", "IO"]
    assert popsr.ExecutionContext(0) is popsr.ExecutionContext.Normal


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"storage": 1}, r"^TensorLocation: storage is not a TensorStorage, got 1"),
        ({"replicated_tensor_sharding": True}, r"^TensorLocation: replicated_tensor_sharding is not a Repl"),
    ],
)
def test_errors(arguments: dict[str, object], match: str) -> None:
    with pytest.raises(errors.ArgumentTypeError, match=match):
        TensorLocation(**arguments)  # type: ignore[arg-type]
