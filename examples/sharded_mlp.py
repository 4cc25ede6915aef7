"""Two layers split over pairs of replicas, trained on two pairs at once, beside the same layers whole.

The first layer is split by columns: each replica of a pair computes some of the hidden units, with the same bits as if
it computed all. The second is split by rows, as its input is then: results of a pair are added, which rounds otherwise.
Replicas of a pair are neighbours; replica i and replica i + 2 hold the same parts and see different samples.
"""

import itertools

import numpy as np

import popsr
from popsr import addons, ops
from popsr.ops import collectives

TP, DP = 2, 2  # parts of the weights; copies of each part
BATCH, SIZES, STEPS, RATE = 4, (12, 32, 6), 20, 0.5


class ColumnLinear(addons.Module):
    """``x @ weight`` with some columns of the weight on each replica of a model."""

    def build(self, x: popsr.Tensor, weight: np.ndarray, same: popsr.ReplicaGrouping) -> popsr.Tensor:
        """The columns of this replica's part."""
        model = same.transpose()
        # Backwards, what the parts say about x is added.
        x = collectives.replicated_all_reduce_identical_inputs(x, group=model)
        parts = np.split(weight, model.group_size, axis=1)
        return x @ self.add_variable_input("weight", iter(parts), x.dtype, replica_grouping=same)


class RowLinear(addons.Module):
    """``x @ weight`` with some rows of the weight, and those columns of x, on each replica of a model."""

    def build(self, x: popsr.Tensor, weight: np.ndarray, same: popsr.ReplicaGrouping) -> popsr.Tensor:
        """The whole result, on each replica."""
        model = same.transpose()
        parts = np.split(weight, model.group_size, axis=0)
        y = x @ self.add_variable_input("weight", iter(parts), x.dtype, replica_grouping=same)
        return collectives.replicated_all_reduce_identical_grad_inputs(y, group=model)


class Mlp(addons.Module):
    """``gelu(x @ first) @ second``, and the hidden units before gelu."""

    def __init__(self, tp: int):
        super().__init__()
        self.same = popsr.gir().replica_grouping(stride=tp)  # replicas that hold the same parts
        self.first, self.second = ColumnLinear(), RowLinear()

    def build(self, x: popsr.Tensor) -> tuple[popsr.Tensor, popsr.Tensor]:
        """Weights are the same for any number of parts."""
        rng = np.random.default_rng(0)
        first, second = (rng.normal(0, n**-0.5, (n, m)) for n, m in itertools.pairwise(SIZES))
        hidden = self.first(x, first, self.same)
        y = self.second(ops.gelu(hidden), second, self.same)
        return y, collectives.replicated_all_gather(hidden, axis=1, group=self.same.transpose())


def train(tp: int, dtype: popsr.dtype) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Hidden units of the first step and losses, by model, and the weights with their parts put together."""
    ir = popsr.Ir(replication=tp * DP)
    ir.num_host_transfers = STEPS
    with ir.main_graph, popsr.in_sequence():
        streams = [popsr.h2d_stream((BATCH, size), dtype) for size in (SIZES[0], SIZES[-1])]
        losses, hidden = popsr.d2h_stream((), dtype), popsr.d2h_stream((BATCH, SIZES[1]), dtype)
        factories, forward = Mlp(tp).create_graph(streams[0].spec)
        y = forward.graph.outputs[0]
        backward = addons.autodiff(forward, grads_provided=[y], grads_required=forward.args.tensors)
        variables = factories.init()

        def step(weights: list[popsr.TensorByRef]) -> None:
            bound = addons.NamedTensors.pack(variables.keys_flat(), weights)
            call = forward.bind(bound).call_with_info(ops.host_load(streams[0]))
            error = call.outputs[0] - ops.host_load(streams[1])
            ops.host_store(losses, ops.mean(error * error))
            ops.host_store(hidden, call.outputs[1])
            activations = backward.grad_graph_info.inputs_dict(call)
            gradients = backward.call(error * (2 / error.nelms), args=activations)
            group = factories.replica_groupings.first.weight
            for weight, gradient in zip(bound.tensors, gradients, strict=True):
                ops.scaled_add_(weight, collectives.replicated_all_reduce(gradient, "mean", group), b=-RATE)

        ops.repeat(ir.create_graph(step, variables.values_flat()), STEPS, variables.values_flat())
    rng = np.random.default_rng(1)
    x = rng.normal(size=(STEPS, DP, BATCH, SIZES[0]))
    inputs = dict(zip(streams, [x, np.tanh(x[..., : SIZES[-1]])], strict=True))
    with popsr.Session(ir, check=True) as session:  # check: all that was proved is compared as it runs
        # A pair sees the same samples.
        inputs = {
            stream: np.repeat(data, tp, axis=1).astype(dtype.as_numpy()) for stream, data in inputs.items()
        }
        out = session.run(inputs, downcast_inputs=False)
        parts = [session.get_tensor_data(v).reshape(tp, *v.shape) for v in variables.tensors]
    whole = [np.concatenate(part, axis=axis) for part, axis in zip(parts, (1, 0), strict=True)]
    return out[hidden][0, ::tp], out[losses][:, ::tp], whole


for dtype, tolerance in ((popsr.float64, 1e-12), (popsr.float32, 1e-5)):
    (hidden, losses, weights), (split_hidden, split_losses, split_weights) = (
        train(tp, dtype) for tp in (1, TP)
    )
    same_bits = hidden.tobytes() == split_hidden.tobytes()
    pairs = zip([losses, *weights], [split_losses, *split_weights], strict=True)
    furthest = max(float(np.max(np.abs(a - b)) / np.max(np.abs(a))) for a, b in pairs)
    print(f"{dtype.name}: loss {losses[0].mean():.4f} -> {losses[-1].mean():.4f}")
    print(f"  split by columns, the same bits: {same_bits}")
    print(f"  trained in parts, relative difference below {tolerance}: {furthest < tolerance}")
