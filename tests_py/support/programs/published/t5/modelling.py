"""The layers of T5."""

import math
from functools import partial
from typing import Dict, List, Optional, Tuple

import numpy as np
import popxl
import popxl_addons as addons
from model_utils.weights import Rule, same, transposed
from popxl import ops
from popxl_addons.layers import Embedding, Linear
from popxl_addons.named_tensors import NamedTensors

from .config import PAD, T5Config


def relative_buckets(rows: int, columns: int, two_sided: bool, buckets: int, max_distance: int) -> np.ndarray:
    """Number of the bucket of each pair of positions, (rows, columns): exact when near, logarithmic when far."""
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    first = np.zeros_like(distance)
    if two_sided:
        buckets //= 2
        first = np.where(distance > 0, buckets, 0)
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = buckets // 2
    with np.errstate(divide="ignore"):
        far = np.log(distance / exact) / math.log(max_distance / exact) * (buckets - exact)
    far = np.where(distance < exact, 0, far)
    far = np.minimum(exact + far.astype(np.int64), buckets - 1)
    return (first + np.where(distance < exact, distance, far)).astype(np.int32)


class T5LayerNorm(addons.Module):
    """By the root of the mean square, without bias."""

    def __init__(self, eps: float):
        super().__init__()
        self.eps = eps

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        self.weight = self.add_variable_input("weight", partial(np.ones, x.shape[-1]), x.dtype)
        return x / ops.sqrt(ops.mean(x**2.0, -1, keepdims=True) + self.eps) * self.weight


class Attention(addons.Module):
    """Of ``x`` to ``memory``; scores are not scaled."""

    def __init__(self, config: T5Config):
        super().__init__()
        self.heads, self.d_kv = config.model.heads, config.model.d_kv
        inner = self.heads * self.d_kv
        self.q, self.k, self.v = (
            Linear(inner, bias=False),
            Linear(inner, bias=False),
            Linear(inner, bias=False),
        )
        self.o = Linear(config.model.d_model, bias=False)

    def split(self, x: popxl.Tensor, axes: Tuple[int, ...]) -> popxl.Tensor:
        return x.reshape((*x.shape[:2], self.heads, self.d_kv)).transpose(axes)

    def build(self, x: popxl.Tensor, memory: popxl.Tensor, bias: popxl.Tensor) -> popxl.Tensor:
        """(batch, rows, d_model), (batch, columns, d_model), (…, rows, columns)."""
        scores = self.split(self.q(x), (0, 2, 1, 3)) @ self.split(self.k(memory), (0, 2, 3, 1)) + bias
        mixed = ops.softmax(scores, -1) @ self.split(self.v(memory), (0, 2, 1, 3))
        return self.o(mixed.transpose((0, 2, 1, 3)).reshape((*x.shape[:2], self.heads * self.d_kv)))


class FeedForward(addons.Module):
    """Wide, and back."""

    def __init__(self, config: T5Config):
        super().__init__()
        self.wi, self.wo = Linear(config.model.d_ff, bias=False), Linear(config.model.d_model, bias=False)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        return self.wo(ops.relu(self.wi(x)))


class EncoderLayer(addons.Module):
    """Self-attention and feed-forward layer."""

    def __init__(self, config: T5Config):
        super().__init__()
        self.attention, self.feed_forward = Attention(config), FeedForward(config)
        self.norms = addons.Module.from_list([T5LayerNorm(config.model.eps) for _ in range(2)])

    def build(self, x: popxl.Tensor, bias: popxl.Tensor) -> popxl.Tensor:
        normed = self.norms[0](x)
        x = x + self.attention(normed, normed, bias)
        return x + self.feed_forward(self.norms[1](x))


