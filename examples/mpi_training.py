"""Train a classifier of digits on replicas that MPI's ranks share. Needs popsr[mpi,examples].

``mpiexec -n 4 python -m mpi4py mpi_training.py``: every number of ranks from 1 to 8 prints the same.
"""

import hashlib

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits

import popsr
from popsr import ops

REPLICAS, BATCH, STEPS, RATE, HIDDEN = 8, 8, 150, 0.2, 32

pixels, classes = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(pixels))
x, y = (pixels[order] / 16).astype(np.float32), classes[order].astype(np.int32)
rng = np.random.default_rng(1)

ir = popsr.Ir(replication=REPLICAS)
ir.num_host_transfers = STEPS
ir.options.enable_stochastic_rounding = True
with ir.main_graph, popsr.in_sequence():
    images = popsr.h2d_stream((BATCH, 64), popsr.float32, "images")
    labels = popsr.h2d_stream((BATCH,), popsr.int32, "labels")
    losses = popsr.d2h_stream((), popsr.float32, "losses")
    weights = [
        popsr.variable(rng.normal(0, 0.1, shape), popsr.bfloat16, name)
        for name, shape in {"w1": (64, HIDDEN), "w2": (HIDDEN, 10)}.items()
    ]

    def loss_of(x: popsr.Tensor, y: popsr.Tensor, w1: popsr.Tensor, w2: popsr.Tensor) -> popsr.Tensor:
        """Two layers; the loss is in fp32."""
        hidden = ops.relu(ops.cast(x, w1.dtype) @ w1)
        return ops.nll_loss(ops.softmax(ops.cast(hidden @ w2, popsr.float32), axis=1), y)

    loss = ir.create_graph(loss_of, images.spec, labels.spec, *weights)
    grad = popsr.transforms.autodiff(loss, grads_required=loss.inputs[2:])

    def step(w1: popsr.TensorByRef, w2: popsr.TensorByRef) -> None:
        """One step on one batch for each replica; gradients cross the ranks."""
        call = ops.call_with_info(loss, ops.host_load(images), ops.host_load(labels), w1, w2)
        grads = ops.call(grad.graph, 1.0, inputs_dict=grad.inputs_dict(call))
        for weight, g in zip((w1, w2), grads, strict=True):
            mean = ops.collectives.replicated_all_reduce(g, "mean")
            ops.scaled_add_(weight, mean, b=-RATE)
        ops.host_store(losses, ops.collectives.replicated_all_reduce(call.outputs[0], "mean"))

    ops.repeat(ir.create_graph(step, *weights), STEPS, *weights)

batches = rng.integers(0, 1437, (STEPS, REPLICAS, BATCH))
with popsr.Session(ir, seed=0, comm=MPI.COMM_WORLD) as session:
    own = batches[:, session.local_replicas]  # a rank feeds the rows of its own replicas
    if own.shape[1] == 1:
        own = own[:, 0]
    out = session.run({images: x[own], labels: y[own]})
    trained = session.get_tensors_data(weights)

if MPI.COMM_WORLD.rank == 0:
    w1, w2 = (trained[w].astype(np.float32) for w in weights)
    mean = out[losses].reshape(STEPS, -1)[:, 0]  # the same on all replicas
    right = (np.maximum(x[1437:] @ w1, 0) @ w2).argmax(1) == y[1437:]
    print(f"training loss: {mean[:10].mean():.3f} -> {mean[-10:].mean():.3f}")
    print(f"test accuracy: {100 * right.mean():.1f} %")
    bits = b"".join(trained[w].tobytes() for w in weights)
    print("digest of the weights:", hashlib.blake2b(bits, digest_size=8).hexdigest())
