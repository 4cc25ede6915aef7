"""Stochastic rounding beside NumPy's additions, torch's operations and copies of the same bytes.

Ratios of medians in one run, sides by turns, one thread unless a row says otherwise.
"""

import statistics
import timeit

import ml_dtypes
import numpy as np
import pytest

import popsr
from bench.record import at_least, at_most, number
from bench.sides.compare import by_turns
from popsr import sr

pytestmark = pytest.mark.filterwarnings("default")
KEY = sr.Key(1)
BF16 = ml_dtypes.bfloat16
SIZES = [1 << 24, 1 << 26]
ROUNDS = 9
TABLE = "Time over the other side's, or speed against it"


@pytest.fixture(autouse=True, scope="module")
def results():
    """One thread."""
    threads = popsr.num_threads()
    popsr.set_num_threads(1)
    yield
    popsr.set_num_threads(threads)


def report(record, what, n, times, goal=None, aim=None, *, inverse=False):
    """The first side's time over the second's (or the other way round), best and median; ns per element."""
    mine, theirs = times.values()
    best, median = mine.best / theirs.best, mine.median / theirs.median
    if inverse:
        best, median = 1 / best, 1 / median
    ns = ", ".join(f"{name} {t.median / n * 1e9:.3g}" for name, t in times.items())
    cells = {"ratio of bests": number(best), "of medians": number(median), "ns an element": ns}
    reach = {} if goal is None else (at_least if inverse else at_most)(goal, best, aim=aim)
    record(TABLE, what, f"n = {f'2^{n.bit_length() - 1}' if n & (n - 1) == 0 else n}", **cells, **reach)


def random(name, n, seed=0):
    """Numbers around 1, repeated: the speed does not depend on them."""
    some = np.random.default_rng(seed).standard_normal(1 << 16)
    return np.resize(some.astype(name), n)


# Beside NumPy


@pytest.mark.parametrize("n", SIZES, ids=lambda n: f"2^{n.bit_length() - 1}")
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_add_beside_numpy(benchmark, record, name, n):
    x, y, out = random(name, n), random(name, n, 1), np.empty(n, name)
    other = np.empty(n, name)
    sides = {"popsr": lambda: sr.add(x, y, key=KEY, out=out), "numpy": lambda: np.add(x, y, out=other)}
    report(record, f"{name} add(out=) / numpy.add(out=)", n, by_turns(benchmark, sides, ROUNDS), 1.25, 1.0)


@pytest.mark.parametrize("n", SIZES, ids=lambda n: f"2^{n.bit_length() - 1}")
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_narrow_add_beside_numpy(benchmark, record, name, n):
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    x, y, out = random(dtype, n), random(dtype, n, 1), np.empty(n, dtype)
    a, b, other = x.view(np.uint16), y.view(np.uint16), np.empty(n, np.uint16)
    sides = {"popsr": lambda: sr.add(x, y, key=KEY, out=out), "numpy uint16": lambda: np.add(a, b, out=other)}
    report(
        record,
        f"{name} add(out=) / numpy.add(out=) on uint16",
        n,
        by_turns(benchmark, sides, ROUNDS),
        2.0,
        1.5,
    )


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16"])
def test_two_threads(benchmark, record, name):
    n = SIZES[1]
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    x, y, out = random(dtype, n), random(dtype, n, 1), np.empty(n, dtype)
    sides = {
        f"{threads} threads": lambda threads=threads: sr.add(x, y, key=KEY, out=out, num_threads=threads)
        for threads in (2, 1)
    }
    report(
        record,
        f"{name} add(out=), two threads against one",
        n,
        by_turns(benchmark, sides, ROUNDS),
        1.3,
        inverse=True,
    )


THREADED = {
    "lerp_ bf16, fp32": lambda w, u, threads: sr.lerp_(w, u, 0.1, key=KEY, num_threads=threads),
    "fma_ bf16, fp32, fp32": lambda w, u, threads: sr.fma_(w, u, u, key=KEY, num_threads=threads),
    "addcdiv_ bf16, fp32, fp32": lambda w, u, threads: sr.addcdiv_(
        w, u, u, -0.1, key=KEY, num_threads=threads
    ),
}


@pytest.mark.parametrize("what", THREADED)
def test_two_threads_of_operations(benchmark, record, what):
    """One thread does not fill the memory's bandwidth with these."""
    n = SIZES[0]
    w, u = np.ones(n, BF16), random(np.float32, n)
    sides = {
        f"{threads} threads": lambda threads=threads: THREADED[what](w, u, threads) for threads in (2, 1)
    }
    times = by_turns(benchmark, sides, ROUNDS)
    report(record, f"{what}, two threads against one", n, times, 1.8, inverse=True)


# The founding interface beside its formulation in torch


