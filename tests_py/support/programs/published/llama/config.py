"""Options of the model and of generation."""

from dataclasses import dataclass
from pathlib import Path

import popxl
from model_utils.config_tree import PRECISIONS, Config

CONFIGS = Path(__file__).parent / "configs.yml"


@dataclass
class Embedding(Config):
    """The table of tokens."""

    vocab_size: int = 32000


@dataclass
class Attention(Config):
    """Heads of queries share heads of keys and values."""

    heads: int = 32
    kv_heads: int = 8
    rotary_base: int = 10000


@dataclass
class Quantisation(Config):
    """Of all matrices of the layers; 0: none."""

    group_size: int = 0


@dataclass
class Model(Config):
    """The decoder."""

    layers: int = 32
    hidden_size: int = 4096
    intermediate_size: int = 11008
    sequence_length: int = 2048
    eps: float = 1e-6
    precision: int = 32
    embedding: Embedding = Embedding()
    attention: Attention = Attention()
    quantisation: Quantisation = Quantisation()

    @property
    def dtype(self) -> popxl.dtype:
        return PRECISIONS[self.precision]

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.attention.heads


@dataclass
class Inference(Config):
    """Generation."""

    new_tokens: int = 64
    top_k: int = 5
    temperature: float = 0.8
    seed: int = 11


@dataclass
class Execution(Config):
    """Replicas and batches."""

    batch_size: int = 1
    tensor_parallel: int = 4
    io_tiles: int = 1


@dataclass
class LlamaConfig(Config):
    """All options."""

    model: Model = Model()
    inference: Inference = Inference()
    execution: Execution = Execution()

    def validate(self) -> None:
        super().validate()
        a, shards = self.model.attention, self.execution.tensor_parallel
        if a.heads % a.kv_heads or a.kv_heads % shards:
            raise ValueError("{} heads, {} of keys, {} replicas".format(a.heads, a.kv_heads, shards))
