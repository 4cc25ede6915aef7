"""Training of GPT in phases, for models that do not fit: all state is in remote memory, in shards."""

from functools import partial
from typing import Any, Dict, List, Tuple, Union

import numpy as np
import popxl
import popxl_addons as addons
from model_utils.setup import make_ir
from popxl import ops
from popxl_addons import InputStreams, NamedTensors, OutputStreams, TaskSession
from popxl_addons.graph import GraphWithNamedArgs
from popxl_addons.layers import Embedding, LayerNorm
from popxl_addons.optimizers.adam import AdamOptimizerStep
from popxl_addons.patterns import apply_pre_alias_patterns
from popxl_addons.remote import (
    NamedRemoteBuffers,
    create_remote_buffer,
    load_remote,
    load_remote_graph,
    named_variable_buffers,
    store_remote,
    store_remote_graph,
)
from popxl_addons.rts import (
    all_gather_replica_sharded_graph,
    reduce_replica_sharded_graph,
    replica_sharded_spec,
)
from popxl_addons.transforms.batch_serialisation import (
    RemoteHandle,
    batch_serial_buffer,
    batch_serialise,
    batch_serialise_fwd_and_grad,
)
from popxl_addons.variable_factory import NamedVariableFactories

from .config import GPTConfig
from .modelling import (
    DecoderBlock,
    Embeddings,
    Groups,
    replicated_all_reduce_identical_inputs,
)

Row = Union[int, popxl.Tensor]


class Head(addons.Module):
    """Norm, scores and loss; the matrix is the table of the embedding."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config, self.groups = config, Groups(config)
        self.ln_f = LayerNorm()

    def build(self, x: popxl.Tensor, labels: popxl.Tensor) -> popxl.Tensor:
        m, shards = self.config.model, self.config.execution.tensor_parallel
        shape = (Embedding.get_vocab_shard_size(m.embedding.vocab_size, shards), m.hidden_size)
        table = self.add_variable_input(
            "word", partial(np.zeros, shape), x.dtype, replica_grouping=self.groups.data_parallel
        )
        group = self.groups.tensor_parallel
        x = replicated_all_reduce_identical_inputs(self.ln_f(x, m.eps), group=group)
        return addons.ops.cross_entropy_sharded_loss(x @ table.T, labels, replica_grouping=group)


class HeadWithGradients(addons.Module):
    """In one graph: nothing of it is needed later."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config, self.head = config, [Head(config)]

    def build(self, x: popxl.Tensor, labels: popxl.Tensor) -> Tuple[popxl.Tensor, popxl.Tensor]:
        """The gradient of ``x``, and the loss."""
        facts, forward = self.head[0].create_graph(x, labels)
        grad_facts, backward = addons.autodiff_with_accumulation(
            forward,
            forward.args.tensors,
            grads_required=[forward.graph.inputs[0]],
            replica_groupings=facts.replica_groupings,
        )
        variables = self.add_variable_inputs("variables", facts)
        accumulators = self.add_variable_inputs("accumulators", grad_facts)
        call = forward.bind(variables).call_with_info(x, labels)
        scaling = popxl.constant(self.config.execution.loss_scaling, x.dtype, "loss_scaling")
        activations = backward.grad_graph_info.inputs_dict(call)
        (dx,) = backward.bind(accumulators).call(scaling, args=activations)
        return dx, ops.cast(call.outputs[0], popxl.float32)


