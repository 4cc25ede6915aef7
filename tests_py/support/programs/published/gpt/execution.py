"""The training program of GPT: micro batches in a loop, then one update."""

from typing import Any, Dict, List, Tuple

import numpy as np
import popdist
import popxl
import popxl_addons as addons
from model_utils.setup import feed, make_ir, replicate
from popxl import ops
from popxl_addons import InputStreams, NamedTensors, OutputStreams, TaskSession
from popxl_addons.array_munging import tensor_parallel_input
from popxl_addons.layers import Embedding
from popxl_addons.named_replica_grouping import NamedReplicaGrouping
from popxl_addons.optimizers.adam import AdamOptimizerStep
from popxl_addons.patterns import apply_pre_alias_patterns
from popxl_addons.variable_factory import NamedVariableFactories

from .config import GPTConfig, learning_rate
from .modelling import GPTLoss, Groups


class MicroBatch(addons.Module):
    """Forward and backward of one micro batch; gradients are added to the accumulators."""

    def __init__(self, config: GPTConfig, inputs: InputStreams, outputs: OutputStreams):
        super().__init__()
        self.config, self.inputs, self.outputs = config, inputs, outputs

    @popxl.in_sequence()
    def build(self, seed: popxl.TensorByRef) -> None:
        """``seed`` goes on for the next micro batch."""
        config = self.config
        words, labels = ops.host_load(self.inputs.words), ops.host_load(self.inputs.labels)
        facts, forward = GPTLoss(config).create_graph(words, labels, seed)
        groups = NamedReplicaGrouping.build_groups(forward.args.to_dict().keys(), Groups(config).all)
        groups.update(facts.replica_groupings, overwrite=True)
        grad_facts, backward = addons.transforms.autodiff_with_accumulation(
            forward, forward.args.tensors, grads_required=(), replica_groupings=groups
        )
        variables = self.add_variable_inputs("variables", facts)
        accumulators = self.add_variable_inputs("gradients", grad_facts)
        step_seed, next_seed = ops.split_random_seed(seed)
        call = forward.bind(variables).call_with_info(words, labels, step_seed)
        (loss, *_) = call.outputs
        scaling = popxl.constant(config.execution.loss_scaling, loss.dtype, "loss_scaling")
        backward.bind(accumulators).call(scaling, args=backward.grad_graph_info.inputs_dict(call))
        ops.host_store(self.outputs.loss, ops.cast(loss, popxl.float32))
        ops.var_updates.copy_var_update_(seed, next_seed)


class Program:
    """The Ir and what is known of it."""

    def __init__(self, config: GPTConfig):
        self.config, e = config, config.execution
        self.ir = make_ir(e.replicas, e.io_tiles, stochastic_rounding=config.training.stochastic_rounding)
        self.ir.num_host_transfers = config.training.gradient_accumulation
        tokens = e.micro_batch_size * config.model.sequence_length
        with self.ir.main_graph, popxl.in_sequence():
            self.inputs = InputStreams(
                words=((tokens,), popxl.int32),
                labels=((tokens,), popxl.int32),
                seed=((2,), popxl.uint32),
                lr=((), popxl.float32),
            )
            self.outputs = OutputStreams(loss=((), popxl.float32), grad_norm=((), popxl.float32))
            seed = ops.host_load(self.inputs.seed)
            lr = ops.host_load(self.inputs.lr)
            self.micro_batches(seed)
            self.update(lr)
        apply_pre_alias_patterns(self.ir, level="default")

    def micro_batches(self, seed: popxl.Tensor) -> None:
        """All of an update."""
        facts, graph = MicroBatch(self.config, self.inputs, self.outputs).create_graph(seed)
        self.facts: NamedVariableFactories = facts.variables
        self.variables = facts.variables.init("gpt")
        self.gradients = facts.gradients.init("gradients")
        bound = graph.bind(NamedTensors(variables=self.variables, gradients=self.gradients))
        inputs = {**bound.args, graph.graph.inputs[0]: seed}
        ops.repeat(bound.graph, self.config.training.gradient_accumulation, inputs_dict=inputs)

    def update(self, lr: popxl.Tensor) -> None:
        """Reduce gradients over the replicas that hold the same part, clip them, and step."""
        config, o = self.config, self.config.training.optimizer
        groups = self.facts.replica_groupings.to_dict()
        gradients = self.gradients.accum.to_dict()
        for name, gradient in gradients.items():
            ops.collectives.replicated_all_reduce_(gradient, op="mean", group=groups[name])
        norm = self.gradient_norm(gradients, groups)
        ops.host_store(self.outputs.grad_norm, norm)
        self.state = NamedTensors()
        optimizer = AdamOptimizerStep(cache=True)
        for name, variable in self.variables.to_dict().items():
            facts, graph = optimizer.create_graph(
                variable,
                gradients[name],
                replica_grouping=groups[name],
                lr=lr,
                beta1=o.beta1,
                beta2=o.beta2,
                eps=o.eps,
                weight_decay=0.0 if name.endswith("bias") or ".ln_" in name else o.weight_decay,
                first_order_dtype=popxl.float32,
                loss_scaling=config.execution.loss_scaling,
                global_norm=norm,
                global_norm_max=o.gradient_clipping,
            )
            state = facts.init("optimizer." + name)
            graph.bind(state).call(variable, gradients[name], lr, norm)
            self.state.insert(name.replace(".", "_"), state)
        ops.var_updates.accumulator_zero_(self.gradients.mean_accum_counter)

    def gradient_norm(
        self, gradients: Dict[str, popxl.Tensor], groups: Dict[str, popxl.ReplicaGrouping]
    ) -> popxl.Tensor:
        """Of all gradients: squares of split ones are summed over their parts, others are counted once."""
        split: List[popxl.Tensor] = []
        whole: List[popxl.Tensor] = []
        for name, gradient in gradients.items():
            squares = addons.ops.grad_reduce_square_add(gradient, self.config.execution.loss_scaling)
            (whole if groups[name].num_groups == 1 else split).append(squares)
        total = whole[0]
        for squares in whole[1:]:
            total = total + squares
        parts = split[0]
        for squares in split[1:]:
            parts = parts + squares
        group = Groups(self.config).tensor_parallel
        return ops.sqrt(total + ops.collectives.replicated_all_reduce(parts, "add", group))

    def session(self, **options: Any) -> TaskSession:
        """With all state."""
        state = NamedTensors(gpt=self.variables, optimizer=self.state)
        return TaskSession(self.inputs, self.outputs, state, 1, self.ir, "ipu_hw", **options)


