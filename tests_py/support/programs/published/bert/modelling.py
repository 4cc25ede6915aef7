"""The layers of BERT. Activations are (micro batch * sequence, features)."""

from functools import partial
from typing import Dict, Tuple

import numpy as np
import popxl
import popxl_addons as addons
from model_utils.weights import Rule, same, transposed
from popxl import ops
from popxl_addons.layers import Embedding as Table
from popxl_addons.layers import LayerNorm, Linear
from popxl_addons.named_tensors import NamedTensors

from .config import BertConfig


def dropout(x: popxl.Tensor, seed: popxl.Tensor, config: BertConfig) -> popxl.Tensor:
    """With the probability of the configuration."""
    return ops.dropout(x, seed, p=config.model.dropout_prob) if config.model.dropout_prob > 0 else x


class Embeddings(addons.Module):
    """Sum of three tables, normalised."""

    def __init__(self, config: BertConfig):
        super().__init__()
        m = config.model
        self.config = config
        self.word = Table(m.dtype, m.embedding.vocab_size, m.hidden_size)
        self.position = Table(m.dtype, m.embedding.max_positional_length, m.hidden_size)
        self.token_type = Table(m.dtype, m.embedding.types, m.hidden_size)
        self.norm = LayerNorm()

    def build(
        self, words: popxl.Tensor, token_types: popxl.Tensor, mask: popxl.Tensor, seed: popxl.Tensor
    ) -> popxl.Tensor:
        """``mask`` is kept for the layers."""
        config = self.config
        positions = np.tile(np.arange(config.model.sequence_length), config.execution.micro_batch_size)
        x = self.word(words) + self.position(popxl.constant(positions, popxl.int32, "positions"))
        x = self.norm(x + self.token_type(token_types), config.model.eps)
        return dropout(x, seed, config)


class SelfAttention(addons.Module):
    """Of all positions that are not masked, and the residual."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.config = config
        self.qkv, self.output = Linear(3 * config.model.hidden_size), Linear(config.model.hidden_size)
        self.norm = LayerNorm()

    def build(self, x: popxl.Tensor, mask: popxl.Tensor, seed: popxl.Tensor) -> popxl.Tensor:
        m, b = self.config.model, self.config.execution.micro_batch_size
        heads, size = m.attention.heads, m.hidden_size // m.attention.heads
        probs_seed, output_seed = ops.split_random_seed(seed)
        q, k, v = (
            part.reshape((b, m.sequence_length, heads, size)) for part in ops.split(self.qkv(x), 3, axis=-1)
        )
        scores = q.transpose((0, 2, 1, 3)) @ k.transpose((0, 2, 3, 1)) * (1 / np.sqrt(size))
        scores = scores + ops.reshape((mask - 1.0) * 1000.0, (b, 1, 1, m.sequence_length))
        probs = dropout(ops.softmax(scores, axis=-1), probs_seed, self.config)
        mixed = (probs @ v.transpose((0, 2, 1, 3))).transpose((0, 2, 1, 3)).reshape(x.shape)
        return self.norm(x + dropout(self.output(mixed), output_seed, self.config), m.eps)


class FeedForward(addons.Module):
    """Wide, back, and the residual."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.config = config
        self.intermediate = Linear(config.model.intermediate_size)
        self.output = Linear(config.model.hidden_size)
        self.norm = LayerNorm()

    def build(self, x: popxl.Tensor, seed: popxl.Tensor) -> popxl.Tensor:
        y = self.output(ops.geluerf(self.intermediate(x)))
        return self.norm(x + dropout(y, seed, self.config), self.config.model.eps)


class EncoderLayer(addons.Module):
    """Attention and feed-forward layer."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.attention, self.feed_forward = SelfAttention(config), FeedForward(config)

    def build(self, x: popxl.Tensor, mask: popxl.Tensor, seed: popxl.Tensor) -> popxl.Tensor:
        attention_seed, output_seed = ops.split_random_seed(seed)
        return self.feed_forward(self.attention(x, mask, attention_seed), output_seed)


class MaskedWords(addons.Module):
    """Scores of masked words; the matrix is the table of words."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.config = config
        self.dense, self.norm = Linear(config.model.hidden_size), LayerNorm()

    def build(self, x: popxl.Tensor, positions: popxl.Tensor) -> popxl.Tensor:
        m = self.config.model
        shape = (m.embedding.vocab_size, m.hidden_size)
        decoder = self.add_variable_input("decoder", partial(np.zeros, shape), x.dtype)
        bias = self.add_variable_input("bias", partial(np.zeros, shape[0]), x.dtype)
        x = self.norm(ops.geluerf(self.dense(ops.gather(x, positions))), m.eps)
        return x @ decoder.T + bias


class NextSentence(addons.Module):
    """Scores of whether two sentences follow each other, from the first position."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.config = config
        self.pooler, self.classifier = Linear(config.model.hidden_size), Linear(2)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        b = self.config.execution.micro_batch_size
        first = x.reshape((b, self.config.model.sequence_length, -1))[:, 0]
        return self.classifier(ops.tanh(self.pooler(first)))


class Heads(addons.Module):
    """Both."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.mlm, self.nsp = MaskedWords(config), NextSentence(config)

    def build(self, x: popxl.Tensor, positions: popxl.Tensor) -> Tuple[popxl.Tensor, popxl.Tensor]:
        return self.mlm(x, positions), self.nsp(x)


