"""Options of the T5 model, its training and its execution."""

from dataclasses import dataclass, field
from pathlib import Path

import popxl
from model_utils.config_tree import PRECISIONS, Config

CONFIGS = Path(__file__).parent / "configs.yml"
PAD, IGNORED = 0, -100


@dataclass
class PositionBias(Config):
    """Distances share a bias within a bucket."""

    buckets: int = 32
    max_distance: int = 128


@dataclass
class Model(Config):
    """Encoder and decoder."""

    d_model: int = 512
    d_kv: int = 64
    d_ff: int = 1024
    layers: int = 8
    heads: int = 6
    source_length: int = 512
    target_length: int = 128
    vocab_size: int = 32128
    eps: float = 1e-6
    precision: int = 32
    position_bias: PositionBias = PositionBias()

    @property
    def dtype(self) -> popxl.dtype:
        return PRECISIONS[self.precision]


@dataclass
class Optimizer(Config):
    """AdamW."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.0


@dataclass
class Training(Config):
    """A run of the program is an update."""

    steps: int = 100
    batches: int = 100
    """Different ones; then they start anew."""
    seed: int = 3
    optimizer: Optimizer = field(default_factory=Optimizer)


@dataclass
class Execution(Config):
    """Replicas and batches."""

    micro_batch_size: int = 1
    data_parallel: int = 1
    gradient_accumulation: int = 1
    loss_scaling: float = 64.0


@dataclass
class T5Config(Config):
    """All options."""

    model: Model = Model()
    training: Training = Training()
    execution: Execution = Execution()
