"""A step of AdamW for bf16 weights by their number: popsr's beside those of torch, torchao and optimi, on one thread.

popsr's fp32 moments move 22 bytes a weight through memory, bf16 moments 14.
"""

import pytest

import popsr
from bench.record import number, ratios, times
from bench.sides.compare import cpu_by_turns

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("default")
SIZES = [10_000, 100_000, 1_000_000, 4_000_000]
ROUNDS = 25
TABLE = "A step of AdamW on one tensor of weights, processor time"


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = popsr.num_threads(), torch.get_num_threads()
    popsr.set_num_threads(1)
    torch.set_num_threads(1)
    yield
    popsr.set_num_threads(before[0])
    torch.set_num_threads(before[1])


@pytest.mark.parametrize("n", SIZES)
def test_step(record, n):
    from bench.sides.adamws import TIMED

    def step_of(variant):
        weight = torch.nn.Parameter(torch.randn(n).to(variant.dtype))
        weight.grad = torch.randn(n).to(variant.dtype)
        return variant.make([weight], 1e-3, 0).step

    sides = {side: step_of(variant) for side, variant in TIMED.items() if variant.is_here()}
    taken = cpu_by_turns(sides, ROUNDS, calls=max(1, 200_000 // n))
    own = next(iter(taken.values()))
    for side, each in taken.items():
        nanoseconds = {"ns a weight": number(each.best / n * 1e9)}
        record(TABLE, f"{n:,} weights", side, **times(each), **nanoseconds, **ratios(each, own))