class DecoderLayer(addons.Module):
    """Self-attention, attention to the encoder's output, and feed-forward layer."""

    def __init__(self, config: T5Config):
        super().__init__()
        self.attention, self.cross, self.feed_forward = (
            Attention(config),
            Attention(config),
            FeedForward(config),
        )
        self.norms = addons.Module.from_list([T5LayerNorm(config.model.eps) for _ in range(3)])

    def build(
        self, x: popxl.Tensor, bias: popxl.Tensor, memory: popxl.Tensor, memory_bias: popxl.Tensor
    ) -> popxl.Tensor:
        normed = self.norms[0](x)
        x = x + self.attention(normed, normed, bias)
        x = x + self.cross(self.norms[1](x), memory, memory_bias)
        return x + self.feed_forward(self.norms[2](x))


class Stack(addons.Module):
    """All layers of one side, which share their position bias; one graph, called for each layer."""

    def __init__(self, config: T5Config, layer: addons.Module, two_sided: bool):
        super().__init__()
        self.config, self.layer_graph, self.two_sided = config, [layer], two_sided
        self.final_norm = T5LayerNorm(config.model.eps)

    def position_bias(self, length: int, dtype: popxl.dtype) -> popxl.Tensor:
        """(heads, length, length)."""
        m = self.config.model
        b = m.position_bias
        buckets = relative_buckets(length, length, self.two_sided, b.buckets, b.max_distance)
        table = self.add_variable_input("relative_bias", partial(np.zeros, (b.buckets, m.heads)), dtype)
        gathered = ops.gather(table, popxl.constant(buckets, popxl.int32, "buckets"))
        return ops.transpose(gathered, (2, 0, 1))

    def build(
        self, x: popxl.Tensor, memory: Optional[popxl.Tensor] = None, mask: Optional[popxl.Tensor] = None
    ) -> popxl.Tensor:
        """``mask`` of the encoder's positions, (batch, 1, 1, positions)."""
        length = x.shape[1]
        bias = self.position_bias(length, x.dtype)
        if memory is None:
            others: List[popxl.Tensor] = []
            bias = bias + mask
        else:
            others = [memory, mask]
            bias = bias + popxl.constant(np.triu(np.full((length, length), -1e9), 1), x.dtype, "causal")
        facts, layer = self.layer_graph[0].create_graph(x, bias, *others)
        for i in range(self.config.model.layers):
            variables = self.add_variable_inputs("layers.{}".format(i), facts, overwrite=i > 0)
            (x,) = layer.bind(variables).call(x, bias, *others)
        return self.final_norm(x)


def padding_mask(words: popxl.Tensor, dtype: popxl.dtype) -> popxl.Tensor:
    """Large negative numbers where words are missing, (batch, 1, 1, positions)."""
    missing = ops.equal(words, popxl.constant(PAD, words.dtype))
    mask = ops.where(missing, popxl.constant(-1e9, dtype), popxl.constant(0, dtype))
    return mask.reshape((words.shape[0], 1, 1, words.shape[1]))


class Encoder(addons.Module):
    """Words to the encoder's output."""

    def __init__(self, config: T5Config):
        super().__init__()
        m = config.model
        self.dtype = m.dtype
        self.shared = Embedding(m.dtype, m.vocab_size, m.d_model)
        self.encoder = Stack(config, EncoderLayer(config), two_sided=True)

    def build(self, words: popxl.Tensor) -> Tuple[popxl.Tensor, popxl.Tensor]:
        mask = padding_mask(words, self.dtype)
        return self.encoder(self.shared(words), mask=mask), mask


class Decoder(addons.Module):
    """Words so far and the encoder's output to scores; the head has the weights of the embedding."""

    def __init__(self, config: T5Config):
        super().__init__()
        m = config.model
        self.factor = m.d_model**-0.5
        self.shared = Embedding(m.dtype, m.vocab_size, m.d_model)
        self.decoder = Stack(config, DecoderLayer(config), two_sided=False)

    def build(self, words: popxl.Tensor, memory: popxl.Tensor, mask: popxl.Tensor) -> popxl.Tensor:
        x = self.decoder(self.shared(words), memory, mask) * self.factor
        return x.reshape((-1, x.shape[-1])) @ self.shared.weight.T