class HeadsWithGradients(addons.Module):
    """The heads, their losses and all gradients in one graph."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.config, self.heads = config, [Heads(config)]

    def build(
        self, x: popxl.Tensor, positions: popxl.Tensor, words: popxl.Tensor, follows: popxl.Tensor
    ) -> Tuple[popxl.Tensor, ...]:
        """The gradient of ``x``, and both losses."""
        scaling = self.config.execution.loss_scaling
        facts, forward = self.heads[0].create_graph(x, positions)
        outputs = forward.graph.outputs
        grad_facts, backward = addons.transforms.autodiff_with_accumulation(
            forward, forward.args.tensors, grads_provided=outputs, grads_required=[forward.graph.inputs[0]]
        )
        variables = self.add_variable_inputs("variables", facts)
        accumulators = self.add_variable_inputs("accumulators", grad_facts)
        call = forward.bind(variables).call_with_info(x, positions)
        mlm_loss, dmlm = addons.ops.cross_entropy_with_grad(
            call.outputs[0], words, scaling, ignore_index=self.config.model.mlm.ignored
        )
        nsp_loss, dnsp = addons.ops.cross_entropy_with_grad(call.outputs[1], follows, scaling)
        activations = backward.grad_graph_info.inputs_dict(call)
        (dx,) = backward.bind(accumulators).call(dmlm, dnsp, args=activations)
        return dx, ops.cast(mlm_loss, popxl.float32), ops.cast(nsp_loss, popxl.float32)


def state_shapes(config: BertConfig) -> Dict[str, Tuple[int, ...]]:
    """Names and shapes of a state dict."""
    m, h = config.model, config.model.hidden_size
    vocab = m.embedding.vocab_size
    dense: Dict[str, Tuple[int, int]] = {
        "bert.pooler.dense": (h, h),
        "cls.predictions.transform.dense": (h, h),
        "cls.seq_relationship": (2, h),
    }
    norms = ["bert.embeddings.LayerNorm", "cls.predictions.transform.LayerNorm"]
    for i in range(m.layers):
        layer = "bert.encoder.layer.{}.".format(i)
        for name in (
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
            "attention.output.dense",
        ):
            dense[layer + name] = (h, h)
        dense[layer + "intermediate.dense"] = (m.intermediate_size, h)
        dense[layer + "output.dense"] = (h, m.intermediate_size)
        norms += [layer + "attention.output.LayerNorm", layer + "output.LayerNorm"]
    shapes: Dict[str, Tuple[int, ...]] = {
        "bert.embeddings.word_embeddings.weight": (vocab, h),
        "bert.embeddings.position_embeddings.weight": (m.embedding.max_positional_length, h),
        "bert.embeddings.token_type_embeddings.weight": (m.embedding.types, h),
        "cls.predictions.bias": (vocab,),
    }
    for name, shape in dense.items():
        shapes.update({name + ".weight": shape, name + ".bias": shape[:1]})
    for name in norms:
        shapes.update({name + ".weight": (h,), name + ".bias": (h,)})
    return shapes


def fused(*arrays: np.ndarray) -> np.ndarray:
    """Queries, keys and values side by side."""
    return np.concatenate([array.T for array in arrays], axis=-1)


def layer_rules(i: int) -> Dict[str, Rule]:
    """Of an encoder layer."""
    layer = "bert.encoder.layer.{}.".format(i)
    rules: Dict[str, Rule] = {}
    for suffix in ("weight", "bias"):
        names = ["{}attention.self.{}.{}".format(layer, part, suffix) for part in ("query", "key", "value")]
        function = transposed if suffix == "weight" else same
        rules["attention.qkv." + suffix] = (names, fused)
        rules["attention.output." + suffix] = (layer + "attention.output.dense." + suffix, function)
        rules["attention.norm." + suffix] = (layer + "attention.output.LayerNorm." + suffix, same)
        rules["feed_forward.intermediate." + suffix] = (layer + "intermediate.dense." + suffix, function)
        rules["feed_forward.output." + suffix] = (layer + "output.dense." + suffix, function)
        rules["feed_forward.norm." + suffix] = (layer + "output.LayerNorm." + suffix, same)
    return rules


def head_rules() -> Dict[str, Rule]:
    """Of both heads."""
    rules: Dict[str, Rule] = {"mlm.bias": ("cls.predictions.bias", same)}
    for suffix in ("weight", "bias"):
        function = transposed if suffix == "weight" else same
        rules["mlm.dense." + suffix] = ("cls.predictions.transform.dense." + suffix, function)
        rules["mlm.norm." + suffix] = ("cls.predictions.transform.LayerNorm." + suffix, same)
        rules["nsp.pooler." + suffix] = ("bert.pooler.dense." + suffix, function)
        rules["nsp.classifier." + suffix] = ("cls.seq_relationship." + suffix, function)
    return rules


def embedding_rules() -> Dict[str, Rule]:
    """Of the tables."""
    prefix = "bert.embeddings."
    return {
        "word.weight": (prefix + "word_embeddings.weight", same),
        "position.weight": (prefix + "position_embeddings.weight", same),
        "token_type.weight": (prefix + "token_type_embeddings.weight", same),
        "norm.weight": (prefix + "LayerNorm.weight", same),
        "norm.bias": (prefix + "LayerNorm.bias", same),
    }


def pretrained_rules(variables: NamedTensors) -> Dict[str, Rule]:
    """From that state dict to all variables."""
    rules = {"embedding." + key: rule for key, rule in embedding_rules().items()}
    rules.update({"heads." + key: rule for key, rule in head_rules().items()})
    for i, _ in enumerate(variables.layers.values()):
        rules.update({"layers.{}.{}".format(i, key): rule for key, rule in layer_rules(i).items()})
    return rules
