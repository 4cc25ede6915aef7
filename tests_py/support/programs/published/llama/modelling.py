"""The layers of LLaMA for one position at a time."""

from functools import partial
from typing import Dict, Tuple

import numpy as np
import popxl
import popxl_addons as addons
from model_utils.weights import Rule, same, transposed
from popxl import ops
from popxl_addons.array_munging import shard
from popxl_addons.layers import Embedding, Linear
from popxl_addons.layers.linear_gq import LinearGQ
from popxl_addons.named_tensors import NamedTensors
from popxl_addons.ops.group_quantize_decompress import group_quantize_compress_numpy
from popxl_addons.ops.rotary_pos_embed import trig_table_constants

from .config import LlamaConfig
from .rope import rope


class Groups:
    """Replicas that split tensors, and those that hold the same part."""

    def __init__(self, config: LlamaConfig):
        self.split = popxl.gir().replica_grouping(group_size=config.execution.tensor_parallel)
        self.same = self.split.transpose()


class SplitLinear(addons.Module):
    """A dense layer with its columns, or its rows, on the replicas of a group; whole or of four bits."""

    def __init__(self, config: LlamaConfig, out_features: int, rows: bool = False):
        super().__init__()
        groups, size = Groups(config), config.model.quantisation.group_size
        self.group = groups.split if rows else None
        width = out_features if rows else out_features // config.execution.tensor_parallel
        if size:
            self.inner = LinearGQ(width, bias=False, replica_grouping=groups.same, group_size=size, dim=0)
        else:
            self.inner = Linear(width, bias=False, replica_grouping=groups.same)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        y = self.inner(x)
        return y if self.group is None else ops.collectives.replicated_all_reduce(y, "add", self.group)


class RMSNorm(addons.Module):
    """By the root of the mean square."""

    def __init__(self, eps: float):
        super().__init__()
        self.eps = eps

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        weight = self.add_variable_input("weight", partial(np.ones, x.shape[-1]), x.dtype)
        wide = ops.cast(x, popxl.float32)
        scale = ops.sqrt(ops.mean(wide * wide, -1, keepdims=True) + self.eps)
        return ops.cast(wide / scale, x.dtype) * weight


