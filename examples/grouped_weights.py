"""Weights that pairs of replicas share, as in tensor parallelism, and what the analysis proves about them."""

import numpy as np

import popsr
from popsr import ops

ir = popsr.Ir(replication=4)
pairs = ir.replica_grouping(stride=1, group_size=2)  # {0, 1} hold one value, {2, 3} another
with ir.main_graph, popsr.in_sequence():
    w = popsr.variable(np.array([[1.0, 2.0], [3.0, 4.0]]), popsr.float32, "w", replica_grouping=pairs)
    total = ops.collectives.replicated_all_reduce(w, group=pairs.transpose())
    stream = popsr.d2h_stream((2,), popsr.float32, "total")
    ops.host_store(stream, total)

facts = popsr.analysis.analyze(ir)
for tensor in (w, total):
    print(f"{tensor.name}: {facts.partition(tensor)}")

with popsr.Session(ir) as session:
    print(session.run()[stream])  # one row for each replica
    print(session.get_tensor_data(w))  # one row for each group
