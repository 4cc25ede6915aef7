"""A model over two devices, on four replicas: eight devices in all.

Collectives of replicas work between replicas, on the same device of each; ``all_reduce`` works between the devices of
one replica. Here one memory holds all devices, so places are recorded and checked, and no value depends on them.
"""

import numpy as np

import popsr
from popsr import ops
from popsr.ops import collectives

REPLICAS, BATCH, SIZE = 4, 3, 6

ir = popsr.Ir(replication=REPLICAS)
rng = np.random.default_rng(0)
with ir.main_graph, popsr.in_sequence():
    stream = popsr.h2d_stream((BATCH, SIZE), popsr.float32, "x")
    out = popsr.d2h_stream((), popsr.float32, "out")
    first = popsr.variable(rng.normal(size=(SIZE, SIZE)), popsr.float32, "first")
    second = popsr.variable(rng.normal(size=(SIZE, SIZE)), popsr.float32, "second")
    with popsr.ipu(0):  # the first layer
        x = ops.host_load(stream)
        hidden = ops.gelu(x @ first)
        norm_0 = ops.sum(first * first)
    moved = ops.ipu_copy(hidden, 1)
    with popsr.ipu(1):  # the second layer
        y = moved @ second
        norm_1 = ops.sum(second * second)
        mean = collectives.replicated_all_reduce(
            ops.mean(y * y), "mean"
        )  # over replicas, on their second devices
    total, _ = collectives.all_reduce([norm_0, norm_1])  # over the devices of each replica
    with popsr.ipu(0):
        ops.host_store(out, total + ops.ipu_copy(mean, 0, 1))

print("hidden is on", hidden.ipu, "and y on", y.ipu)
try:
    with ir.main_graph, popsr.ipu(1):
        hidden @ second
except ValueError as error:
    print("refused:", error)

data = rng.normal(size=(REPLICAS, BATCH, SIZE)).astype(np.float32)
with popsr.Session(ir, check=True) as session:
    values = session.run({stream: data})[out]
print("the same on all replicas:", len(set(values.tolist())) == 1)
facts = popsr.analysis.analyze(ir)
print("y:", facts.partition(y), "mean:", facts.partition(mean))
