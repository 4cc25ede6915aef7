"""Programs of ``published`` in the style of model repositories: one way to build, start and run them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

import popsr
from popsr import compat, ops
from popsr.replicas import ReplicaGrouping
from tests_py.support.programs import PUBLISHED

PACKAGES = ("model_utils", "bert", "gpt", "llama", "t5")
Array = np.ndarray[Any, Any]


def rope(x: popsr.Tensor, sin: popsr.Tensor, cos: popsr.Tensor, rotary_dim: int) -> popsr.Tensor:
    """Stands for the operator that the LLaMA program has in C++."""
    half = rotary_dim // 2
    left, right, *kept = ops.split(
        x, [half, half, *[x.shape[-1] - rotary_dim] * (rotary_dim < x.shape[-1])], -1
    )
    sin, cos = (t.reshape((t.shape[0], 1, half)) for t in (sin, cos))  # beside the axis of heads
    return ops.concat([left * cos - right * sin, right * cos + left * sin, *kept], -1)


@contextmanager
def importable() -> Iterator[None]:
    """The programs can be imported, and find PopXL's modules; afterwards nothing of them is left."""
    compat.install()
    compat.custom_op("llama.ops", "Rope", 1)(rope)
    sys.path.insert(0, str(PUBLISHED))
    try:
        yield
    finally:
        sys.path.remove(str(PUBLISHED))
        for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
            del sys.modules[name]
        compat.uninstall()


@dataclass
class Run:
    """A program and its session."""

    config: Any
    program: Any
    session: Any
    state: Mapping[str, Array]
    """The pretrained weights by the names of their library."""
    steps: Callable[[int, int], list[Array]]
    """Runs some steps from a first one on: losses, or scores."""
    norms: list[float] = field(default_factory=list)
    """Of gradients before they were clipped, where the program gives them."""

    def run(self, first: int, steps: int) -> list[Array]:
        """As ``steps``, attached."""
        with self.session:
            return self.steps(first, steps)

    def everything(self) -> dict[str, Array]:
        """All state by name."""
        return dict(self.session.get_named_tensors_data().to_dict())


def _weights() -> Any:
    return import_module("model_utils.weights")


def bert(config: str, **options: Any) -> Run:
    """Pretraining in phases."""
    module, execution = import_module("bert.pretraining"), import_module("bert.execution")
    read = module.BertConfig.load(module.CONFIGS, config)
    program = execution.Program(read)
    state = _weights().random_state(module.state_shapes(read), 0)
    session = program.session(state, **options)
    session.dataloader = module.Loader(read)

    def steps(first: int, number: int) -> list[Array]:
        session.dataloader.index = first
        return list(module.train(session, number))

    return Run(read, program, session, state, steps)


def gpt(config: str, kind: str = "Program", **options: Any) -> Run:
    """Tensor and data parallel training."""
    module, weights = import_module("gpt.pretraining"), _weights()
    read = module.GPTConfig.load(module.CONFIGS, config)
    program = getattr(module, kind)(read)
    session = program.session(**options)
    state = weights.random_state(module.state_shapes(read), 0)
    rules = module.pretrained_rules(read, program.variables)
    weights.load_state(session, weights.map_state(program.variables, state, rules))

    def steps(first: int, number: int) -> list[Array]:
        pairs = module.train(read, program, session, first, number)
        norms.extend(norm for _, norm in pairs)
        return [losses for losses, _ in pairs]

    norms: list[float] = []
    return Run(read, program, session, state, steps, norms)


def t5(config: str, **options: Any) -> Run:
    """Training of encoder and decoder."""
    module, weights = import_module("t5.translation"), _weights()
    read = module.T5Config.load(module.CONFIGS, config)
    program = module.TrainingProgram(read)
    session = program.session(**options)
    state = weights.random_state(module.state_shapes(read), 0, module.SCALE)
    rules = module.pretrained_rules(read, program.variables)
    weights.load_state(session, weights.map_state(program.variables, state, rules))
    return Run(read, program, session, state, lambda first, n: list(module.train(program, session, first, n)))


def llama(config: str, **options: Any) -> Run:
    """A step is a position of a given text; the cache goes on where it was."""
    module = import_module("llama.inference")
    read = module.LlamaConfig.load(module.CONFIGS, config)
    program = module.Program(read)
    state = _weights().random_state(module.state_shapes(read), 0, module.SCALE)
    session = program.session(state, **options)
    text = module.prompts(read, read.model.sequence_length)

    def steps(first: int, number: int) -> list[Array]:
        generator = module.Generator(program, session)
        for position in range(first, first + number):
            generator.step(text[:, position], position)
        return generator.logits

    return Run(read, program, session, state, steps)


START: dict[str, Callable[..., Run]] = {
    "bert": bert,
    "gpt": gpt,
    "gpt phased": partial(gpt, kind="PhasedProgram"),
    "llama": llama,
    "t5": t5,
}

CONFIGS = [
    ("bert", "phased"),
    ("bert", "half"),
    ("gpt", "pretraining"),
    ("gpt", "half"),
    ("gpt phased", "pretraining"),
    ("gpt phased", "half"),
    ("llama", "whole"),
    ("llama", "quantised"),
    ("t5", "translation"),
]
"""Programs that are proved and run in all modes."""


def equal_inputs(run: Run) -> dict[Any, ReplicaGrouping]:
    """Streams that the program feeds the same rows on each replica of a group."""
    ir, inputs = run.program.ir, run.session.inputs
    everywhere = ir.replica_grouping()
    streams = {inputs[name]: everywhere for name in ("lr", "position", "tokens") if name in inputs.keys()}  # noqa: SIM118
    if hasattr(run.config.execution, "tensor_parallel") and "seed" in inputs.keys():  # noqa: SIM118
        streams[inputs["seed"]] = ir.replica_grouping(group_size=run.config.execution.tensor_parallel)
    return streams
