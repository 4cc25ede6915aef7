"""A small GPT on two pairs of replicas, trained beside the same model whole on two replicas.

The replicas of a pair share one model (tensor parallelism): each has some rows of the embedding, some heads, some
hidden units and some classes. Between such layers each keeps a part of the sequence (sequence parallelism): its norms
see these positions alone. Both pairs hold the same model and see different samples (data parallelism).
"""

import numpy as np

import popsr
from popsr import addons, ops
from popsr.addons.layers import (
    ColumnParallelLinear,
    ParallelAttention,
    ParallelCrossEntropy,
    ParallelEmbedding,
    RowParallelLinear,
)
from popsr.addons.optimizers import SGDOptimizerStep
from popsr.ops import collectives

TP, DP = 2, 2  # replicas that share a model; models
BATCH, LENGTH, VOCABULARY, WIDTH, HEADS, BLOCKS, STEPS = 4, 8, 16, 12, 4, 2, 30
DTYPE, SEQUENCE = popsr.float64, 1  # the axis of (batch, sequence, width)


class Norm(addons.Module):
    """Layer norm of the positions of this replica; each gradient of its weights is summed over the pair."""

    def build(self, x: popsr.Tensor, pair: popsr.ReplicaGrouping) -> popsr.Tensor:
        """The normed positions."""
        ones = self.add_variable_input("weight", lambda: np.ones(WIDTH), DTYPE)
        zeros = self.add_variable_input("bias", lambda: np.zeros(WIDTH), DTYPE)
        weight, bias = (
            collectives.replicated_all_reduce_identical_inputs(t, group=pair) for t in (ones, zeros)
        )
        return ops.layer_norm(x.reshape((-1, WIDTH)), weight, bias).reshape(x.shape)


class Block(addons.Module):
    """Attention and two dense layers, each with a norm before and a residual connection."""

    def __init__(self, pair: popsr.ReplicaGrouping):
        super().__init__()
        self.pair = pair
        self.norm1, self.norm2 = Norm(), Norm()
        self.attention = ParallelAttention(HEADS, WIDTH // HEADS, pair, sequence_axis=SEQUENCE)
        self.up = ColumnParallelLinear(4 * WIDTH, group=pair, sequence_axis=SEQUENCE)
        self.down = RowParallelLinear(WIDTH, group=pair, sequence_axis=SEQUENCE)

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        """From positions of this replica to the same positions."""
        x = x + self.attention(self.norm1(x, self.pair))
        return x + self.down(ops.gelu(self.up(self.norm2(x, self.pair))))


class Gpt(addons.Module):
    """The mean loss of the next tokens."""

    def __init__(self, pair: popsr.ReplicaGrouping):
        super().__init__()
        self.pair = pair
        self.embedding = ParallelEmbedding(DTYPE, VOCABULARY, WIDTH, pair, SEQUENCE)
        self.blocks = addons.Module.from_list([Block(pair) for _ in range(BLOCKS)])
        self.norm = Norm()
        self.head = ColumnParallelLinear(VOCABULARY, bias=False, group=pair, sequence_axis=SEQUENCE)
        self.loss = ParallelCrossEntropy(pair)

    def build(self, tokens: popsr.Tensor, targets: popsr.Tensor) -> popsr.Tensor:
        """All positions, sequences and tokens of one model: equal on its pair."""
        positions = self.add_variable_input("positions", lambda: np.zeros((LENGTH, WIDTH)), DTYPE)
        x = self.embedding(tokens) + collectives.replicated_slice(positions, 0, self.pair)
        for block in self.blocks:
            x = block(x)
        return self.loss(self.head(self.norm(x, self.pair)), targets)


def train(tp: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Losses by step and model, and the variables: weights and velocities, with a row for each part."""
    np.random.seed(0)  # noqa: NPY002 - layers draw whole weights from it, the same for any number of parts
    ir = popsr.Ir(replication=tp * DP)
    pair = ir.replica_grouping(group_size=tp)  # the pairs, or each replica for tp = 1
    with ir.main_graph, popsr.in_sequence():
        tokens, targets = (
            popsr.h2d_stream((BATCH, LENGTH), popsr.int32, name, replicated_stream_mode=pair)
            for name in ("tokens", "targets")
        )
        losses = popsr.d2h_stream((), DTYPE, "losses", replicated_stream_mode=pair)
        inputs = ops.host_load(tokens), ops.host_load(targets)
        factories, forward = Gpt(pair).create_graph(*inputs)
        backward = addons.autodiff(forward, grads_required=forward.args.tensors)
        weights = factories.init()
        call = forward.bind(weights).call_with_info(*inputs)
        ops.host_store(losses, call.outputs[0])
        gradients = backward.call(popsr.constant(1, DTYPE), args=backward.grad_graph_info.inputs_dict(call))
        for weight, gradient in zip(weights.tensors, gradients, strict=True):
            mean = collectives.replicated_all_reduce(gradient, "mean", pair.transpose())
            options = {"lr": 0.05, "momentum": 0.9, "nesterov": True, "velocity_dtype": DTYPE}
            state, step = SGDOptimizerStep().create_graph(weight, mean, weight.replica_grouping, **options)
            step.bind(state.init(weight.name)).call(weight, mean)
    facts, variables = popsr.analysis.analyze(ir), ir.main_graph.variables
    proved = sum(facts.partition(v) == v.replica_grouping.partition for v in variables)
    print(f"{tp * DP} replicas: {proved} of {len(variables)} variables proved, {len(facts.warnings)} lints")
    text = np.random.default_rng(1).integers(0, VOCABULARY, (STEPS, DP, BATCH, LENGTH)).astype(np.int32)
    with popsr.Session(ir, check=True) as session:  # check: all that was proved is compared as it runs
        steps = [session.run({tokens: each, targets: (3 * each + 1) % VOCABULARY}) for each in text]
        return np.stack([each[losses] for each in steps]), [session.get_tensor_data(v) for v in variables]


def together(parts: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """A variable with its parts put together along the axis where they are smaller."""
    smaller = [a < b for a, b in zip(parts.shape[1:], whole.shape, strict=False)]
    return parts if parts.shape == whole.shape else np.concatenate(list(parts), smaller.index(True))


(whole_losses, whole), (split_losses, split) = train(1), train(TP)
compared = [(a, together(b, a)) for a, b in zip([whole_losses, *whole], [split_losses, *split], strict=True)]
print(f"loss {whole_losses[0].mean():.4f} -> {whole_losses[-1].mean():.4f}")
close = all(np.max(np.abs(a - b)) < 1e-12 for a, b in compared)
print(f"losses, weights and velocities within 1e-12: {close}")
