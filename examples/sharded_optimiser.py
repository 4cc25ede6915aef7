"""Replicated tensor sharding: each replica updates its part of the weights, beside plain data parallelism.

Gradients are reduced and scattered, so that each of four replicas has a quarter of each; it updates that quarter of the
weights with that quarter of Adam's state; and the quarters are gathered where the forward pass needs them.
"""

import itertools

import numpy as np

import popsr
from popsr import addons, ops

REPLICAS, BATCH, STEPS, RATE = 4, 8, 30, 0.01
SIZES = (16, 32, 4)


class Mlp(addons.Module):
    """Two layers and a loss: mean squared error."""

    def build(self, x: popsr.Tensor, y: popsr.Tensor) -> popsr.Tensor:
        """The loss of a batch."""
        rng = np.random.default_rng(0)
        for i, (n, m) in enumerate(itertools.pairwise(SIZES)):
            x = x @ self.add_variable_input(f"w{i}", iter([rng.normal(0, n**-0.5, (n, m))]), x.dtype)
            x = ops.gelu(x) if i == 0 else x
        error = x - y
        return ops.mean(error * error)


class Adam(addons.Module):
    """An update in place, of a whole variable or of a part: it looks at each element alone."""

    def build(self, var: popsr.TensorByRef, grad: popsr.Tensor) -> None:
        """State has the shape of what is updated."""
        zeros = np.zeros(var.meta_shape or var.shape)
        add = self.add_replica_sharded_variable_input if var.meta_shape else self.add_variable_input
        first = add("first", iter([zeros]), popsr.float32, by_ref=True)
        second = add("second", iter([zeros]), popsr.float32, by_ref=True)
        step = self.add_variable_input("step", iter([np.zeros(())]), popsr.float32, by_ref=True)
        ops.var_updates.accumulate_moving_average_(first, grad, f=0.9)
        ops.var_updates.accumulate_moving_average_square_(second, grad, f=0.999)
        update = ops.var_updates.adam_updater(
            first, second, time_step=step, beta1=0.9, beta2=0.999, epsilon=1e-6
        )
        ops.scaled_add_(var, update, b=-RATE)


def make(factories: addons.NamedVariableFactories, sharded: bool) -> addons.NamedTensors:
    """Variables, or what ops use of sharded ones: the part of each replica."""
    if not sharded:
        return factories.init()
    made = {}
    for key, factory in factories.to_dict().items():
        data, is_scalar = factory.next_data(), factory.shape == ()
        made[key] = (
            popsr.variable(data, factory.dtype, key)
            if is_scalar
            else popsr.replica_sharded_variable(data, factory.dtype, key)[1]
        )
    return addons.NamedTensors.from_dict(made)


def train(sharded: bool) -> np.ndarray:
    """Losses by step and replica."""
    ir = popsr.Ir(replication=REPLICAS)
    with ir.main_graph, popsr.in_sequence():
        x, y = (popsr.h2d_stream((BATCH, size), popsr.float32) for size in (SIZES[0], SIZES[-1]))
        losses = popsr.d2h_stream((), popsr.float32)
        factories, forward = Mlp().create_graph(x.spec, y.spec)
        backward = addons.autodiff(forward, grads_required=forward.args.tensors)
        weights = make(factories, sharded)
        gather, names = addons.rts.all_gather_replica_sharded_graph(weights)
        whole = addons.NamedTensors.pack(names, gather.bind(weights).call())
        call = forward.bind(whole).call_with_info(ops.host_load(x), ops.host_load(y))
        ops.host_store(losses, call.outputs[0])
        gradients = backward.call(1.0, args=backward.grad_graph_info.inputs_dict(call))
        for key, gradient in zip(names, gradients, strict=True):
            if sharded:
                gradient = addons.rts.reduce_replica_sharded_tensor(gradient, "mean")
            else:
                gradient = ops.collectives.replicated_all_reduce(gradient, "mean")
            state, step = Adam().create_graph(weights[key], gradient)
            step.bind(make(state, sharded)).call(weights[key], gradient)
    rng, out = np.random.default_rng(1), []
    with popsr.Session(ir) as session:
        for _ in range(STEPS):
            data = rng.normal(size=(REPLICAS, BATCH, SIZES[0])).astype(np.float32)
            out.append(session.run({x: data, y: np.sin(data[..., : SIZES[-1]])})[losses])
    return np.array(out)


plain, split = train(sharded=False), train(sharded=True)
print(f"loss {plain[0].mean():.4f} -> {plain[-1].mean():.4f}")
print("sharded, the same losses:", plain.tobytes() == split.tobytes())