def torch_add_biased(torch, x, y):
    """TwoSum, the next value on the side of the error, and a uniform number; one torch operation at a time."""
    result = x + y
    part = result - x
    error = (x - (result - part)) + (y - part)
    side = torch.where(error > 0, torch.inf, -torch.inf).to(x.dtype)
    other = torch.nextafter(result, side)
    p = error / (other - result)
    return torch.where(torch.rand_like(result) < p, other, result)


@pytest.mark.parametrize(
    ("name", "goal", "aim"), [("bfloat16", 40, 80), ("float32", 30, 45), ("float64", 25, 35)]
)
def test_add_biased_beside_torch(benchmark, record, name, goal, aim):
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    n = SIZES[0]
    x, y = (torch.randn(1 << 16).repeat(n >> 16).to(getattr(torch, name)) for _ in range(2))
    out, adder = torch.empty_like(x), popsr.StochasticAdder(x.dtype, seed=1)
    sides = {"popsr": lambda: adder.add_biased(x, y, out=out), "torch": lambda: torch_add_biased(torch, x, y)}
    times = by_turns(benchmark, sides, ROUNDS)
    report(record, f"{name} add_biased(out=), against torch", n, times, goal, aim, inverse=True)


@pytest.mark.parametrize("rng", ["value", "counter"])
@pytest.mark.parametrize("method", ["add", "add_biased"])
@pytest.mark.parametrize("name", ["bfloat16", "float32", "float64"])
def test_adder_beside_numpy(benchmark, record, name, method, rng):
    n = SIZES[0]
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    x, y, out = random(dtype, n), random(dtype, n, 1), np.empty(n, dtype)
    a, b, other = (v.view(np.uint16) if name == "bfloat16" else v for v in (x, y, np.empty(n, dtype)))
    run = getattr(popsr.StochasticAdder(name, seed=1, rng=rng), method)
    sides = {"popsr": lambda: run(x, y, out=out), "numpy": lambda: np.add(a, b, out=other)}
    times = by_turns(benchmark, sides, ROUNDS)
    report(record, f"{name} StochasticAdder.{method}(out=), {rng} / numpy.add(out=)", n, times)


# Optimiser and operations beside copies


