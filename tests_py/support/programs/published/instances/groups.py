"""Groups inside domains of IPU links: optimiser state is sharded in a domain, gradients also cross domains."""

import sys

import numpy as np
import popdist
import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.named_replica_grouping import (
    get_ild_replica_grouping,
    get_ild_size_from_popdist,
    is_cross_ild,
)

SIZE, STEPS, RATE = 6, 3, 0.25


def gradient_groups(ir):
    """Replicas of a domain, and replicas with the same place in their domain."""
    inside = get_ild_replica_grouping(ir.replica_grouping())
    size = get_ild_size_from_popdist()
    across = ir.replica_grouping(stride=size, group_size=ir.replication_factor // size)
    assert is_cross_ild(ir.replica_grouping())
    assert not is_cross_ild(inside)
    return inside, across


def main():
    if popdist.isPopdistEnvSet():
        popdist.init()
    ir = popxl.Ir(replication="popdist")
    ir.options.enable_stochastic_rounding = True
    with ir.main_graph, popxl.in_sequence():
        inside, across = gradient_groups(ir)
        each = popxl.h2d_stream((SIZE,), popxl.bfloat16, "each")
        domain = popxl.h2d_stream((SIZE,), popxl.float32, "domain", replicated_stream_mode=inside)
        norms = popxl.d2h_stream((), popxl.float32, "norms")
        sums = popxl.d2h_stream((SIZE,), popxl.float32, "sums", replicated_stream_mode=inside)
        weight, shard = popxl.replica_sharded_variable(
            np.arange(SIZE, dtype=np.float32), popxl.bfloat16, "weight", shard_over=inside.group_size
        )
        zeros = np.zeros((across.num_groups, *shard.shape) if across.num_groups > 1 else shard.shape)
        velocity = popxl.variable(zeros, popxl.float32, "velocity", replica_grouping=across)
        gradient = ops.host_load(each) * ops.cast(ops.host_load(domain), popxl.bfloat16)
        part = ops.collectives.replicated_reduce_scatter(
            gradient, "mean", inside, configure_output_for_replicated_tensor_sharding=True
        )
        part = ops.collectives.replicated_all_reduce(part, "mean", across)
        wide = ops.cast(part, popxl.float32).reshape(velocity.shape)
        ops.var_updates.accumulate_moving_average_(velocity, wide, 0.5)
        ops.scaled_add_(shard, ops.cast(velocity, popxl.bfloat16), b=-RATE)
        whole = addons.rts.gather_replica_sharded_tensor(shard, replica_group=inside)
        ops.host_store(norms, ops.sqrt(ops.sum(ops.cast(whole * gradient, popxl.float32) ** 2.0)))
        ops.host_store(sums, ops.cast(whole, popxl.float32))

    rng = np.random.default_rng(1)
    replicas, size = ir.replication_factor, inside.group_size
    first = popdist.getReplicaIndexOffset()
    own = range(first, first + ir.instance_replication_factor)
    domains = sorted({replica // size for replica in own})
    found = []
    with popxl.Session(ir, "ipu_hw") as session:
        for _ in range(STEPS):
            rows = rng.normal(0, 1, (replicas, SIZE)).astype(popxl.bfloat16.as_numpy())[list(own)]
            of_domains = rng.normal(0, 1, (replicas // size, SIZE)).astype(np.float32)[domains]
            out = session.run(
                {
                    each: rows if len(own) > 1 else rows[0],
                    domain: of_domains if len(domains) > 1 else of_domains[0],
                }
            )
            found.append(out[norms].reshape(-1))
            assert out[sums].size == SIZE * len(domains)
        weights = session.get_tensor_data(weight).astype(np.float32)
    np.save("{}/{}.npy".format(sys.argv[1], popdist.getInstanceIndex()), np.stack(found, 1))
    if popdist.getInstanceIndex() == 0:
        print(weights.tolist())


if __name__ == "__main__":
    main()
