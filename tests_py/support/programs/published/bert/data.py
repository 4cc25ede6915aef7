"""A loader of synthetic batches that can be saved and resumed."""

import json
from typing import Dict, Iterator

import numpy as np
import popxl

from .config import BertConfig


class Loader:
    """Batches by number, so that a resumed loader goes on where the saved one was."""

    def __init__(self, config: BertConfig):
        self.config, self.index = config, 0

    def save(self, path: str) -> None:
        """For a checkpoint."""
        with open(path, "w") as file:
            json.dump({"index": self.index}, file)

    def resume(self, path: str) -> None:
        """From a checkpoint."""
        with open(path) as file:
            self.index = json.load(file)["index"]

    def __iter__(self) -> Iterator[Dict[str, np.ndarray]]:
        while True:
            batch = self.batch(self.index)
            self.index += 1
            yield batch

    def learning_rate(self, step: int) -> float:
        """Warm-up, then decay."""
        lr, steps = self.config.training.optimizer.learning_rate, self.config.training.steps
        if step < lr.warmup_steps:
            return lr.maximum * (step + 1) / lr.warmup_steps
        return lr.maximum * (steps - step) / max(1, steps - lr.warmup_steps)

    def batch(self, index: int) -> Dict[str, np.ndarray]:
        """Arrays by stream, (micro batches of an update, replicas, …)."""
        config, m, e = self.config, self.config.model, self.config.execution
        rng = np.random.default_rng(config.training.seed + index)
        outer = (e.gradient_accumulation, e.data_parallel)
        samples = (*outer, e.micro_batch_size)
        words = rng.integers(5, m.embedding.vocab_size, (*samples, m.sequence_length))
        words[..., 1::2] = (words[..., 0::2] * 7) % (m.embedding.vocab_size - 5) + 5
        words[..., 0] = 1
        lengths = rng.integers(m.sequence_length // 2, m.sequence_length + 1, samples)
        is_there = np.arange(m.sequence_length) < lengths[..., None]
        types = np.arange(m.sequence_length) >= lengths[..., None] // 2
        places = np.broadcast_to(np.arange(1, m.sequence_length // 2), (*samples, m.sequence_length // 2 - 1))
        places = rng.permuted(places, axis=-1)
        places = np.sort(places[..., : m.mlm.max_tokens], axis=-1)
        labels = np.take_along_axis(words, places, axis=-1)
        np.put_along_axis(words, places, 2, axis=-1)
        labels[..., -1] *= rng.integers(0, 2, samples)  # the last is ignored in some
        words = np.where(is_there, words, 0)
        flat = places + m.sequence_length * np.arange(e.micro_batch_size)[:, None]
        seeds = popxl.create_seeds(
            config.training.seed, index, gradient_accumulation_factor=outer[0], replicas=outer[1]
        )
        arrays = {
            "words": words,
            "token_types": types.astype(int),
            "mask": is_there.astype(float),
            "masked_positions": flat,
            "masked_words": labels,
            "follows": (words[..., 3] > m.embedding.vocab_size // 2).astype(int),
            "seed": seeds,
            "lr": np.full(outer, self.learning_rate(index)),
        }
        return {name: np.ascontiguousarray(array) for name, array in arrays.items()}