class T5(addons.Module):
    """Both sides, which share their embedding."""

    def __init__(self, config: T5Config):
        super().__init__()
        m = config.model
        self.config = config
        self.shared = Embedding(m.dtype, m.vocab_size, m.d_model)
        self.encoder = Stack(config, EncoderLayer(config), two_sided=True)
        self.decoder = Stack(config, DecoderLayer(config), two_sided=False)

    def build(self, source: popxl.Tensor, target: popxl.Tensor) -> popxl.Tensor:
        """Scores, (batch * target positions, vocabulary)."""
        m = self.config.model
        mask = padding_mask(source, m.dtype)
        memory = self.encoder(self.shared(source), mask=mask)
        x = self.decoder(ops.gather(self.shared.weight, target), memory, mask)
        return (x * m.d_model**-0.5).reshape((-1, m.d_model)) @ self.shared.weight.T


def state_shapes(config: T5Config) -> Dict[str, Tuple[int, ...]]:
    """Names and shapes of a state dict."""
    m = config.model
    inner, table = m.heads * m.d_kv, (m.position_bias.buckets, m.heads)
    shapes: Dict[str, Tuple[int, ...]] = {"shared.weight": (m.vocab_size, m.d_model)}
    attention = {
        "q": (inner, m.d_model),
        "k": (inner, m.d_model),
        "v": (inner, m.d_model),
        "o": (m.d_model, inner),
    }
    for side, kinds in (("encoder", ("SelfAttention",)), ("decoder", ("SelfAttention", "EncDecAttention"))):
        for i in range(m.layers):
            for j, kind in enumerate(kinds):
                prefix = "{}.block.{}.layer.{}.".format(side, i, j)
                for name, shape in attention.items():
                    shapes["{}{}.{}.weight".format(prefix, kind, name)] = shape
                shapes[prefix + "layer_norm.weight"] = (m.d_model,)
            prefix = "{}.block.{}.layer.{}.".format(side, i, len(kinds))
            shapes[prefix + "DenseReluDense.wi.weight"] = (m.d_ff, m.d_model)
            shapes[prefix + "DenseReluDense.wo.weight"] = (m.d_model, m.d_ff)
            shapes[prefix + "layer_norm.weight"] = (m.d_model,)
        shapes[side + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = table
        shapes[side + ".final_layer_norm.weight"] = (m.d_model,)
    return shapes


def pretrained_rules(config: T5Config, variables: NamedTensors) -> Dict[str, Rule]:
    """From that state dict to the variables that there are."""
    rules: Dict[str, Rule] = {"shared.weight": ("shared.weight", same)}
    for side, kinds in (("encoder", ("attention",)), ("decoder", ("attention", "cross"))):
        bias = side + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        rules[side + ".relative_bias"] = (bias, same)
        rules[side + ".final_norm.weight"] = (side + ".final_layer_norm.weight", same)
        for i in range(config.model.layers):
            ours, theirs = "{}.layers.{}.".format(side, i), "{}.block.{}.layer.".format(side, i)
            for j, kind in enumerate(kinds):
                other = "SelfAttention" if kind == "attention" else "EncDecAttention"
                for name in "qkvo":
                    source = "{}{}.{}.{}.weight".format(theirs, j, other, name)
                    rules["{}{}.{}.weight".format(ours, kind, name)] = (source, transposed)
            for name in ("wi", "wo"):
                source = "{}{}.DenseReluDense.{}.weight".format(theirs, len(kinds), name)
                rules["{}feed_forward.{}.weight".format(ours, name)] = (source, transposed)
            for j in range(len(kinds) + 1):
                source = "{}{}.layer_norm.weight".format(theirs, j)
                rules["{}norms.{}.weight".format(ours, j)] = (source, same)
    return {key: rule for key, rule in rules.items() if key in variables}