class Attention(addons.Module):
    """Of one position to those before it, whose keys and values are in the cache."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.config, m = config, config.model
        kv_features = m.attention.kv_heads * m.head_size
        self.q_proj = SplitLinear(config, m.hidden_size)
        self.k_proj, self.v_proj = SplitLinear(config, kv_features), SplitLinear(config, kv_features)
        self.o_proj = SplitLinear(config, m.hidden_size, rows=True)

    def cache(self, name: str) -> popxl.Tensor:
        """Keys or values of all positions, (batch, heads, sequence, features)."""
        m, e = self.config.model, self.config.execution
        shape = (e.batch_size, m.attention.kv_heads // e.tensor_parallel, m.sequence_length, m.head_size)
        zeros, groups = partial(np.zeros, shape, np.float32), Groups(self.config)
        return self.add_variable_input(name, zeros, m.dtype, by_ref=True, replica_grouping=groups.same)

    def build(
        self, x: popxl.Tensor, position: popxl.Tensor, sin: popxl.Tensor, cos: popxl.Tensor
    ) -> popxl.Tensor:
        """``x`` (batch, hidden), ``position`` (1,)."""
        m, tp, b = self.config.model, self.config.execution.tensor_parallel, self.config.execution.batch_size
        size, kv_heads = m.head_size, m.attention.kv_heads // tp
        repeats = m.attention.heads // m.attention.kv_heads
        q = rope(self.q_proj(x).reshape((b, 1, kv_heads * repeats, size)), sin, cos, size)
        k = rope(self.k_proj(x).reshape((b, 1, kv_heads, size)), sin, cos, size)
        v = self.v_proj(x).reshape((b, 1, kv_heads, size))
        keys, values = self.cache("keys"), self.cache("values")
        for cache, new in ((keys, k), (values, v)):
            new = ops.transpose(new, (0, 2, 1, 3))
            ops.dynamic_update_(cache, position, new, axes=[2], sizes=[1], no_overlap=True)
        q = q.reshape((b, kv_heads, repeats, size))
        scores = (q @ ops.transpose(keys, (0, 1, 3, 2))) * (1 / np.sqrt(size))
        steps = popxl.constant(np.arange(m.sequence_length), popxl.int32, "positions")
        scores = ops.where(ops.greater(steps, position), popxl.constant(-1e4, scores.dtype), scores)
        mixed = ops.softmax(scores, -1) @ values
        return self.o_proj(mixed.reshape((b, kv_heads * repeats * size)))


class MLP(addons.Module):
    """SwiGLU."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        m = config.model
        self.gate_proj = SplitLinear(config, m.intermediate_size)
        self.up_proj = SplitLinear(config, m.intermediate_size)
        self.down_proj = SplitLinear(config, m.hidden_size, rows=True)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        return self.down_proj(ops.swish(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(addons.Module):
    """Attention and the feed-forward layer, each after a norm and around it a residual."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        eps = config.model.eps
        self.attention_norm, self.mlp_norm = RMSNorm(eps), RMSNorm(eps)
        self.attention, self.mlp = Attention(config), MLP(config)

    def build(
        self, x: popxl.Tensor, position: popxl.Tensor, sin: popxl.Tensor, cos: popxl.Tensor
    ) -> popxl.Tensor:
        x = x + self.attention(self.attention_norm(x), position, sin, cos)
        return x + self.mlp(self.mlp_norm(x))


class Llama(addons.Module):
    """Scores of the next token after one position."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.config, m = config, config.model
        self.groups = Groups(config)
        self.embedding = Embedding(m.dtype, m.embedding.vocab_size, m.hidden_size)
        self.norm = RMSNorm(m.eps)
        columns = m.embedding.vocab_size // config.execution.tensor_parallel
        self.lm_head = Linear(columns, bias=False, replica_grouping=self.groups.same)

    def build(self, tokens: popxl.Tensor, position: popxl.Tensor) -> popxl.Tensor:
        """``tokens`` (batch,), ``position`` (1,): (batch, vocabulary)."""
        m = self.config.model
        tables = trig_table_constants(m.sequence_length, m.head_size, m.attention.rotary_base, m.dtype)
        sin, cos = (ops.gather(table, position) for table in tables)
        x = self.embedding(tokens)
        facts, layer = DecoderLayer(self.config).create_graph(x, position, sin, cos)
        for i in range(m.layers):
            variables = self.add_variable_inputs("layers.{}".format(i), facts, overwrite=i > 0)
            (x,) = layer.bind(variables).call(x, position, sin, cos)
        logits = self.lm_head(self.norm(x))
        return ops.collectives.replicated_all_gather(logits, axis=1, group=self.groups.split)


def state_shapes(config: LlamaConfig) -> Dict[str, Tuple[int, ...]]:
    """Names and shapes of a state dict of the model in one piece."""
    m, h = config.model, config.model.hidden_size
    kv_features = m.attention.kv_heads * m.head_size
    shapes: Dict[str, Tuple[int, ...]] = {}
    for i in range(m.layers):
        for name, shape in {
            "self_attn.q_proj": (h, h),
            "self_attn.k_proj": (kv_features, h),
            "self_attn.v_proj": (kv_features, h),
            "self_attn.o_proj": (h, h),
            "mlp.gate_proj": (m.intermediate_size, h),
            "mlp.up_proj": (m.intermediate_size, h),
            "mlp.down_proj": (h, m.intermediate_size),
            "input_layernorm": (h,),
            "post_attention_layernorm": (h,),
        }.items():
            shapes["model.layers.{}.{}.weight".format(i, name)] = shape
    table = (m.embedding.vocab_size, h)
    shapes.update({"model.embed_tokens.weight": table, "model.norm.weight": (h,), "lm_head.weight": table})
    return shapes


def pretrained_rules(config: LlamaConfig, variables: NamedTensors) -> Dict[str, Rule]:
    """From that state dict (matrices (out, in)) to the parts of each replica; caches start with zeros."""
    tp, group_size = config.execution.tensor_parallel, config.model.quantisation.group_size

    def split(array: np.ndarray, axis: int) -> np.ndarray:
        return shard(transposed(array), tp, axis)

    def compressed(array: np.ndarray, axis: int, item: int) -> np.ndarray:
        parts = [group_quantize_compress_numpy(part, group_size, 0)[item] for part in split(array, axis)]
        return np.stack(parts)

    rules: Dict[str, Rule] = {
        "embedding.weight": ("model.embed_tokens.weight", same),
        "norm.weight": ("model.norm.weight", same),
        "lm_head.weight": ("lm_head.weight", partial(split, axis=1)),
    }
    for i in range(config.model.layers):
        ours, theirs = "layers.{}.".format(i), "model.layers.{}.".format(i)
        rules[ours + "attention_norm.weight"] = (theirs + "input_layernorm.weight", same)
        rules[ours + "mlp_norm.weight"] = (theirs + "post_attention_layernorm.weight", same)
        for part, other, names in (
            ("attention", "self_attn", ("q_proj", "k_proj", "v_proj", "o_proj")),
            ("mlp", "mlp", ("gate_proj", "up_proj", "down_proj")),
        ):
            for name in names:
                axis = 0 if name in ("o_proj", "down_proj") else 1
                source = "{}{}.{}.weight".format(theirs, other, name)
                target = "{}{}.{}.inner.".format(ours, part, name)
                if not group_size:
                    rules[target + "weight"] = (source, partial(split, axis=axis))
                    continue
                for item, suffix in enumerate(("weight", "weight_scale", "weight_bias")):
                    rules[target + suffix] = (source, partial(compressed, axis=axis, item=item))
    return {key: rule for key, rule in rules.items() if key in variables}
