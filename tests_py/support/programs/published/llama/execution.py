"""Generation: a run of the program is a position."""

from typing import Any, Callable, List, Optional, Tuple

import numpy as np
import popxl
from model_utils.setup import feed, make_ir, replicate
from model_utils.weights import StateDict, load_state, map_state
from popxl import ops
from popxl_addons import InputStreams, NamedTensors, OutputStreams, TaskSession

from .config import LlamaConfig
from .modelling import Llama, pretrained_rules

Pick = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Program:
    """The Ir and what is known of it. Variables are in files of ``memmap_dir``, if given."""

    def __init__(self, config: LlamaConfig, memmap_dir: Optional[str] = None):
        self.config, e, m = config, config.execution, config.model
        self.ir = make_ir(e.tensor_parallel, e.io_tiles)
        with self.ir.main_graph, popxl.in_sequence():
            self.inputs = InputStreams(tokens=((e.batch_size,), popxl.int32), position=((1,), popxl.int32))
            self.outputs = OutputStreams(
                next_tokens=((e.batch_size,), popxl.int32),
                top_values=((e.batch_size, config.inference.top_k), popxl.float32),
                top_tokens=((e.batch_size, config.inference.top_k), popxl.int32),
                logits=((e.batch_size, m.embedding.vocab_size), popxl.float32),
            )
            tokens, position = ops.host_load(self.inputs.tokens), ops.host_load(self.inputs.position)
            facts, graph = Llama(config).create_graph(tokens, position)
            self.variables: NamedTensors = facts.init(memmap_dir=memmap_dir)
            (self.logits,) = graph.bind(self.variables).call(tokens, position)
            logits = ops.cast(self.logits, popxl.float32)
            values, indices = ops.topk(logits, config.inference.top_k, axis=1, largest=True, sorted=True)
            ops.host_store(self.outputs.next_tokens, ops.argmax(logits, dim=1))
            ops.host_store(self.outputs.top_values, values)
            ops.host_store(self.outputs.top_tokens, ops.cast(indices, popxl.int32))
            ops.host_store(self.outputs.logits, logits)

    def session(self, state: StateDict, **options: Any) -> TaskSession:
        """With weights."""
        session = TaskSession(self.inputs, self.outputs, self.variables, 1, self.ir, "ipu_hw", **options)
        rules = pretrained_rules(self.config, self.variables)
        weights = NamedTensors.from_dict({k: t for k, t in self.variables.to_dict().items() if k in rules})
        load_state(session, map_state(weights, state, rules))
        return session


class Generator:
    """Feeds prompts, then what was picked."""

    def __init__(self, program: Program, session: TaskSession):
        self.program, self.session = program, session
        self.logits: List[np.ndarray] = []

    def step(self, tokens: np.ndarray, position: int) -> List[np.ndarray]:
        """Greatest score, greatest scores and their tokens after a position."""
        p = self.program
        data = {
            p.inputs.tokens: replicate(tokens, self.session, p.inputs.tokens),
            p.inputs.position: replicate(position, self.session, p.inputs.position),
        }
        outputs = self.session.run(feed(self.session, data))
        first = {stream: array[0] for stream, array in outputs.items()}  # all replicas have the same
        self.logits.append(first[p.outputs.logits])
        return [first[s] for s in (p.outputs.next_tokens, p.outputs.top_values, p.outputs.top_tokens)]

    def run(self, prompts: np.ndarray, pick: Optional[Pick] = None) -> np.ndarray:
        """The tokens after prompts (batch, n), (batch, new tokens). ``pick`` chooses among the greatest."""
        self.logits, tokens = [], prompts.T
        found: List[np.ndarray] = []
        steps = len(tokens) + self.program.config.inference.new_tokens - 1
        if steps > self.program.config.model.sequence_length:
            raise ValueError("the cache has no room for {} positions".format(steps))
        for position in range(steps):
            current = tokens[position] if position < len(tokens) else found[-1]
            greedy, values, candidates = self.step(current, position)
            if position >= len(tokens) - 1:
                found.append(greedy if pick is None else pick(values, candidates))
        return np.stack(found, axis=1)


class TopK:
    """Draws among the greatest scores, on the host."""

    def __init__(self, config: LlamaConfig):
        self.rng, self.temperature = (
            np.random.default_rng(config.inference.seed),
            config.inference.temperature,
        )

    def __call__(self, values: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        chances = np.exp((values - values.max(axis=1, keepdims=True)).astype(np.float64) / self.temperature)
        edges = np.cumsum(chances / chances.sum(axis=1, keepdims=True), axis=1)
        drawn = (self.rng.random((len(values), 1)) > edges).sum(axis=1)
        return tokens[np.arange(len(tokens)), np.minimum(drawn, tokens.shape[1] - 1)]


def prompts(config: LlamaConfig, length: int = 6) -> np.ndarray:
    """Some."""
    shape: Tuple[int, int] = (config.execution.batch_size, length)
    return np.random.default_rng(5).integers(0, config.model.embedding.vocab_size, shape).astype(np.int32)