def test_adamw_beside_copies(benchmark, record):
    """Read w, g, m, v and write w, m, v: 2 + 2 + 4 + 4 + 2 + 4 + 4 bytes, against copies that move as many."""
    n = SIZES[0]
    w, g = random(BF16, n), random(BF16, n, 1)
    m, v = np.zeros(n, np.float32), np.zeros(n, np.float32)
    nbytes = 2 * (w.nbytes + m.nbytes + v.nbytes) + g.nbytes
    source, target = np.ones(nbytes // 2, np.uint8), np.empty(nbytes // 2, np.uint8)
    options = {"key": KEY, "lr": 1e-3, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.01}
    sides = {
        "popsr": lambda: sr.adamw_(w, g, m, v, step=1, **options),
        "numpy.copyto": lambda: np.copyto(target, source),
    }
    report(
        record,
        "adamw_ bf16 w and g, fp32 m and v / numpy.copyto of its bytes",
        n,
        by_turns(benchmark, sides, ROUNDS),
        1.5,
        1.1,
    )


OPERATIONS = {
    "add_ bf16 += fp32": lambda w, u: sr.add_(w, u, key=KEY),
    "add_ bf16 += 0.3 fp32": lambda w, u: sr.add_(w, u, key=KEY, alpha=0.3),
    "lerp_ bf16, fp32": lambda w, u: sr.lerp_(w, u, 0.1, key=KEY),
    "mul_ bf16, fp32": lambda w, u: sr.mul_(w, u, key=KEY),
    "fma_ bf16, fp32, fp32": lambda w, u: sr.fma_(w, u, u, key=KEY),
    "addcmul_ bf16, fp32, fp32": lambda w, u: sr.addcmul_(w, u, u, -0.1, key=KEY),
    "addcdiv_ bf16, fp32, fp32": lambda w, u: sr.addcdiv_(w, u, u, -0.1, key=KEY),
    "add_ bf16 += fp32, equal chances": lambda w, u: sr.add_(w, u, key=KEY, mode="sr_equal"),
    "cast fp32 to bf16": lambda w, u: sr.cast(u, BF16, key=KEY, out=w),
    "cast fp32 to fp16": lambda w, u: sr.cast(u, np.float16, key=KEY, out=w.view(np.float16)),
    "cast fp32 to e4m3fn": lambda w, u: sr.cast(u, "e4m3fn", key=KEY, out=w.view(np.uint8)[: len(u)]),
}


@pytest.mark.parametrize("what", OPERATIONS)
def test_operations_beside_copies(benchmark, record, what):
    n = 1 << 22
    w, u = np.ones(n, BF16), random(np.float32, n)
    target = np.empty(n, np.float32)
    sides = {"popsr": lambda: OPERATIONS[what](w, u), "numpy.copyto fp32": lambda: np.copyto(target, u)}
    report(record, what, n, by_turns(benchmark, sides, ROUNDS), 3.0)


def test_noise(benchmark, record):
    """A whole number, 4 words, for each element."""
    n = 1 << 22
    source, target = np.ones(n, np.uint64), np.empty(n, np.uint64)
    sides = {
        "popsr": lambda: sr.uniform_bits(KEY, n),
        "numpy.copyto uint64": lambda: np.copyto(target, source),
    }
    report(record, "uniform_bits, new array", n, by_turns(benchmark, sides, ROUNDS))


# Calls


def report_call(record, what, benchmark, call, calls=20_000, rounds=15):
    """Microseconds of one call."""
    benchmark.pedantic(call, rounds=51, iterations=200, warmup_rounds=3)
    taken = [t / calls * 1e6 for t in timeit.repeat(call, number=calls, repeat=rounds)]
    best, median = min(taken), statistics.median(taken)
    goal = at_most(1.5, best, aim=0.7) if "numpy" not in what else {}
    record("Microseconds of a call, n = 8", what, best=number(best), median=number(median), **goal)


CALLS = {
    "add(x, y, key=key)": lambda x, y, out: lambda: sr.add(x, y, key=KEY),
    "add(x, y, key=key, out=out)": lambda x, y, out: lambda: sr.add(x, y, key=KEY, out=out),
    "add_(x, y, key=key)": lambda x, y, out: lambda: sr.add_(x, y, key=KEY),
    "numpy.add(x, y)": lambda x, y, out: lambda: np.add(x, y),
}


@pytest.mark.parametrize("what", CALLS)
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_call_overhead(benchmark, record, name, what):
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    call = CALLS[what](np.ones(8, dtype), np.ones(8, dtype), np.empty(8, dtype))
    report_call(record, f"{what}, {name}", benchmark, call)


def test_call_overhead_of_an_adder(benchmark, record):
    x, adder = np.ones(8, np.float32), popsr.StochasticAdder("float32", seed=1)
    report_call(
        record, "StochasticAdder.add_biased(x, y), float32", benchmark, lambda: adder.add_biased(x, x)
    )


# Training: compiled calls beside eager ones, optimisers beside torch's


@pytest.mark.parametrize("n", [8, 1 << 20])
def test_jit_beside_eager(benchmark, record, n):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    x, u = jnp.ones(n, jnp.bfloat16), jnp.full(n, 1e-3, jnp.float32)
    compiled = jax.jit(lambda x, u, step: sr.jax.add(x, u, key=sr.jax.Key(KEY).at(step)))
    sides = {
        "jit": lambda: compiled(x, u, 3).block_until_ready(),
        "eager": lambda: sr.add(x, u, key=KEY.at(3)),
    }
    report(record, "jax, add bf16 + fp32, jit / eager", n, by_turns(benchmark, sides, ROUNDS))


@pytest.mark.parametrize("n", [8, 1 << 20])
def test_torch_operator_beside_eager(benchmark, record, n):
    torch = pytest.importorskip("torch")
    x, u = torch.ones(n, dtype=torch.bfloat16), torch.full((n,), 1e-3)
    key = sr.torch.key_tensor(KEY)
    sides = {"operator": lambda: sr.torch.add(x, u, key=key), "eager": lambda: sr.add(x, u, key=KEY)}
    report(record, "torch, add bf16 + fp32, operator / eager", n, by_turns(benchmark, sides, ROUNDS))


OPTIMISERS = {
    "SGD": {"lr": 1e-3},
    "SGD momentum": {"lr": 1e-3, "momentum": 0.9},
    "AdamW": {"lr": 1e-3},
    "Adafactor": {"lr": 1e-3},
}


@pytest.mark.parametrize(("count", "size"), [(8, (512, 512)), (100, (32, 32))])
@pytest.mark.parametrize("against", ["float32", "bfloat16"])
@pytest.mark.parametrize("what", OPTIMISERS)
def test_optimiser_beside_torch(benchmark, record, what, against, count, size):
    """Weights of popsr are bf16."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(popsr.num_threads())

    def parameters(dtype):
        made = [torch.nn.Parameter(torch.randn(size).to(dtype)) for _ in range(count)]
        for p in made:
            p.grad = torch.randn(size).to(dtype)
        return made

    name = what.partition(" ")[0]
    ours = getattr(sr.torch, name)(parameters(torch.bfloat16), seed=1, **OPTIMISERS[what])
    theirs = getattr(torch.optim, name)(parameters(getattr(torch, against)), foreach=True, **OPTIMISERS[what])
    sides = {"popsr": ours.step, "torch foreach": theirs.step}
    n = count * size[0] * size[1]
    report(record, f"{what}, {count} tensors / torch {against}", n, by_turns(benchmark, sides, 15))