class Phase:
    """Shards of variables, optimiser state and gradients, a row for each layer."""

    def __init__(
        self,
        config: GPTConfig,
        name: str,
        facts: NamedVariableFactories,
        grad_facts: NamedVariableFactories,
        args: NamedTensors,
        lr: popxl.TensorSpec,
        rows: int = 1,
    ):
        self.config, self.grad_facts, self.rows = config, grad_facts, rows
        self.groups = facts.replica_groupings
        self.buffers = named_variable_buffers(facts, rows)
        tensors, o = args.to_dict(), config.training.optimizer
        step, gradients, state_facts = AdamOptimizerStep(cache=True), {}, NamedVariableFactories()
        self.steps: Dict[str, GraphWithNamedArgs] = {}
        for key, group in self.groups.to_dict().items():
            spec = replica_sharded_spec(tensors[key], group)
            gradients[key] = create_remote_buffer(spec, rows, shard_over=1)
            found, self.steps[key] = step.create_graph(
                spec,
                spec,
                replica_grouping=group,
                lr=lr,
                beta1=o.beta1,
                beta2=o.beta2,
                eps=o.eps,
                weight_decay=0.0 if key.endswith("bias") or "ln_" in key else o.weight_decay,
                first_order_dtype=popxl.float32,
                loss_scaling=config.execution.loss_scaling,
                global_norm=lr,
                global_norm_max=o.gradient_clipping,
            )
            state_facts.insert(key, found, overwrite=True)
        shards = {key: f.shard_over for key, f in state_facts.to_dict().items()}
        self.gradient_buffers = NamedRemoteBuffers.from_dict(gradients)
        state_buffers = named_variable_buffers(state_facts, rows, shard_over_dict=shards)
        self.all_buffers = NamedRemoteBuffers(variables=self.buffers, optimizer=state_buffers)
        self.variables = [facts.init_remote(self.buffers, n, "{}{}".format(name, n)) for n in range(rows)]
        self.state = [
            state_facts.init_remote(state_buffers, n, "adam.{}{}".format(name, n)) for n in range(rows)
        ]
        self.load, self.names = load_remote_graph(self.buffers, rows)

    def weights(self, row: Row) -> NamedTensors:
        """Gathered from those that have the shards."""
        shards = NamedTensors.pack(self.names, self.load.call(row))
        gather, names = all_gather_replica_sharded_graph(
            shards, use_io_tiles=True, replica_groups=self.groups
        )
        return NamedTensors.pack(names, gather.bind(shards).call())

    def keep(self, row: Row, gradients: NamedTensors) -> popxl.Tensor:
        """Store shards of the gradients; the sum of their squares on this replica."""
        group = Groups(self.config).data_parallel
        reduce, names = reduce_replica_sharded_graph(
            gradients, "mean", use_io_tiles=True, shard_groups=self.groups, replica_group=group
        )
        shards = NamedTensors.pack(names, reduce.bind(gradients).call())
        store_remote_graph(self.gradient_buffers, self.rows).bind(shards).call(row)
        scaling, total = self.config.execution.loss_scaling, popxl.constant(0.0, popxl.float32)
        for shard in shards.tensors:
            total = total + addons.ops.grad_reduce_square_add(shard, scaling)
        return total

    def update(self, lr: popxl.Tensor, norm: popxl.Tensor) -> None:
        """All rows."""

        @popxl.in_sequence()
        def phase(n: popxl.Tensor, lr: popxl.Tensor, norm: popxl.Tensor) -> popxl.Tensor:
            tensors, gradients = load_remote(self.all_buffers, n), load_remote(self.gradient_buffers, n)
            for key, step in self.steps.items():
                bound = step.bind(tensors.optimizer[key])
                bound.call(tensors.variables[key], gradients[key], lr, norm)
            store_remote(self.all_buffers, tensors, n)
            return n + 1

        first = popxl.constant(0, popxl.int32)
        ops.repeat(popxl.gir().create_graph(phase, first, lr, norm), self.rows, first, lr, norm)


