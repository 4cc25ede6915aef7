"""Train a small GPT on replicas that MPI's ranks share: tensor parallel and data parallel. Needs popsr[mpi].

Eight replicas are four pairs. The replicas of a pair hold one model, each some heads, hidden units, words and classes
of it; the pairs hold the same model and see other samples. ``mpiexec -n 4 python -m mpi4py mpi_transformer.py``: every
number of ranks from 1 to 8 prints the same.
"""

import hashlib

import numpy as np
from mpi4py import MPI

import popsr
from popsr import addons, ops
from popsr.addons.layers import (
    ColumnParallelLinear,
    ParallelAttention,
    ParallelCrossEntropy,
    ParallelEmbedding,
    RowParallelLinear,
)
from popsr.ops import collectives

TP, DP = 2, 4  # replicas that share a model; models
BATCH, LENGTH, VOCABULARY, WIDTH, HEADS, BLOCKS, STEPS, RATE = 4, 8, 16, 16, 4, 2, 40, 0.25
DTYPE = popsr.bfloat16  # rounded stochastically, alike on the replicas that hold the same weights


class Norm(addons.Module):
    """Layer norm over the width."""

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        """Normed values."""
        weight = self.add_variable_input("weight", lambda: np.ones(WIDTH), DTYPE)
        bias = self.add_variable_input("bias", lambda: np.zeros(WIDTH), DTYPE)
        return ops.layer_norm(x.reshape((-1, WIDTH)), weight, bias).reshape(x.shape)


class Block(addons.Module):
    """Attention and two dense layers, each with a norm before and a residual connection."""

    def __init__(self, pair: popsr.ReplicaGrouping):
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.attention = ParallelAttention(HEADS, WIDTH // HEADS, pair)
        self.up, self.down = ColumnParallelLinear(4 * WIDTH, group=pair), RowParallelLinear(WIDTH, group=pair)

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        """Values of the same shape."""
        x = x + self.attention(self.norm1(x))
        return x + self.down(ops.gelu(self.up(self.norm2(x))))


class Gpt(addons.Module):
    """The mean loss of the next tokens."""

    def __init__(self, pair: popsr.ReplicaGrouping):
        super().__init__()
        self.embedding = ParallelEmbedding(DTYPE, VOCABULARY, WIDTH, pair)
        self.blocks = addons.Module.from_list([Block(pair) for _ in range(BLOCKS)])
        self.norm, self.head = Norm(), ColumnParallelLinear(VOCABULARY, bias=False, group=pair)
        self.loss = ParallelCrossEntropy(pair)

    def build(self, tokens: popsr.Tensor, targets: popsr.Tensor) -> popsr.Tensor:
        """All samples of one model."""
        x = self.embedding(tokens)
        x = x + self.add_variable_input("positions", lambda: np.zeros((LENGTH, WIDTH)), DTYPE)
        for block in self.blocks:
            x = block(x)
        return self.loss(self.head(self.norm(x)), targets)


np.random.seed(0)  # noqa: NPY002 - layers draw from it, and all ranks must make the same program
ir = popsr.Ir(replication=TP * DP)
ir.options.enable_stochastic_rounding = True
pair = ir.replica_grouping(group_size=TP)
with ir.main_graph, popsr.in_sequence():
    tokens, targets = (
        popsr.h2d_stream((BATCH, LENGTH), popsr.int32, name, replicated_stream_mode=pair)
        for name in ("tokens", "targets")
    )
    everyone = ir.replica_grouping()
    losses = popsr.d2h_stream((), popsr.float32, "losses", replicated_stream_mode=everyone)
    inputs = ops.host_load(tokens), ops.host_load(targets)
    factories, forward = Gpt(pair).create_graph(*inputs)
    backward = addons.autodiff(forward, grads_required=forward.args.tensors)
    weights = factories.init()
    call = forward.bind(weights).call_with_info(*inputs)
    loss = ops.cast(call.outputs[0], popsr.float32)
    ops.host_store(losses, collectives.replicated_all_reduce(loss, "mean"))
    gradients = backward.call(popsr.constant(1, DTYPE), args=backward.grad_graph_info.inputs_dict(call))
    for weight, gradient in zip(weights.tensors, gradients, strict=True):
        ops.scaled_add_(
            weight, collectives.replicated_all_reduce(gradient, "mean", pair.transpose()), b=-RATE
        )

text = np.random.default_rng(1).integers(0, VOCABULARY, (STEPS, DP, BATCH, LENGTH)).astype(np.int32)
with popsr.Session(ir, seed=0, comm=MPI.COMM_WORLD) as session:
    models = sorted({replica // TP for replica in session.local_replicas})  # a row for each pair on this rank
    found = []
    for step in text:
        own = step[models] if len(models) > 1 else step[models[0]]
        found.append(session.run({tokens: own, targets: (3 * own + 1) % VOCABULARY})[losses])
    trained = session.get_tensors_data(weights.tensors)

if MPI.COMM_WORLD.rank == 0:
    print(f"loss: {np.mean(found[:5]):.3f} -> {np.mean(found[-5:]):.3f}")
    bits = b"".join(each.tobytes() for each in trained.values())
    print("digest of the weights:", hashlib.blake2b(bits, digest_size=8).hexdigest())
