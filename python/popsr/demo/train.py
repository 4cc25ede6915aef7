"""Runs the demo's programs: training with one recipe and one key, test scores, the check of the replicas."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np

import popsr
from popsr.demo import model
from popsr.demo.data import Dataset, Floats, Ints


@dataclass
class Curve:
    """Results of one training, by epoch."""

    train_loss: list[float] = field(default_factory=list)
    test_loss: list[float] = field(default_factory=list)
    test_accuracy: list[float] = field(default_factory=list)
    seconds: float = 0.0
    images: int = 0


def epochs_of(data: Dataset, key: int) -> Callable[[], tuple[Floats, Ints]]:
    """The batches of the next epoch at each call, ``[steps * accumulation, replicas, micro batch, ...]``."""
    rng = np.random.default_rng((key, 1))
    steps = steps_per_epoch(data)
    shape = (steps * model.ACCUMULATION, model.REPLICAS, model.MICRO_BATCH)

    def next_epoch() -> tuple[Floats, Ints]:
        chosen = rng.permutation(len(data.x_train))[: steps * model.BATCH].reshape(shape)
        return data.x_train[chosen], data.y_train[chosen]

    return next_epoch


def steps_per_epoch(data: Dataset) -> int:
    """Whole batches that the training images make."""
    return len(data.x_train) // model.BATCH


def load(session: popsr.Session, params: list[popsr.Variable], weights: list[Floats]) -> None:
    """Writes the weights, rounded to the variables' dtype."""
    session.write_variables_data(
        {p: w.astype(p.dtype.as_numpy()) for p, w in zip(params, weights, strict=True)}
    )


class Evaluator(AbstractContextManager["Evaluator"]):
    """Scores weights on the test images. Holds one session for all of them."""

    def __init__(self, data: Dataset) -> None:
        self.labels = data.y_test
        self.program = model.build_evaluation(data.features, len(data.x_test))
        self.session = popsr.Session(self.program.ir)
        self.inputs = {self.program.images: data.x_test}

    def __enter__(self) -> "Evaluator":
        self.session.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.session.__exit__(kind, error, trace)

    def score(self, weights: list[Floats]) -> tuple[float, float]:
        """Mean loss, and accuracy in percent."""
        load(self.session, self.program.params, weights)
        logits = self.session.run(self.inputs)[self.program.logits].astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        loss = -log_p[np.arange(len(self.labels)), self.labels].mean()
        return float(loss), 100 * float((logits.argmax(axis=1) == self.labels).mean())


def train(
    program: model.Training,
    data: Dataset,
    key: int,
    epochs: int,
    evaluator: Evaluator,
    tick: Callable[[], object],
) -> Curve:
    """Trains from the key's weights in the key's order of images, with the key as seed of the rounding."""
    curve = Curve()
    next_epoch = epochs_of(data, key)
    with popsr.Session(program.ir, seed=key) as session:
        load(session, program.params, model.initial_weights(data.features, key))
        for _ in range(epochs):
            x, y = next_epoch()
            start = time.perf_counter()
            losses = session.run({program.images: x, program.labels: y})[program.losses]
            curve.seconds += time.perf_counter() - start
            curve.images += y.size
            curve.train_loss.append(float(losses.mean()))
            values = session.get_tensors_data(program.params)
            test_loss, accuracy = evaluator.score([values[p].astype(np.float32) for p in program.params])
            curve.test_loss.append(test_loss)
            curve.test_accuracy.append(accuracy)
            tick()
    return curve


def check_replicas(data: Dataset, recipe: model.Recipe, learning_rate: float, key: int) -> str:
    """One epoch with every replica stored by itself and every claim of the analysis compared; the verdict."""
    program = model.build_training(data.features, recipe, learning_rate, steps_per_epoch(data))
    x, y = epochs_of(data, key)()

    def weights(check: bool) -> list[bytes]:
        with popsr.Session(program.ir, seed=key, check=check) as session:
            load(session, program.params, model.initial_weights(data.features, key))
            session.run({program.images: x, program.labels: y})
            values = session.get_tensors_data(program.params)
        return [values[p].tobytes() for p in program.params]

    try:
        same = weights(check=True) == weights(check=False)
    except popsr.errors.ReplicaError as error:
        return f"FAILED: {error}"
    if not same:
        return "FAILED: weights differ from the run that stores equal values once"
    return f"passed: every value of {program.steps} steps with {model.REPLICAS} replicas is as proved, bit by bit"
