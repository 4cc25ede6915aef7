"""The program of mnist.py beside PyTorch eager and JAX, its memory, and the time to build it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import popsr
from bench.programs import basic, mnist
from bench.record import at_most, duration, mebibytes, number
from bench.record import times as cells_of
from bench.sides.compare import by_turns, record_rates

pytestmark = pytest.mark.filterwarnings("default")
ROOT = Path(__file__).parents[2]
THREADS = 2
SAMPLES = 1024  # of a turn, at least

RATES = "Samples a second: the tutorial's program with Adam, two threads"
MEMORY = "Memory of 1,024 replicas against one, micro batch 1"


def steps_of(replicas: int, micro_batch: int, accumulation: int) -> int:
    return max(1, SAMPLES // (replicas * micro_batch * accumulation))


class Popsr:
    """Calling it makes some steps and returns their losses: step, micro batch, replica."""

    def __init__(self, replicas: int, micro_batch: int, accumulation: int, steps: int) -> None:
        self.program = mnist.training(replicas, micro_batch, accumulation)
        self.shape = (steps, accumulation, replicas)
        leading = tuple(n for n in (accumulation, replicas) if n > 1)  # as in PopXL: without axes of extent 1
        self.batches = [
            {
                stream: each.reshape(leading + each.shape[2:])
                for stream, each in zip(self.program.inputs, pair, strict=True)
            }
            for pair in zip(*mnist.batches(replicas, micro_batch, accumulation, steps), strict=True)
        ]
        self.session = popsr.Session(self.program.ir, num_threads=THREADS)
        self.session.__enter__()

    def __call__(self) -> np.ndarray:
        return np.reshape(
            [self.session.run(batch)[self.program.losses] for batch in self.batches], self.shape
        )


class Torch:
    """Eager, with fused Adam: a loop over the micro batches, or all samples of a step at once."""

    def __init__(
        self, replicas: int, micro_batch: int, accumulation: int, steps: int, *, whole: bool = False
    ) -> None:
        torch = pytest.importorskip("torch")
        torch.set_num_threads(THREADS)
        self.shape = (steps, 1, 1) if whole else (steps, accumulation, replicas)
        x, y = mnist.batches(replicas, micro_batch, accumulation, steps)
        parts = 1 if whole else accumulation * replicas
        self.x = torch.from_numpy(x).reshape(steps, parts, -1, basic.SIZES[0])
        self.y = torch.from_numpy(y).long().reshape(steps, parts, -1)
        layers = []
        for w, b in zip(basic.weights()[::2], basic.weights()[1::2], strict=True):
            linear = torch.nn.Linear(*w.shape)
            linear.weight.data, linear.bias.data = torch.from_numpy(w.T.copy()), torch.from_numpy(b)
            layers += [linear, torch.nn.GELU(approximate="tanh")]
        self.model = torch.nn.Sequential(*layers[:-1])
        self.optimiser = torch.optim.Adam(
            self.model.parameters(), mnist.RATE, (mnist.BETA1, mnist.BETA2), mnist.EPSILON, fused=True
        )
        self.loss = torch.nn.functional.cross_entropy

    def __call__(self) -> np.ndarray:
        losses = []
        for xs, ys in zip(self.x, self.y, strict=True):
            self.optimiser.zero_grad(set_to_none=True)
            for x, y in zip(xs, ys, strict=True):
                loss = self.loss(self.model(x), y)
                (loss / len(xs)).backward()
                losses.append(loss.detach())
            self.optimiser.step()
        return np.reshape([float(loss) for loss in losses], self.shape)


class Jax:
    """A process of its own, with as many devices as replicas; it runs while this one waits."""

    def __init__(self, *shape: int) -> None:
        pytest.importorskip("jax")
        command = [sys.executable, "-m", "bench.sides.mnist_jax", *map(str, shape)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def __call__(self) -> np.ndarray:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return np.array(json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        self.process.communicate()


def compare(
    benchmark, record, case: str, shape: tuple[int, ...], sides: dict, goals: dict[str, float]
) -> None:
    """All sides train the same network: losses of each micro batch, and of each step."""
    first = {name: side() for name, side in sides.items()}
    for name, losses in first.items():
        reference = first["popsr"]
        if losses.shape != reference.shape:
            reference = reference.mean(axis=(1, 2), keepdims=True)
        np.testing.assert_allclose(losses, reference, rtol=1e-3, err_msg=name)
    times = by_turns(benchmark, sides, rest=0.02)
    samples = int(np.prod(shape))
    benchmark.extra_info |= {name: samples / t.median for name, t in times.items()}
    record_rates(record, RATES, case, samples, times, goals)


@pytest.mark.parametrize("replicas", [2, 8])
def test_accumulated_training(benchmark, record, replicas):
    shape = (replicas, 8, 4, steps_of(replicas, 8, 4))
    jax = Jax(*shape)
    sides = {
        "popsr": Popsr(*shape),
        "PyTorch, micro batches": Torch(*shape),
        "PyTorch, one batch": Torch(*shape, whole=True),
        "JAX, shard_map": jax,
    }
    goals = {
        2: {"PyTorch, micro batches": 1.2, "JAX, shard_map": 1.0},
        8: {"PyTorch, micro batches": 1.5, "JAX, shard_map": 2.0},
    }[replicas]
    compare(benchmark, record, f"R = {replicas}, micro batch 8, accumulation 4", shape, sides, goals)
    jax.close()


def test_many_replicas(benchmark, record):
    shape = (256, 1, 1, steps_of(256, 1, 1))
    sides = {
        "popsr": Popsr(*shape),
        "PyTorch, micro batches": Torch(*shape),
        "PyTorch, one batch": Torch(*shape, whole=True),
    }
    goals = {"PyTorch, micro batches": 5.0}
    compare(benchmark, record, "R = 256, micro batch 1, no accumulation", shape, sides, goals)


@pytest.mark.parametrize("accumulation", [1, 4])
def test_many_replicas_cost_little_memory(record, accumulation):
    measured = {}
    for replicas in (1, 1024):
        command = [sys.executable, "-m", "bench.sides.peak_memory", str(replicas)]
        out = subprocess.run(
            [*command, str(accumulation)], check=True, capture_output=True, text=True, cwd=ROOT
        )
        measured[replicas] = json.loads(out.stdout)
    for what in ("peak less activations", "variables"):
        many, one = measured[1024][what], measured[1][what]
        cells = {"R = 1,024": mebibytes(many), "R = 1": mebibytes(one), "ratio": number(many / one)}
        record(MEMORY, f"{what}, accumulation {accumulation}", **cells, **at_most(1.5, many / one))


def test_build_and_compile(benchmark, record):
    def build() -> None:
        with popsr.Session(mnist.training(2, 8, 4).ir):
            pass

    build()
    benchmark.pedantic(build, rounds=9, iterations=1)
    stats = benchmark.stats.stats
    record(
        "Building and compiling the program", "R = 2", **cells_of(stats), **at_most(0.3, stats.min, duration)
    )