class PhasedProgram:
    """The Ir and what is known of it. A run is an update."""

    def __init__(self, config: GPTConfig):
        self.config, e = config, config.execution
        self.ir = make_ir(e.replicas, e.io_tiles, stochastic_rounding=config.training.stochastic_rounding)
        self.ir.num_host_transfers = config.training.gradient_accumulation
        tokens = e.micro_batch_size * config.model.sequence_length
        with self.ir.main_graph:
            self.inputs = InputStreams(
                words=((tokens,), popxl.int32),
                labels=((tokens,), popxl.int32),
                seed=((2,), popxl.uint32),
                lr=((), popxl.float32),
            )
            self.outputs = OutputStreams(loss=((), popxl.float32), grad_norm=((), popxl.float32))
            self.x = popxl.TensorSpec((tokens, config.model.hidden_size), config.model.dtype)
            self.groups = Groups(config)
            self.layer_graphs()
            self.embedding_graphs()
            self.head_graph()
            with popxl.in_sequence():
                self.run_phases()
        apply_pre_alias_patterns(self.ir, level="default")

    def handle(self, buffer: popxl.RemoteBuffer, row: int) -> RemoteHandle:
        """Members of a tensor-parallel group have the same values, and keep a part each."""
        return RemoteHandle(buffer, row, self.groups.tensor_parallel)

    def layer_graphs(self) -> None:
        """Forward and backward of all layers."""
        config, steps = self.config, self.config.training.gradient_accumulation
        facts, forward = DecoderBlock(config).create_graph(self.x, self.inputs.seed.spec)
        x, seed = forward.graph.inputs[:2]
        grad_facts, backward = addons.autodiff_with_accumulation(
            forward, forward.args.tensors, grads_required=[x], replica_groupings=facts.replica_groupings
        )
        backward = addons.recompute_graph(backward)
        rows, group = config.model.layers, self.groups.tensor_parallel
        self.values = batch_serial_buffer(x, steps, rows + 1, group)
        self.gradients = batch_serial_buffer(x, steps, rows + 1, group)
        self.layers = Phase(config, "layer", facts, grad_facts, forward.args, self.inputs.lr.spec, rows)
        self.layer, self.layer_grad = batch_serialise_fwd_and_grad(
            forward,
            backward,
            forward.args,
            steps,
            load_handles={
                x: self.handle(self.values, 0),
                backward.graph.inputs[0]: self.handle(self.gradients, 1),
            },
            store_streams={},
            store_buffers={
                forward.graph.outputs[0]: self.handle(self.values, 1),
                backward.graph.outputs[0]: self.handle(self.gradients, 0),
            },
            seed_input=seed,
            rows=rows,
        )

    def embedding_graphs(self) -> None:
        """Forward and backward of the embedding."""
        config = self.config
        facts, forward = Embeddings(config).create_graph(self.inputs.words.spec, self.inputs.seed.spec)
        words, seed = forward.graph.inputs[:2]
        grad_facts, backward = addons.autodiff_with_accumulation(
            forward, forward.args.tensors, grads_required=[], replica_groupings=facts.replica_groupings
        )
        self.embedding = Phase(config, "embedding", facts, grad_facts, forward.args, self.inputs.lr.spec)
        self.embed, self.embed_grad = batch_serialise_fwd_and_grad(
            forward,
            backward,
            forward.args,
            config.training.gradient_accumulation,
            load_handles={
                words: self.inputs.words,
                backward.graph.inputs[0]: self.handle(self.gradients, 0),
            },
            store_streams={},
            store_buffers={forward.graph.outputs[0]: self.handle(self.values, 0)},
            seed_input=seed,
        )

    def head_graph(self) -> None:
        """Loss and first gradients."""
        config, row = self.config, self.config.model.layers
        facts, graph = HeadWithGradients(config).create_graph(self.x, self.inputs.labels.spec)
        facts.variables.pop("word")
        args = graph.args.variables
        self.head_phase = Phase(
            config, "head", facts.variables, facts.accumulators, args, self.inputs.lr.spec
        )
        x, labels = graph.graph.inputs[:2]
        dx, loss = graph.graph.outputs
        self.head = batch_serialise(
            graph,
            config.training.gradient_accumulation,
            load_handles={x: self.handle(self.values, row), labels: self.inputs.labels},
            store_streams={loss: self.outputs.loss},
            store_buffers={dx: self.handle(self.gradients, row)},
        )

    def run_phases(self) -> None:
        """All of them, in order."""
        lr, seed = ops.host_load(self.inputs.lr), ops.host_load(self.inputs.seed)
        embed_seed, seed = ops.split_random_seed(seed)
        weights = self.embedding.weights(0)
        self.embed.graph.bind(weights).call(0, embed_seed)
        self.forward_layers(seed)
        variables, sums = self.head_phase.weights(0), self.head_phase.grad_facts.init_zero()
        variables.insert("word", weights.word.weight)
        self.head.graph.bind(NamedTensors(variables=variables, accumulators=sums)).call(0)
        tied = sums.accum.pop("word")
        squares = [self.head_phase.keep(0, sums.accum), self.backward_layers()]
        sums = self.embedding.grad_facts.init_zero()
        whole = weights.copy()
        whole.update(sums)
        self.embed_grad.graph.bind(whole).call(0)
        ops.add_(sums.accum.word.weight, tied)
        squares.append(self.embedding.keep(0, sums.accum))
        total = ops.collectives.replicated_all_reduce(squares[0] + squares[1] + squares[2], op="add")
        norm = ops.sqrt(total)
        ops.host_store(self.outputs.grad_norm, norm)
        for phase in (self.embedding, self.layers, self.head_phase):
            phase.update(lr, norm)

    def forward_layers(self, seed: popxl.Tensor) -> None:
        """From the first to the last."""

        @popxl.in_sequence()
        def phase(n: popxl.Tensor, seed: popxl.Tensor) -> List[popxl.Tensor]:
            layer_seed, next_seed = ops.split_random_seed(seed)
            self.layer.graph.bind(self.layers.weights(n)).call(n, layer_seed)
            return [n + 1, next_seed]

        first = popxl.constant(0, popxl.int32, "first_layer")
        ops.repeat(self.ir.create_graph(phase, first, seed), self.config.model.layers, first, seed)

    def backward_layers(self) -> popxl.Tensor:
        """From the last to the first; squares of their gradients."""

        @popxl.in_sequence()
        def phase(n: popxl.Tensor, squares: popxl.Tensor) -> List[popxl.Tensor]:
            whole, sums = self.layers.weights(n), self.layers.grad_facts.init_zero()
            whole.update(sums)
            self.layer_grad.graph.bind(whole).call(n)
            return [n - 1, squares + self.layers.keep(n, sums.accum)]

        last = popxl.constant(self.config.model.layers - 1, popxl.int32, "last_layer")
        none = popxl.constant(0.0, popxl.float32, "no_squares")
        graph = self.ir.create_graph(phase, last, none)
        return ops.repeat(graph, self.config.model.layers, last, none)[1]

    @property
    def variables(self) -> NamedTensors:
        """By the keys that they have without phases."""
        blocks = NamedTensors.from_dict(dict(enumerate(self.layers.variables)))
        head = self.head_phase.variables[0]
        inner = NamedTensors(embeddings=self.embedding.variables[0], ln_f=head.ln_f, blocks=blocks)
        return NamedTensors(transformer=inner)

    def session(self, **options: Any) -> TaskSession:
        """With all state."""
        state = NamedTensors(
            gpt=self.variables, embedding=self.embedding.state[0], head=self.head_phase.state[0]
        )
        state.insert("layers", NamedTensors.from_dict(dict(enumerate(self.layers.state))))
        return TaskSession(self.inputs, self.outputs, state, 1, self.ir, "ipu_hw", **options)
