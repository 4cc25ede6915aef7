"""Data-parallel training beside PyTorch eager, with many replicas, and the time to build it."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import popsr
from bench.programs import basic
from bench.record import at_most, duration, mebibytes, number
from bench.record import times as cells_of
from bench.sides.compare import by_turns, record_rates

pytestmark = pytest.mark.filterwarnings("default")
ROOT = Path(__file__).parents[2]
THREADS = 2

RATES = "Samples a second: 784-512-512-512-10 with gelu, SGD, float32, two threads"
MANY = "R = 256 against R = 1"


class Popsr:
    """A session that trains; calling it makes one run."""

    def __init__(self, replicas: int, micro_batch: int, accumulation: int, steps: int) -> None:
        self.program = basic.training(replicas, micro_batch, accumulation, steps)
        x, y = basic.batches(replicas, micro_batch, accumulation, steps)
        self.inputs = {self.program.images: x, self.program.labels: y}
        self.session = popsr.Session(self.program.ir, num_threads=THREADS)
        self.session.__enter__()

    def __call__(self) -> np.ndarray:
        return self.session.run(self.inputs)[self.program.losses]

    def reset(self) -> None:
        self.session.write_variables_data(dict(zip(self.program.params, basic.weights(), strict=True)))


class Torch:
    """The same training in PyTorch eager: a loop over the micro batches, or all samples of a step at once."""

    def __init__(
        self, replicas: int, micro_batch: int, accumulation: int, steps: int, *, whole: bool
    ) -> None:
        torch = pytest.importorskip("torch")
        torch.set_num_threads(THREADS)
        x, y = basic.batches(replicas, micro_batch, accumulation, steps)
        parts = 1 if whole else replicas * accumulation
        each = replicas * accumulation * micro_batch // parts
        self.x = torch.from_numpy(x).reshape(steps, parts, each, basic.SIZES[0])
        self.y = torch.from_numpy(y).long().reshape(steps, parts, each)
        layers = []
        for n, m in zip(basic.SIZES, basic.SIZES[1:], strict=False):
            layers += [torch.nn.Linear(n, m), torch.nn.GELU(approximate="tanh")]
        self.model = torch.nn.Sequential(*layers[:-1])
        self.params = [p for layer in layers[::2] for p in (layer.weight, layer.bias)]
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=basic.RATE)
        self.loss = torch.nn.functional.cross_entropy
        self.reset()

    def reset(self) -> None:
        for p, w in zip(self.params, basic.weights(), strict=True):
            p.data = p.new_tensor(w.T)

    def __call__(self) -> list[float]:
        losses = []
        for xs, ys in zip(self.x, self.y, strict=True):
            self.optimiser.zero_grad(set_to_none=True)
            for x, y in zip(xs, ys, strict=True):
                loss = self.loss(self.model(x), y)
                (loss / len(xs)).backward()
                losses.append(loss.detach())
            self.optimiser.step()
        return [float(loss) for loss in losses]


@pytest.mark.parametrize("replicas", [2, 8])
def test_training_beside_pytorch(benchmark, record, replicas):
    shape = (replicas, 8, 4, 16 // replicas)
    sides = {
        "popsr": Popsr(*shape),
        "PyTorch, micro batches": Torch(*shape, whole=False),
        "PyTorch, one batch": Torch(*shape, whole=True),
    }
    means = {name: float(np.mean(side())) for name, side in sides.items()}
    np.testing.assert_allclose([*means.values()], means["popsr"], rtol=1e-3)  # all train the same network
    times = by_turns(benchmark, sides)
    samples = sides["popsr"].program.samples
    benchmark.extra_info |= {name: samples / t.median for name, t in times.items()}
    case = f"R = {replicas}, micro batch 8, accumulation 4"
    record_rates(
        record, RATES, case, samples, times, {"PyTorch, micro batches": 1.0} if replicas == 2 else {}
    )


def test_many_replicas_cost_little_time(benchmark, record):
    sides = {"R = 256": Popsr(256, 1, 1, 2), "R = 1": Popsr(1, 1, 1, 32)}
    times = by_turns(benchmark, sides)
    samples = {name: side.program.samples for name, side in sides.items()}
    best, median = (
        getattr(times["R = 256"], what)
        / samples["R = 256"]
        / (getattr(times["R = 1"], what) / samples["R = 1"])
        for what in ("best", "median")
    )
    benchmark.extra_info |= {"time per sample, of R = 1": median}
    cells = {"best": f"{best:.3f}", "median": f"{median:.3f}"} | at_most(0.2, best)
    record(MANY, "time of a sample, micro batch 1, no accumulation", **cells)


def test_many_replicas_cost_little_memory(record):
    measured = {}
    for replicas in (1, 256):
        command = [sys.executable, "-m", "bench.sides.peak_memory", str(replicas)]
        out = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
        measured[replicas] = json.loads(out)
    for what, one in measured[1].items():
        many = measured[256][what]
        goal = at_most(1.5, many / one) if what in ("peak less activations", "variables") else {}
        ratio = {"best": number(many / one)} if one else {}
        record(
            MANY, f"memory: {what}", **{"R = 256": mebibytes(many), "R = 1": mebibytes(one)}, **ratio, **goal
        )


def test_build_and_compile(benchmark, record):
    def build() -> None:
        with popsr.Session(basic.training(2, 8, 4, 8).ir):
            pass

    build()
    benchmark.pedantic(build, rounds=9, iterations=1)
    stats = benchmark.stats.stats
    record(
        "Building and compiling the program", "R = 2", **cells_of(stats), **at_most(0.3, stats.min, duration)
    )


if __name__ == "__main__":
    start = time.perf_counter()
    run = Popsr(2, 8, 4, 8)
    print(f"built in {time.perf_counter() - start:.3f} s; losses {run()[:3]}")
