"""Models and arrays that several packages compute with: sizes, first weights, samples. Neither popsr nor torch here.

A turn makes ``STEPS`` steps with one batch, so that losses after the first one tell whether weights were updated alike.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

STEPS = 3
SAMPLED = 1000  # numbers of an array that sides are compared by

Weights = dict[str, np.ndarray]  # in order; of linear layers as (inputs, outputs)


@dataclass(frozen=True)
class Gpt:
    """A decoder with norms before its parts; ``samples`` of all replicas."""

    layers: int = 4
    hidden: int = 256
    heads: int = 8
    sequence: int = 128
    vocab: int = 512
    samples: int = 8
    rate: float = 0.1

    def weights(self) -> Weights:
        rng, h = np.random.default_rng(0), self.hidden

        def normal(*shape: int) -> np.ndarray:
            return rng.normal(0, 0.02, shape).astype(np.float32)

        def norm(name: str) -> Weights:
            return {f"{name}.weight": np.ones(h, np.float32), f"{name}.bias": np.zeros(h, np.float32)}

        def linear(name: str, have: int, made: int) -> Weights:
            return {f"{name}.weight": normal(have, made), f"{name}.bias": np.zeros(made, np.float32)}

        found = {"words.weight": normal(self.vocab, h), "places": normal(self.sequence, h)}
        for i in range(self.layers):
            found |= norm(f"layers.{i}.norm1") | linear(f"layers.{i}.qkv", h, 3 * h)
            found |= linear(f"layers.{i}.output", h, h) | norm(f"layers.{i}.norm2")
            found |= linear(f"layers.{i}.wide", h, 4 * h) | linear(f"layers.{i}.back", 4 * h, h)
        return found | norm("norm") | {"head.weight": normal(h, self.vocab)}

    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and the next ones: sample, place."""
        rng = np.random.default_rng(1)
        text = rng.integers(0, self.vocab, (self.samples, self.sequence + 1), dtype=np.int32)
        return text[:, :-1].copy(), text[:, 1:].copy()


@dataclass(frozen=True)
class ResNet:
    """ResNet-18 for images of 32 x 32, with group norm: a stem of 3x3, then stages of two basic blocks.

    Each stage but the first has twice the channels of the one before.
    """

    stem: int = 64
    stages: int = 4
    groups: int = 32
    classes: int = 10
    extent: int = 32
    samples: int = 16
    rate: float = 0.003

    def blocks(self) -> list[tuple[int, int, int]]:
        """Channels before and after each block, and its stride."""
        found, have = [], self.stem
        for stage in range(self.stages):
            made = self.stem << stage
            found += [(have, made, 2 if stage else 1), (made, made, 1)]
            have = made
        return found

    def weights(self) -> Weights:
        rng = np.random.default_rng(0)

        def conv_norm(name: str, have: int, made: int, kernel: int = 3) -> Weights:
            shape = (made, have, kernel, kernel)
            kernels = rng.normal(0, np.sqrt(2 / (have * kernel * kernel)), shape).astype(np.float32)
            ones, zeros = np.ones(made, np.float32), np.zeros(made, np.float32)
            return {f"{name}.conv.weight": kernels, f"{name}.norm.weight": ones, f"{name}.norm.bias": zeros}

        found = conv_norm("stem", 3, self.stem)
        for i, (have, made, stride) in enumerate(self.blocks()):
            found |= conv_norm(f"blocks.{i}.first", have, made) | conv_norm(f"blocks.{i}.second", made, made)
            if stride != 1 or have != made:
                found |= conv_norm(f"blocks.{i}.side", have, made, 1)
        last = rng.normal(0, 0.05, (self.stem << self.stages - 1, self.classes)).astype(np.float32)
        return found | {"last.weight": last, "last.bias": np.zeros(self.classes, np.float32)}

    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        """Images and their classes."""
        rng = np.random.default_rng(1)
        images = rng.standard_normal((self.samples, 3, self.extent, self.extent), dtype=np.float32)
        return images, rng.integers(0, self.classes, self.samples, dtype=np.int32)


@cache
def weights_of(model: Gpt | ResNet) -> Weights:
    """First weights, kept: a side makes them before it looks at its memory, so that they do not count."""
    return model.weights()


@dataclass(frozen=True)
class Adam:
    """Updates of one variable; its gradient stays the same."""

    rate: float
    beta1: float
    beta2: float
    epsilon: float
    size: int = 1 << 22

    def arrays(self) -> list[np.ndarray]:
        """The variable and its gradient."""
        rng = np.random.default_rng(0)
        return [rng.standard_normal(self.size, dtype=np.float32) for _ in range(2)]


@dataclass(frozen=True)
class CrossEntropy:
    """The mean loss of rows of scores, and its gradient."""

    rows: int
    classes: int

    def arrays(self) -> list[np.ndarray]:
        """Scores and labels."""
        rng = np.random.default_rng(0)
        scores = rng.standard_normal((self.rows, self.classes), dtype=np.float32)
        return [scores, rng.integers(0, self.classes, self.rows, dtype=np.int32)]


@dataclass(frozen=True)
class LayerNorm:
    """Of the last axis, and the gradients of its three operands."""

    rows: int = 2048
    width: int = 768

    def arrays(self) -> list[np.ndarray]:
        """Operand, weight, bias, and the gradient of the result."""
        rng = np.random.default_rng(0)
        shapes = (self.rows, self.width), (self.width,), (self.width,), (self.rows, self.width)
        return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def sampled(arrays: list[np.ndarray]) -> list[list[float]]:
    """Some numbers of each array, evenly spaced."""
    flat = [np.asarray(each, np.float32).ravel() for each in arrays]
    return [each[:: -(-each.size // SAMPLED)].tolist() for each in flat]
