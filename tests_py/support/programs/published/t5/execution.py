"""The programs of T5: training, the encoder, and a step of the decoder."""

from functools import partial
from typing import Any, List, Tuple

import numpy as np
import popxl
import popxl_addons as addons
from model_utils.setup import feed, make_ir, replicate
from popxl import ops
from popxl_addons import InputStreams, NamedTensors, OutputStreams, TaskSession

from .config import IGNORED, PAD, Optimizer, T5Config
from .modelling import T5, Decoder, Encoder


class AdamW(addons.Module):
    """One step for one variable; gradients are scaled with the loss."""

    def __init__(self, options: Optimizer, loss_scaling: float, decay: float):
        super().__init__(cache=True)
        self.options, self.loss_scaling, self.decay = options, loss_scaling, decay

    @popxl.in_sequence()
    def build(self, var: popxl.TensorByRef, grad: popxl.Tensor, lr: popxl.Tensor) -> None:
        o = self.options
        grad = ops.cast(grad, popxl.float32) / self.loss_scaling
        zeros = partial(np.zeros, var.shape)
        first = self.add_variable_input("first_order", zeros, popxl.float32, by_ref=True)
        second = self.add_variable_input("second_order", zeros, popxl.float32, by_ref=True)
        step = self.add_variable_input("step", partial(np.zeros, ()), popxl.float32, by_ref=True)
        ops.var_updates.accumulate_moving_average_(first, grad, f=o.beta1)
        ops.var_updates.accumulate_moving_average_square_(second, grad, f=o.beta2)
        updater = ops.var_updates.adam_updater(
            first,
            second,
            weight=var,
            weight_decay=self.decay,
            time_step=step,
            beta1=o.beta1,
            beta2=o.beta2,
            epsilon=o.eps,
        )
        ops.scaled_add_(var, updater, b=-lr)


class TrainingProgram:
    """Micro batches one after the other, then an update."""

    def __init__(self, config: T5Config):
        self.config, m, e = config, config.model, config.execution
        self.ir = make_ir(e.data_parallel)
        self.ir.num_host_transfers = e.gradient_accumulation
        with self.ir.main_graph, popxl.in_sequence():
            self.inputs = InputStreams(
                source=((e.micro_batch_size, m.source_length), popxl.int32),
                target=((e.micro_batch_size, m.target_length), popxl.int32),
                labels=((e.micro_batch_size * m.target_length,), popxl.int32),
                lr=((), popxl.float32),
            )
            self.outputs = OutputStreams(loss=((), popxl.float32))
            facts, forward = T5(config).create_graph(self.inputs.source.spec, self.inputs.target.spec)
            grad_facts, backward = addons.transforms.autodiff_with_accumulation(
                forward, forward.args.tensors, grads_provided=[forward.graph.outputs[0]], grads_required=()
            )
            self.variables, gradients = facts.init(), grad_facts.init("gradients")
            for _ in range(e.gradient_accumulation):
                source, target = ops.host_load(self.inputs.source), ops.host_load(self.inputs.target)
                call = forward.bind(self.variables).call_with_info(source, target)
                loss, dlogits = addons.ops.cross_entropy_with_grad(
                    call.outputs[0], ops.host_load(self.inputs.labels), e.loss_scaling, ignore_index=IGNORED
                )
                activations = backward.grad_graph_info.inputs_dict(call)
                backward.bind(gradients).call(dlogits, args=activations)
                ops.host_store(self.outputs.loss, ops.cast(loss, popxl.float32))
            self.update(gradients, ops.host_load(self.inputs.lr))

    def update(self, gradients: NamedTensors, lr: popxl.Tensor) -> None:
        """Mean over replicas, step, start anew."""
        o, scaling = self.config.training.optimizer, self.config.execution.loss_scaling
        plain, decayed = AdamW(o, scaling, 0.0), AdamW(o, scaling, o.weight_decay)
        states = {}
        for name, variable in self.variables.to_dict().items():
            gradient = gradients.accum[name]
            ops.collectives.replicated_all_reduce_(gradient, op="mean")
            optimizer = plain if "norm" in name else decayed
            facts, graph = optimizer.create_graph(variable, gradient, lr)
            states[name] = facts.init("optimizer." + name)
            graph.bind(states[name]).call(variable, gradient, lr)
        self.state = NamedTensors.from_dict(
            {
                "{}.{}".format(name, key): t
                for name, state in states.items()
                for key, t in state.to_dict().items()
            }
        )
        ops.var_updates.accumulator_scale_(gradients.mean_accum_counter, 0.0)

    def session(self, **options: Any) -> TaskSession:
        """With all state."""
        state = NamedTensors(t5=self.variables, optimizer=self.state)
        return TaskSession(self.inputs, self.outputs, state, 2, self.ir, "ipu_hw", **options)


def kept(config: T5Config) -> NamedTensors:
    """The encoder's values for the decoder; each replica has sentences of its own."""
    m, batch = config.model, config.execution.micro_batch_size
    own = popxl.gir().replica_grouping(group_size=1)
    variables = {}
    for name, shape in (
        ("output", (batch, m.source_length, m.d_model)),
        ("mask", (batch, 1, 1, m.source_length)),
    ):
        data = np.zeros((config.execution.data_parallel, *shape) if own.num_groups > 1 else shape, np.float32)
        variables[name] = popxl.variable(data, m.dtype, name="encoder_" + name, replica_grouping=own)
    return NamedTensors.from_dict(variables)


