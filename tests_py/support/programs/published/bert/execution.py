"""Pretraining in phases: embedding, layers, heads, layers backwards, embedding backwards."""

from typing import Any, Dict, List, Optional, Union

import numpy as np
import popxl
import popxl_addons as addons
from model_utils.setup import make_ir
from model_utils.weights import StateDict, load_state, map_state
from popxl import ops
from popxl_addons import (
    InputStreams,
    NamedTensors,
    OutputStreams,
    TaskSession,
    batch_serialise,
    batch_serialise_fwd_and_grad,
)
from popxl_addons.graph import GraphWithNamedArgs
from popxl_addons.named_replica_grouping import NamedReplicaGrouping
from popxl_addons.patterns import apply_pre_alias_patterns
from popxl_addons.remote import (
    NamedRemoteBuffers,
    load_remote_graph,
    named_variable_buffers,
    store_remote_graph,
)
from popxl_addons.rts import (
    all_gather_replica_sharded_graph,
    reduce_replica_sharded_graph,
    replica_sharded_spec,
)
from popxl_addons.transforms.batch_serialisation import RemoteHandle
from popxl_addons.variable_factory import NamedVariableFactories

from .config import BertConfig
from .modelling import Embeddings, EncoderLayer, HeadsWithGradients, pretrained_rules
from .optimizer import Lamb

Row = Union[int, popxl.Tensor]


class Phase:
    """Variables and optimiser state of a phase in remote buffers, a row for each layer."""

    def __init__(
        self,
        config: BertConfig,
        name: str,
        facts: NamedVariableFactories,
        grad_facts: NamedVariableFactories,
        graph: GraphWithNamedArgs,
        lr: popxl.TensorSpec,
        rows: int = 1,
    ):
        self.grad_facts, ir = grad_facts, popxl.gir()
        self.use_io_tiles = config.execution.io_mode != "compute"
        alone, together = ir.replica_grouping(group_size=1), ir.replica_grouping()
        tensors = graph.args.to_dict()
        threshold = config.execution.sharded_threshold
        is_sharded = {key: tensors[key].nelms >= threshold for key in facts.keys_flat()}
        self.groups = NamedReplicaGrouping.from_dict(
            {key: together if sharded else alone for key, sharded in is_sharded.items()}
        )
        shards = {key: group.group_size for key, group in self.groups.to_dict().items()}
        self.buffers = named_variable_buffers(facts, rows, shard_over_dict=shards)
        optimizer = Lamb(config.training.optimizer, config.execution.loss_scaling)
        self.steps: Dict[str, GraphWithNamedArgs] = {}
        state_facts = NamedVariableFactories()
        for key, group in self.groups.to_dict().items():
            spec = replica_sharded_spec(tensors[key], group)
            is_plain = key.endswith("bias") or "norm" in key
            decay = 0.0 if is_plain else config.training.optimizer.weight_decay
            found, self.steps[key] = optimizer.create_graph(spec, spec, lr, group=group, decay=decay)
            state_facts.insert(key, found, overwrite=True)
        state_shards = {key: f.shard_over for key, f in state_facts.to_dict().items()}
        state_buffers = named_variable_buffers(state_facts, rows, shard_over_dict=state_shards)
        both = NamedRemoteBuffers(variables=self.buffers, optimizer=state_buffers)
        self.variables = [facts.init_remote(self.buffers, n, "{}{}".format(name, n)) for n in range(rows)]
        self.state = [
            state_facts.init_remote(state_buffers, n, "optimizer.{}{}".format(name, n)) for n in range(rows)
        ]
        self.load, self.names = load_remote_graph(self.buffers, rows, use_io_tiles=self.use_io_tiles)
        self.load_all, self.names_of_all = load_remote_graph(both, rows, use_io_tiles=self.use_io_tiles)
        self.store_all = store_remote_graph(both, rows, use_io_tiles=self.use_io_tiles)

    def gathered(self, shards: NamedTensors) -> NamedTensors:
        """Whole variables."""
        gather, names = all_gather_replica_sharded_graph(
            shards, use_io_tiles=self.use_io_tiles, replica_groups=self.groups
        )
        return NamedTensors.pack(names, gather.bind(shards).call())

    def weights(self, row: Row) -> NamedTensors:
        """Whole variables of a row."""
        return self.gathered(NamedTensors.pack(self.names, self.load.call(row)))

    def everything(self, row: Row) -> NamedTensors:
        """Shards of variables, and optimiser state."""
        return NamedTensors.pack(self.names_of_all, self.load_all.call(row))

    def update(self, row: Row, tensors: NamedTensors, gradients: NamedTensors, lr: popxl.Tensor) -> None:
        """Reduce gradients to shards, step, store."""
        group = popxl.gir().replica_grouping()
        reduce, names = reduce_replica_sharded_graph(
            gradients,
            "mean",
            use_io_tiles=self.use_io_tiles,
            shard_groups=self.groups,
            replica_group=group,
        )
        shards = dict(zip(names, reduce.bind(gradients).call()))
        for key, step in self.steps.items():
            step.bind(tensors.optimizer[key]).call(tensors.variables[key], shards[key], lr)
        self.store_all.bind(tensors).call(row)


