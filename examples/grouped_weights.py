"""Weights that groups of replicas share: how they are set, run, read into buffers, saved and loaded again."""

import argparse
from pathlib import Path

import numpy as np

import popsr
from popsr import ops
from popsr.io import PyWeightsIO, load_onnx, save_onnx
from popsr.replicas import CommGroup, CommGroupType, VariableRetrievalMode, VariableSettings

REPLICAS = 4
SHAPE = (2, 3, 4)

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path("grouped_weights.onnx"), help="the checkpoint")
path = parser.parse_args().out

pairs = CommGroup(CommGroupType.Consecutive, 2)
print(pairs.table(REPLICAS))

# A variable has one initial value per group: an outer dimension more when there are several groups.
ir = popsr.Ir(replication=REPLICAS)
data = np.arange(2 * 24, dtype=np.float32).reshape(2, *SHAPE)
modes = VariableRetrievalMode.OnePerGroup, VariableRetrievalMode.AllReplicas
with ir.main_graph, popsr.in_sequence():
    variables = [
        ir.add_initialized_input(data, VariableSettings(pairs, mode), name=mode.name) for mode in modes
    ]
    stream = popsr.h2d_stream(SHAPE, popsr.float32, "x")  # each replica has its own data
    x = ops.host_load(stream)
    mean = ops.collectives.replicated_all_reduce(x, "mean", pairs.to_replica_grouping(REPLICAS))
    for variable in variables:
        ops.add_(variable, mean)
ir.embed_replication_factor()  # so that a checkpoint says what its outer dimensions are

with popsr.Session(ir) as session:
    session.run(
        {stream: np.arange(REPLICAS, dtype=np.float32)[:, None, None, None] + np.zeros(SHAPE, np.float32)}
    )
    # OnePerGroup: [groups, 2, 3, 4]. AllReplicas: [replicas, 2, 3, 4].
    buffers = [np.empty((rows, *SHAPE), np.float32) for rows in (2, REPLICAS)]
    session.read_weights(PyWeightsIO(dict(zip(variables, buffers, strict=True))))
    for variable, buffer in zip(variables, buffers, strict=True):
        print(f"{variable.name}: buffer {buffer.shape}, first elements {buffer[:, 0, 0, 0]}")

    save_onnx(session, path)
    session.write_weights(PyWeightsIO({variables[0]: np.zeros_like(buffers[0])}))
    session.reset_host_weights(path)
    assert np.array_equal(session.get_tensor_data(variables[0]), buffers[0])

checkpoint = load_onnx(path)
print(checkpoint)
