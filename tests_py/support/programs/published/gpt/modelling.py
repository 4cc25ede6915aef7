"""The layers of GPT. Tensor parallel: matrices have their columns, or their rows, on the replicas of a group."""

from functools import partial
from typing import Dict, List, Tuple

import numpy as np
import popxl
import popxl_addons as addons
from model_utils.weights import Rule, same
from popxl import ops
from popxl_addons.array_munging import pad_axis, shard
from popxl_addons.layers import Embedding, LayerNorm, Linear
from popxl_addons.named_tensors import NamedTensors
from popxl_addons.ops.replicated_all_reduce_TP import (
    replicated_all_reduce_identical_grad_inputs,
    replicated_all_reduce_identical_inputs,
)

from .config import GPTConfig


class Groups:
    """Groups of replicas: those that split a tensor, and those that hold the same part of it."""

    def __init__(self, config: GPTConfig):
        ir = popxl.gir()
        self.tensor_parallel = ir.replica_grouping(stride=1, group_size=config.execution.tensor_parallel)
        self.data_parallel = self.tensor_parallel.transpose()
        self.all = ir.replica_grouping()


class LinearColumns(addons.Module):
    """``x @ weight + bias`` with the columns split; ``x`` is the same on the whole group."""

    def __init__(self, config: GPTConfig, out_features: int):
        super().__init__()
        groups = Groups(config)
        self.group = groups.tensor_parallel
        self.linear = Linear(
            out_features // config.execution.tensor_parallel, replica_grouping=groups.data_parallel
        )

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        return self.linear(replicated_all_reduce_identical_inputs(x, group=self.group))


class LinearRows(addons.Module):
    """``x @ weight + bias`` with the rows split, as ``x`` has its columns; the result is the same on the group."""

    def __init__(self, config: GPTConfig, out_features: int):
        super().__init__()
        groups = Groups(config)
        self.group, self.out_features = groups.tensor_parallel, out_features
        self.linear = Linear(out_features, bias=False, replica_grouping=groups.data_parallel)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        y = replicated_all_reduce_identical_grad_inputs(self.linear(x), group=self.group)
        self.bias = self.add_variable_input("bias", partial(np.zeros, self.out_features), x.dtype)
        return y + self.bias


class Dropout(addons.Module):
    """Drops with probability ``p``."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def build(self, x: popxl.Tensor, seed: popxl.Tensor) -> popxl.Tensor:
        return ops.dropout(x, seed, p=self.p) if self.p > 0 else x


class SelfAttention(addons.Module):
    """Causal; the heads are split."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = config
        self.qkv = LinearColumns(config, 3 * config.model.hidden_size)
        self.output = LinearRows(config, config.model.hidden_size)

    def build(self, x: popxl.Tensor, seed: popxl.Tensor) -> popxl.Tensor:
        c, b, s = self.config, self.config.execution.micro_batch_size, self.config.model.sequence_length
        heads = c.model.attention.heads // c.execution.tensor_parallel
        size = c.model.hidden_size // c.model.attention.heads
        q, k, v = ops.split(self.qkv(x), 3, axis=-1)
        q = q.reshape((b, s, heads, size)).transpose((0, 2, 1, 3))
        k = k.reshape((b, s, heads, size)).transpose((0, 2, 3, 1))
        v = v.reshape((b, s, heads, size)).transpose((0, 2, 1, 3))
        scores = (q @ k) * (1 / np.sqrt(size))
        causal = popxl.constant(np.tril(np.ones((s, s), dtype=bool)), name="causal_mask")
        scores = ops.where(causal, scores, popxl.constant(-1e4, scores.dtype))
        probs = ops.softmax(scores, axis=-1)
        if c.model.dropout_prob > 0:
            probs = ops.dropout(probs, seed, p=c.model.dropout_prob)
        mixed = (probs @ v).transpose((0, 2, 1, 3)).reshape((b * s, heads * size))
        return self.output(mixed)


class FeedForward(addons.Module):
    """Wide, and back."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.intermediate = LinearColumns(config, 4 * config.model.hidden_size)
        self.output = LinearRows(config, config.model.hidden_size)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        return self.output(ops.gelu(self.intermediate(x)))


class DecoderBlock(addons.Module):
    """Attention and feed-forward layer, each after a norm and around it a residual."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.ln_1, self.ln_2 = LayerNorm(), LayerNorm()
        self.attention, self.mlp = SelfAttention(config), FeedForward(config)
        self.dropout_1, self.dropout_2 = (
            Dropout(config.model.dropout_prob),
            Dropout(config.model.dropout_prob),
        )
        self.eps = config.model.eps

    def build(self, x: popxl.Tensor, seed: popxl.Tensor) -> popxl.Tensor:
        attention_seed, seed_1, seed_2 = ops.split_random_seed(seed, 3)
        x = x + self.dropout_1(self.attention(self.ln_1(x, self.eps), attention_seed), seed_1)
        return x + self.dropout_2(self.mlp(self.ln_2(x, self.eps)), seed_2)