class Program:
    """The Ir and what is known of it. A run is an update."""

    def __init__(self, config: BertConfig):
        self.config, e = config, config.execution
        self.ir = make_ir(e.data_parallel, partials="half" if config.model.precision == 16 else "float")
        self.ir.num_host_transfers = e.gradient_accumulation
        with self.ir.main_graph:
            self.inputs = InputStreams(
                words=((config.tokens,), popxl.int32),
                token_types=((config.tokens,), popxl.int32),
                mask=((e.micro_batch_size, config.model.sequence_length), config.model.dtype),
                masked_positions=((config.masked,), popxl.int32),
                masked_words=((config.masked,), popxl.int32),
                follows=((e.micro_batch_size,), popxl.int32),
                seed=((2,), popxl.uint32),
                lr=((), popxl.float32),
            )
            self.outputs = OutputStreams(mlm_loss=((), popxl.float32), nsp_loss=((), popxl.float32))
            self.activations()
            self.embedding_graphs()
            self.layer_graphs()
            self.head_graph()
            with popxl.in_sequence():
                self.run_phases()
        apply_pre_alias_patterns(self.ir, level="default")

    def activations(self) -> None:
        """Row n of ``values`` is what layer n takes, of ``gradients`` what its backward phase leaves."""
        config, steps = self.config, self.config.execution.gradient_accumulation
        rows = config.model.layers + 1
        self.x = popxl.TensorSpec((config.tokens, config.model.hidden_size), config.model.dtype)
        self.values = popxl.remote_buffer(self.x.shape, self.x.dtype, rows * steps)
        self.gradients = popxl.remote_buffer(self.x.shape, self.x.dtype, rows * steps)
        self.masks = popxl.remote_buffer(self.inputs.mask.shape, self.inputs.mask.dtype, steps)
        self.seed_spec = popxl.TensorSpec((2,), popxl.uint32)

    def embedding_graphs(self) -> None:
        """Forward and backward of the embedding."""
        config, inputs = self.config, self.inputs
        facts, forward = Embeddings(config).create_graph(
            inputs.words.spec, inputs.token_types.spec, inputs.mask.spec, self.seed_spec
        )
        grad_facts, backward = addons.autodiff_with_accumulation(
            forward, forward.args.tensors, grads_required=[]
        )
        self.embedding = Phase(config, "embedding", facts, grad_facts, forward, inputs.lr.spec)
        words, token_types, mask, seed = forward.graph.inputs[:4]
        self.embed, self.embed_grad = batch_serialise_fwd_and_grad(
            forward,
            backward,
            forward.args,
            config.execution.gradient_accumulation,
            load_handles={
                words: inputs.words,
                token_types: inputs.token_types,
                mask: inputs.mask,
                backward.graph.inputs[0]: (self.gradients, 0),
            },
            store_streams={},
            store_buffers={mask: RemoteHandle(self.masks, None), forward.graph.outputs[0]: (self.values, 0)},
            seed_input=seed,
            rows=1,
            io_mode=config.execution.io_mode,
        )

    def layer_graphs(self) -> None:
        """Forward and backward of all layers."""
        config = self.config
        facts, forward = EncoderLayer(config).create_graph(self.x, self.inputs.mask.spec, self.seed_spec)
        x, mask, seed = forward.graph.inputs[:3]
        grad_facts, backward = addons.autodiff_with_accumulation(
            forward, forward.args.tensors, grads_required=[x]
        )
        if config.execution.recompute:
            backward = addons.recompute_graph(backward)
        rows = config.model.layers
        self.layers = Phase(config, "layer", facts, grad_facts, forward, self.inputs.lr.spec, rows)
        self.layer, self.layer_grad = batch_serialise_fwd_and_grad(
            forward,
            backward,
            forward.args,
            config.execution.gradient_accumulation,
            load_handles={
                x: RemoteHandle(self.values, 0),
                mask: RemoteHandle(self.masks, None),
                backward.graph.inputs[0]: RemoteHandle(self.gradients, 1),
            },
            store_streams={},
            store_buffers={
                forward.graph.outputs[0]: RemoteHandle(self.values, 1),
                backward.graph.outputs[0]: RemoteHandle(self.gradients, 0),
            },
            seed_input=seed,
            rows=rows,
            io_mode=config.execution.io_mode,
        )

    def head_graph(self) -> None:
        """Heads and losses; the matrix of the scores belongs to the embedding."""
        config, inputs = self.config, self.inputs
        facts, graph = HeadsWithGradients(config).create_graph(
            self.x, inputs.masked_positions.spec, inputs.masked_words.spec, inputs.follows.spec
        )
        facts.variables.mlm.pop("decoder")
        graph_args = GraphWithNamedArgs(graph.graph, graph.args.variables)
        self.heads = Phase(config, "heads", facts.variables, facts.accumulators, graph_args, inputs.lr.spec)
        x, positions, words, follows = graph.graph.inputs[:4]
        dx, mlm_loss, nsp_loss = graph.graph.outputs
        self.head = batch_serialise(
            graph,
            config.execution.gradient_accumulation,
            load_handles={
                x: RemoteHandle(self.values, config.model.layers),
                positions: inputs.masked_positions,
                words: inputs.masked_words,
                follows: inputs.follows,
            },
            store_streams={mlm_loss: self.outputs.mlm_loss, nsp_loss: self.outputs.nsp_loss},
            store_buffers={dx: RemoteHandle(self.gradients, config.model.layers)},
            io_mode=config.execution.io_mode,
        )

    def run_phases(self) -> None:
        """All of them, in order."""
        lr, seed = ops.host_load(self.inputs.lr), ops.host_load(self.inputs.seed)
        embed_seed, seed = ops.split_random_seed(seed)
        weights = self.embedding.weights(0)
        self.embed.graph.bind(weights).call(0, embed_seed)
        self.forward_layers(seed)
        tied = self.head_phase(weights.word.weight, lr)
        self.backward_layers(lr)
        tensors, sums = self.embedding.everything(0), self.embedding.grad_facts.init_zero()
        whole = self.embedding.gathered(tensors.variables)
        whole.update(sums)
        self.embed_grad.graph.bind(whole).call(0)
        ops.add_(sums.accum.word.weight, tied)
        self.embedding.update(0, tensors, sums.accum, lr)

    def forward_layers(self, seed: popxl.Tensor) -> None:
        """From the first to the last."""

        @popxl.in_sequence()
        def phase(n: popxl.Tensor, seed: popxl.Tensor) -> List[popxl.Tensor]:
            layer_seed, next_seed = ops.split_random_seed(seed)
            self.layer.graph.bind(self.layers.weights(n)).call(n, layer_seed)
            return [n + 1, next_seed]

        first = popxl.constant(0, popxl.int32, "first_layer")
        ops.repeat(self.ir.create_graph(phase, first, seed), self.config.model.layers, first, seed)

    def head_phase(self, table: popxl.Tensor, lr: popxl.Tensor) -> popxl.Tensor:
        """Returns the gradient of the table of words."""
        tensors, sums = self.heads.everything(0), self.heads.grad_facts.init_zero()
        variables = self.heads.gathered(tensors.variables)
        variables.mlm.insert("decoder", table)
        self.head.graph.bind(NamedTensors(variables=variables, accumulators=sums)).call(0)
        tied = sums.accum.mlm.pop("decoder")
        self.heads.update(0, tensors, sums.accum, lr)
        return tied

    def backward_layers(self, lr: popxl.Tensor) -> None:
        """From the last to the first."""

        @popxl.in_sequence()
        def phase(n: popxl.Tensor, lr: popxl.Tensor) -> popxl.Tensor:
            tensors, sums = self.layers.everything(n), self.layers.grad_facts.init_zero()
            whole = self.layers.gathered(tensors.variables)
            whole.update(sums)
            self.layer_grad.graph.bind(whole).call(n)
            self.layers.update(n, tensors, sums.accum, lr)
            return n - 1

        last = popxl.constant(self.config.model.layers - 1, popxl.int32, "last_layer")
        ops.repeat(self.ir.create_graph(phase, last, lr), self.config.model.layers, last, lr)

    def session(self, state: Optional[StateDict] = None, **options: Any) -> TaskSession:
        """With all state; with pretrained weights."""
        self.variables = NamedTensors(embedding=self.embedding.variables[0], heads=self.heads.variables[0])
        optimizer = NamedTensors(embedding=self.embedding.state[0], heads=self.heads.state[0])
        self.variables.insert("layers", NamedTensors.from_dict(dict(enumerate(self.layers.variables))))
        optimizer.insert("layers", NamedTensors.from_dict(dict(enumerate(self.layers.state))))
        everything = NamedTensors(bert=self.variables, optimizer=optimizer)
        session = TaskSession(self.inputs, self.outputs, everything, 2, self.ir, "ipu_hw", **options)
        if state is not None:
            load_state(session, map_state(self.variables, state, pretrained_rules(self.variables)))
        return session


def mean_losses(outputs: Dict[popxl.DeviceToHostStream, np.ndarray], streams: OutputStreams) -> np.ndarray:
    """Of each micro batch, (micro batches, 2)."""
    return np.stack([outputs[stream].reshape(-1) for stream in streams], axis=-1)
