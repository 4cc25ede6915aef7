"""Options of the GPT model, its training and its execution."""

from dataclasses import dataclass
from pathlib import Path

import popxl
from model_utils.config_tree import PRECISIONS, Config

CONFIGS = Path(__file__).parent / "configs.yml"


@dataclass
class Embedding(Config):
    """Tables of tokens and positions."""

    vocab_size: int = 50272
    max_positional_length: int = 1024


@dataclass
class Attention(Config):
    """Causal self-attention."""

    heads: int = 12


@dataclass
class Model(Config):
    """The decoder."""

    layers: int = 12
    hidden_size: int = 768
    sequence_length: int = 1024
    dropout_prob: float = 0.1
    eps: float = 1e-5
    precision: int = 32
    attention: Attention = Attention()
    embedding: Embedding = Embedding()

    @property
    def dtype(self) -> popxl.dtype:
        return PRECISIONS[self.precision]


@dataclass
class LearningRate(Config):
    """Linear warm-up, then linear decay to zero."""

    maximum: float = 1e-4
    warmup_steps: int = 100


@dataclass
class Optimizer(Config):
    """AdamW."""

    name: str = "adamw"
    learning_rate: LearningRate = LearningRate()
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-6
    weight_decay: float = 0.05
    gradient_clipping: float = 0.5


@dataclass
class Training(Config):
    """A run of the program is an update."""

    steps: int = 1000
    gradient_accumulation: int = 4
    stochastic_rounding: bool = False
    seed: int = 42
    optimizer: Optimizer = Optimizer()


@dataclass
class Execution(Config):
    """Replicas and batches."""

    micro_batch_size: int = 1
    tensor_parallel: int = 4
    data_parallel: int = 2
    loss_scaling: float = 1.0
    io_tiles: int = 64

    @property
    def replicas(self) -> int:
        return self.tensor_parallel * self.data_parallel


@dataclass
class GPTConfig(Config):
    """All options."""

    model: Model = Model()
    training: Training = Training()
    execution: Execution = Execution()

    def validate(self) -> None:
        super().validate()
        shards = self.execution.tensor_parallel
        if self.model.attention.heads % shards:
            raise ValueError(
                "tensor_parallel must divide the heads, got {}".format(self.model.attention.heads)
            )
        if self.model.hidden_size % self.model.attention.heads:
            raise ValueError("heads must divide hidden_size, got {}".format(self.model.hidden_size))


def learning_rate(config: GPTConfig, step: int) -> float:
    """Of an update, from 0 on."""
    lr, steps = config.training.optimizer.learning_rate, config.training.steps
    if step < lr.warmup_steps:
        return lr.maximum * (step + 1) / lr.warmup_steps
    return lr.maximum * (steps - step) / max(1, steps - lr.warmup_steps)
