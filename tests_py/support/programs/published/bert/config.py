"""Options of the BERT model, its pretraining and its execution."""

from dataclasses import dataclass
from pathlib import Path

import popxl
from model_utils.config_tree import PRECISIONS, Config

CONFIGS = Path(__file__).parent / "configs.yml"


@dataclass
class Embedding(Config):
    """Tables of words, positions and types."""

    vocab_size: int = 30522
    max_positional_length: int = 512
    types: int = 2


@dataclass
class Attention(Config):
    """Self-attention."""

    heads: int = 12


@dataclass
class MLM(Config):
    """Masked tokens of a sequence."""

    max_tokens: int = 20
    ignored: int = 0


@dataclass
class Model(Config):
    """The encoder and its heads."""

    layers: int = 12
    hidden_size: int = 768
    intermediate_size: int = 3072
    sequence_length: int = 128
    dropout_prob: float = 0.1
    eps: float = 1e-12
    precision: int = 32
    embedding: Embedding = Embedding()
    attention: Attention = Attention()
    mlm: MLM = MLM()

    @property
    def dtype(self) -> popxl.dtype:
        return PRECISIONS[self.precision]


@dataclass
class LearningRate(Config):
    """Linear warm-up, then linear decay."""

    maximum: float = 6e-3
    warmup_steps: int = 2000


@dataclass
class Optimizer(Config):
    """LAMB."""

    learning_rate: LearningRate = LearningRate()
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.01
    max_weight_norm: float = 100.0


@dataclass
class Training(Config):
    """A run of the program is an update."""

    steps: int = 1000
    seed: int = 1984
    optimizer: Optimizer = Optimizer()


@dataclass
class Execution(Config):
    """Replicas, batches, and where values are kept."""

    micro_batch_size: int = 1
    data_parallel: int = 1
    gradient_accumulation: int = 1
    loss_scaling: float = 1.0
    recompute: bool = True
    io_mode: str = "io"
    sharded_threshold: int = 1024
    """Variables of fewer elements are not sharded."""


@dataclass
class BertConfig(Config):
    """All options."""

    model: Model = Model()
    training: Training = Training()
    execution: Execution = Execution()

    @property
    def tokens(self) -> int:
        """Of a micro batch."""
        return self.execution.micro_batch_size * self.model.sequence_length

    @property
    def masked(self) -> int:
        """Masked tokens of a micro batch."""
        return self.execution.micro_batch_size * self.model.mlm.max_tokens

    def validate(self) -> None:
        super().validate()
        if self.model.hidden_size % self.model.attention.heads:
            raise ValueError("heads must divide hidden_size, got {}".format(self.model.attention.heads))
        if self.execution.io_mode not in ("compute", "io", "io_overlapped"):
            raise ValueError("unknown io_mode {}".format(self.execution.io_mode))