class EncoderProgram:
    """Encodes, and keeps the result."""

    def __init__(self, config: T5Config):
        m, e = config.model, config.execution
        self.ir = make_ir(e.data_parallel)
        with self.ir.main_graph, popxl.in_sequence():
            self.inputs = InputStreams(source=((e.micro_batch_size, m.source_length), popxl.int32))
            facts, graph = Encoder(config).create_graph(self.inputs.source.spec)
            self.variables, self.kept = facts.init(), kept(config)
            output, mask = graph.bind(self.variables).call(ops.host_load(self.inputs.source))
            ops.var_updates.copy_var_update_(self.kept.output, output)
            ops.var_updates.copy_var_update_(self.kept.mask, mask)

    def session(self) -> TaskSession:
        """The weights have the names of training."""
        state = NamedTensors(t5=self.variables, encoder=self.kept)
        return TaskSession(self.inputs, [], state, 1, self.ir, "ipu_hw")


class DecoderProgram:
    """The next word after those so far."""

    def __init__(self, config: T5Config):
        m, e = config.model, config.execution
        self.ir = make_ir(e.data_parallel)
        with self.ir.main_graph, popxl.in_sequence():
            self.inputs = InputStreams(
                target=((e.micro_batch_size, m.target_length), popxl.int32), position=((1,), popxl.int32)
            )
            self.outputs = OutputStreams(next=((e.micro_batch_size,), popxl.int32))
            self.kept = kept(config)
            facts, graph = Decoder(config).create_graph(
                self.inputs.target.spec, self.kept.output.spec, self.kept.mask.spec
            )
            self.variables = facts.init()
            words = ops.host_load(self.inputs.target)
            (scores,) = graph.bind(self.variables).call(words, self.kept.output, self.kept.mask)
            scores = scores.reshape((e.micro_batch_size, m.target_length, m.vocab_size))
            position = ops.host_load(self.inputs.position)
            last = ops.dynamic_slice(scores, position, axes=[1], sizes=[1], no_overlap=True)
            ops.host_store(self.outputs.next, ops.argmax(ops.squeeze(last, [1]), dim=1))

    def session(self) -> TaskSession:
        """The weights have the names of training, what is kept has the encoder's."""
        state = NamedTensors(t5=self.variables, encoder=self.kept)
        return TaskSession(self.inputs, self.outputs, state, 1, self.ir, "ipu_hw")


def sentences(config: T5Config, batches: int, seed: int) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Source, what the decoder is given, and labels: (batches, micro batches of all replicas, samples, positions).

    A target is its source backwards, shifted by one word; shorter sentences are padded.
    """
    m, e, rng = config.model, config.execution, np.random.default_rng(seed)
    shape = (batches, e.gradient_accumulation * e.data_parallel, e.micro_batch_size)
    source = np.full((*shape, m.source_length), PAD, np.int32)
    labels = np.full((*shape, m.target_length), IGNORED, np.int32)
    target = np.full((*shape, m.target_length), PAD, np.int32)
    for index in np.ndindex(*shape):
        length = int(rng.integers(3, m.target_length + 1))
        words = rng.integers(1, m.vocab_size - 1, length)
        source[index][:length] = words
        labels[index][:length] = words[::-1] + 1
        target[index][1:length] = labels[index][: length - 1]
    return source, target, labels


def train(program: TrainingProgram, session: TaskSession, first: int, steps: int) -> List[np.ndarray]:
    """Updates from ``first`` on: loss of each micro batch."""
    config, inputs = program.config, program.inputs
    data = sentences(config, config.training.batches, config.training.seed)
    losses = []
    for step in range(first, first + steps):
        batch = {stream: part[step % config.training.batches] for stream, part in zip(inputs[:3], data)}
        batch[inputs.lr] = replicate(config.training.optimizer.learning_rate, session, inputs.lr)
        losses.append(session.run(feed(session, batch))[program.outputs.loss].reshape(-1))
    return losses


def translate(encoder: TaskSession, decoder: TaskSession, config: T5Config, source: np.ndarray) -> np.ndarray:
    """Greedy, (replicas, samples, target positions) for sources (replicas, samples, source positions)."""
    with encoder:
        encoder.run(feed(encoder, {encoder.inputs.source: source}))
    decoder.load_from_session(encoder)
    words = np.full((*source.shape[:2], config.model.target_length), PAD, np.int32)
    found = np.zeros_like(words)
    with decoder:
        for position in range(config.model.target_length):
            data = {
                decoder.inputs.target: words,
                decoder.inputs.position: replicate(position, decoder, decoder.inputs.position),
            }
            found[..., position] = decoder.run(feed(decoder, data))[decoder.outputs.next].reshape(
                words.shape[:2]
            )
            if position + 1 < config.model.target_length:
                words[..., position + 1] = found[..., position]
    return found
