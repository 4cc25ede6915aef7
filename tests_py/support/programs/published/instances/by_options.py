"""Options say that the program is for all instances, in the form of PopART; no name of popdist makes the Ir."""

import sys

import numpy as np
import popdist
import popdist.popart
import popxl
from popxl import ops


def run(session, stream, out, rows):
    first = popdist.getReplicaIndexOffset()
    own = rows[first : first + popdist.getNumLocalReplicas()]
    return np.atleast_2d(session.run({stream: own if len(own) > 1 else own[0]})[out])


ir = popxl.Ir()
ir.replication_factor = popdist.getNumTotalReplicas()
options = ir._pb_ir.getSessionOptions()
popdist.popart.configureSessionOptions(options)
options.enableStochasticRounding = True
assert ir.replication_factor == popdist.getNumTotalReplicas()
with ir.main_graph, popxl.in_sequence():
    x = popxl.h2d_stream((3,), popxl.float16, "x")
    y = popxl.d2h_stream((3,), popxl.float16, "y")
    alone = ir.replica_grouping(group_size=1)
    own = popxl.variable(
        np.zeros((ir.replication_factor, 3) if ir.replication_factor > 1 else 3, np.float16),
        name="own",
        replica_grouping=alone,
    )
    ops.add_(own, ops.host_load(x))
    largest = ops.collectives.replicated_all_reduce(ops.sum(own), "max")
    flag = ops.greater(largest, popxl.constant(3.0, popxl.float16))
    halved = ir.create_graph(lambda t: ops.collectives.replicated_all_reduce(t, "mean"), own)
    kept = ir.create_graph(lambda t: t * 0.5, own)
    ops.host_store(y, ops.conditional(flag, halved, kept, [own], [own])[0])

rows = np.random.default_rng(2).normal(0, 1, (3, ir.replication_factor, 3)).astype(np.float16)
with popxl.Session(ir, popdist.popart.getDevice()) as session:
    found = [run(session, x, y, each) for each in rows]
np.save("{}/{}.npy".format(sys.argv[1], popdist.getInstanceIndex()), np.stack(found, 1))
data = session.get_tensor_data(own)
if popdist.getInstanceIndex() == 0:
    print(data.astype(np.float32).tolist())
