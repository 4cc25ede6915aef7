"""Train bf16 weights on four replicas with stochastic rounding. Needs popsr[examples]."""

import numpy as np
from sklearn.datasets import load_digits

import popsr
from popsr import ops

REPLICAS, BATCH, STEPS, RATE = 4, 16, 400, 0.1

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
    w = popsr.variable(rng.normal(0, 0.1, (64, 10)), popsr.bfloat16, "w")
    b = popsr.variable(np.zeros(10), popsr.bfloat16, "b")

    def loss_of(x: popsr.Tensor, y: popsr.Tensor, w: popsr.Tensor, b: popsr.Tensor) -> popsr.Tensor:
        """The network: one layer, its loss in fp32."""
        logits = ops.cast(ops.cast(x, w.dtype) @ w + b, popsr.float32)
        return ops.nll_loss(ops.softmax(logits, axis=1), y)

    loss = ir.create_graph(loss_of, images.spec, labels.spec, w, b)
    grad = popsr.transforms.autodiff(loss, grads_required=loss.inputs[2:])

    def step(w: popsr.TensorByRef, b: popsr.TensorByRef) -> None:
        """One step on one batch for each replica; w and b are changed in place."""
        call = ops.call_with_info(loss, ops.host_load(images), ops.host_load(labels), w, b)
        grads = ops.call(grad.graph, 1.0, inputs_dict=grad.inputs_dict(call))
        for param, g in zip((w, b), grads, strict=True):
            mean = ops.collectives.replicated_all_reduce(g, "mean")
            ops.scaled_add_(param, mean, b=-RATE)
        ops.host_store(losses, call.outputs[0])

    ops.repeat(ir.create_graph(step, w, b), STEPS, w, b)

facts = popsr.analysis.analyze(ir)
print("w:", facts.partition(w))

batches = rng.integers(0, 1437, (STEPS, REPLICAS, BATCH))
with popsr.Session(ir, seed=0) as session:
    out = session.run({images: x[batches], labels: y[batches]})
    weights, bias = (session.get_tensor_data(v).astype(np.float32) for v in (w, b))

print(f"training loss: {out[losses][:20].mean():.3f} -> {out[losses][-20:].mean():.3f}")
print(f"test accuracy: {100 * ((x[1437:] @ weights + bias).argmax(1) == y[1437:]).mean():.1f} %")