class Embeddings(addons.Module):
    """Of tokens, whose table is split by rows, and of positions."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config, groups = config, Groups(config)
        m = config.model
        self.group = groups.tensor_parallel
        self.word = Embedding(m.dtype, m.embedding.vocab_size, m.hidden_size, 0, groups.data_parallel)
        self.position = Embedding(m.dtype, m.embedding.max_positional_length, m.hidden_size)
        self.dropout = Dropout(m.dropout_prob)

    def build(self, tokens: popxl.Tensor, seed: popxl.Tensor) -> popxl.Tensor:
        """``tokens`` (micro batch * sequence,), less the first token of this replica's part of the table."""
        s = self.config.model.sequence_length
        x = replicated_all_reduce_identical_grad_inputs(self.word(tokens), group=self.group)
        positions = np.tile(np.arange(s, dtype=np.int32), self.config.execution.micro_batch_size)
        x = x + self.position(popxl.constant(positions, popxl.int32, "positions"))
        return self.dropout(x, seed)


class GPT(addons.Module):
    """All layers; the blocks are one graph, and the head has the weights of the embedding."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = config
        self.group = Groups(config).tensor_parallel
        self.embeddings = Embeddings(config)
        self.ln_f = LayerNorm()

    def build(self, tokens: popxl.Tensor, seed: popxl.Tensor) -> popxl.Tensor:
        """Scores of this replica's part of the vocabulary, (micro batch * sequence, vocabulary / replicas)."""
        m = self.config.model
        seed, embedding_seed = ops.split_random_seed(seed)
        x = self.embeddings(tokens, embedding_seed)
        facts, block = DecoderBlock(self.config).create_graph(x, seed)
        for i in range(m.layers):
            seed, layer_seed = ops.split_random_seed(seed)
            variables = self.add_variable_inputs("blocks.{}".format(i), facts, overwrite=i > 0)
            (x,) = block.bind(variables).call(x, layer_seed)
        x = replicated_all_reduce_identical_inputs(self.ln_f(x, m.eps), group=self.group)
        return x @ ops.transpose(self.embeddings.word.weight)


class GPTLoss(addons.Module):
    """The model, and the cross entropy of its split scores."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = config
        self.group = Groups(config).tensor_parallel
        self.transformer = GPT(config)

    def build(self, tokens: popxl.Tensor, labels: popxl.Tensor, seed: popxl.Tensor) -> popxl.Tensor:
        logits = self.transformer(tokens, seed)
        return addons.ops.cross_entropy_sharded_loss(logits, labels, replica_grouping=self.group)


def state_shapes(config: GPTConfig) -> Dict[str, Tuple[int, ...]]:
    """Names and shapes of a state dict of the model in one piece."""
    m, h = config.model, config.model.hidden_size
    shapes = {"wte.weight": (m.embedding.vocab_size, h), "wpe.weight": (m.embedding.max_positional_length, h)}
    for i in range(m.layers):
        for name, shape in (
            ("norm_1.weight", (h,)),
            ("norm_1.bias", (h,)),
            ("attn.c_attn.weight", (h, 3 * h)),
            ("attn.c_attn.bias", (3 * h,)),
            ("attn.c_proj.weight", (h, h)),
            ("attn.c_proj.bias", (h,)),
            ("norm_2.weight", (h,)),
            ("norm_2.bias", (h,)),
            ("mlp.c_fc.weight", (h, 4 * h)),
            ("mlp.c_fc.bias", (4 * h,)),
            ("mlp.c_proj.weight", (4 * h, h)),
            ("mlp.c_proj.bias", (h,)),
        ):
            shapes["h.{}.{}".format(i, name)] = shape
    shapes.update({"norm_f.weight": (h,), "norm_f.bias": (h,)})
    return shapes


def pretrained_rules(config: GPTConfig, variables: NamedTensors) -> Dict[str, Rule]:
    """From that state dict (matrices (in, out)) to the parts of each replica."""
    tp = config.execution.tensor_parallel

    def qkv(array: np.ndarray) -> np.ndarray:
        parts: List[np.ndarray] = [shard(part, tp, axis=-1) for part in np.split(array, 3, axis=-1)]
        return np.concatenate(parts, axis=-1)

    def table(array: np.ndarray) -> np.ndarray:
        rows = Embedding.get_vocab_shard_size(config.model.embedding.vocab_size, tp) * tp
        return shard(pad_axis(array, rows, axis=0), tp, axis=0)

    columns, rows = partial(shard, n=tp, axis=-1), partial(shard, n=tp, axis=0)
    rules: Dict[str, Rule] = {
        "transformer.embeddings.word.weight": ("wte.weight", table),
        "transformer.embeddings.position.weight": ("wpe.weight", same),
        "transformer.ln_f.weight": ("norm_f.weight", same),
        "transformer.ln_f.bias": ("norm_f.bias", same),
    }
    for i in range(config.model.layers):
        ours, theirs = "transformer.blocks.{}.".format(i), "h.{}.".format(i)
        for name, (other, function) in {
            "ln_1.weight": ("norm_1.weight", same),
            "ln_1.bias": ("norm_1.bias", same),
            "attention.qkv.linear.weight": ("attn.c_attn.weight", qkv),
            "attention.qkv.linear.bias": ("attn.c_attn.bias", qkv),
            "attention.output.linear.weight": ("attn.c_proj.weight", rows),
            "attention.output.bias": ("attn.c_proj.bias", same),
            "ln_2.weight": ("norm_2.weight", same),
            "ln_2.bias": ("norm_2.bias", same),
            "mlp.intermediate.linear.weight": ("mlp.c_fc.weight", columns),
            "mlp.intermediate.linear.bias": ("mlp.c_fc.bias", columns),
            "mlp.output.linear.weight": ("mlp.c_proj.weight", rows),
            "mlp.output.bias": ("mlp.c_proj.bias", same),
        }.items():
            rules[ours + name] = (theirs + other, function)
    return rules