def shard_offsets(config: GPTConfig) -> np.ndarray:
    """First token of the part of each replica of a group."""
    return Embedding.get_offsets(config.model.embedding.vocab_size, config.execution.tensor_parallel)


def batches(config: GPTConfig, steps: int) -> Tuple[np.ndarray, np.ndarray]:
    """Tokens and the following tokens: (steps, micro batches of all replicas, sequences, positions)."""
    rng = np.random.default_rng(config.training.seed)
    e, m = config.execution, config.model
    shape = (steps, config.training.gradient_accumulation * e.data_parallel, e.micro_batch_size)
    text = np.empty((*shape, m.sequence_length + 1), np.int32)
    text[..., 0] = rng.integers(0, m.embedding.vocab_size, shape)
    for i in range(m.sequence_length):
        noise = rng.integers(0, 3, shape)
        text[..., i + 1] = (5 * text[..., i] + noise + 1) % m.embedding.vocab_size
    return text[..., :-1], text[..., 1:]


def train(
    config: GPTConfig, program: Program, session: TaskSession, first: int, steps: int
) -> List[Tuple[np.ndarray, float]]:
    """Updates from ``first`` on: loss of each micro batch, norm of the gradients."""
    tokens, labels = batches(config, config.training.steps)
    tp, replicas = config.execution.tensor_parallel, config.execution.replicas
    offsets = shard_offsets(config)
    first_replica = popdist.getReplicaIndexOffset()
    models = range(-first_replica % tp, program.ir.instance_replication_factor, tp)  # first replica of each
    losses = []
    for step in range(first, first + steps):
        flat = (-1, config.execution.micro_batch_size * config.model.sequence_length)
        words, targets = (
            tensor_parallel_input(part[step].reshape(flat), tp, replicas, lambda x, i: x - offsets[i])
            for part in (tokens, labels)
        )
        transfers = config.training.gradient_accumulation
        seeds = popxl.create_seeds(config.training.seed, step, replicas=config.execution.data_parallel)
        seeds = np.broadcast_to(np.repeat(seeds.reshape(-1, 2), tp, axis=0), (transfers, replicas, 2))
        outputs = session.run(
            feed(
                session,
                {
                    program.inputs.words: words,
                    program.inputs.labels: targets,
                    program.inputs.seed: seeds,
                    program.inputs.lr: replicate(learning_rate(config, step), session, program.inputs.lr),
                },
            )
        )
        loss = outputs[program.outputs.loss].reshape(transfers, -1)[:, models]
        losses.append((loss.reshape(-1), float(outputs[program.outputs.grad_norm].flat[0])))
    return losses
