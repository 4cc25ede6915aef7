"""Training steps and single pieces beside PyTorch, eager and by torch.compile, and JAX.

Each side has a process of its own and two threads, and what all sides compute is compared before. A ratio is the other
side's time over popsr's: more than 1 means popsr is faster. Memory is what a side adds over what PyTorch's eager side
adds.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from importlib.util import find_spec

import numpy as np
import pytest

from bench.programs import mnist
from bench.record import Recorder, at_least, at_most, mebibytes, number, ratios
from bench.record import times as cells_of
from bench.sides.compare import Times
from bench.sides.compared_models import STEPS, Adam, CrossEntropy, Gpt, LayerNorm, ResNet
from bench.sides.processes import Side, times_of

pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("default")
GPT, RESNET = Gpt(), ResNet()
TURNS = 9
MEASURED = 3  # turns before the peak of memory is read
NEAR = {"float32": 1e-3, "bfloat16": 1e-2}  # of the greatest number

Spec = tuple[str, dict[str, object]]  # a function of a module, and its arguments


def _start(stack: ExitStack, specs: Mapping[str, Spec], near: float) -> dict[str, Side]:
    """Sides that compute what the first one computes."""
    sides: dict[str, Side] = {}
    for name, (function, arguments) in specs.items():
        side = sides[name] = stack.enter_context(Side(function, **arguments))
        (first, *_), values = sides.values(), side.results["values"]
        for own, expected in zip(values, first.results["values"], strict=True):
            assert np.isfinite(own).all(), name
            np.testing.assert_allclose(own, expected, 0, near * np.abs(expected).max(), err_msg=name)
    return sides


def _compare(
    benchmark,
    record: Recorder,
    what: str,
    specs: Mapping[str, Spec],
    goals: Mapping[str, float],
    near: float,
    calls: int,
) -> None:
    """A row for each side but the first; ``calls``: steps or calls of a turn."""
    with ExitStack() as stack:
        sides = _start(stack, specs, near)
        times = times_of(benchmark, sides, TURNS)
    own = times["popsr"]
    for name, t in times.items():
        goal = at_least(goals[name], t.best / own.best) if name in goals else {}
        cells = cells_of(Times(t.best / calls, t.median / calls)) | ({} if t is own else ratios(t, own))
        record("A step or a call, two threads", what, name, **cells, **goal)
    benchmark.extra_info |= {name: t.best / own.best for name, t in times.items()}


# A GPT-like model


def _gpt(replicas: int, dtype: str, attention: str, samples: int = GPT.samples) -> Spec:
    return "bench.programs.gpt_step:side", asdict(GPT) | {
        "samples": samples,
        "replicas": replicas,
        "dtype": dtype,
        "attention": attention,
    }


def _torch_gpt(dtype: str, attention: str, compiled: bool) -> Spec:
    arguments = {"dtype": dtype, "attention": attention, "compiled": compiled}
    return "bench.sides.compiled_models:gpt", asdict(GPT) | arguments


@pytest.mark.parametrize("attention", ["op", "parts"])
@pytest.mark.parametrize("dtype", NEAR)
def test_gpt(benchmark, record, dtype, attention):
    specs = {
        "popsr": _gpt(2, dtype, attention),
        "torch.compile": _torch_gpt(dtype, attention, True),
        "PyTorch, eager": _torch_gpt(dtype, attention, False),
    }
    goals = {"torch.compile": 1.4 if dtype == "float32" else 1.0}
    if find_spec("jax"):
        specs["JAX, jit"] = (
            "bench.sides.compiled_jax:gpt",
            asdict(GPT) | {"dtype": dtype, "attention": attention},
        )
    if dtype != "float32":
        specs["popsr, float32"] = _gpt(2, "float32", attention)
        goals["popsr, float32"] = 1.0
    what = f"GPT-like step, R = 2, {dtype}, attention as {'an op' if attention == 'op' else 'its parts'}"
    _compare(benchmark, record, what, specs, goals, NEAR[dtype], STEPS)


def _grown(specs: Mapping[str, Spec], near: float = NEAR["float32"]) -> dict[str, tuple[Side, int]]:
    """Each side after some turns, and what its resident memory grew by at most since before its program was built."""
    with ExitStack() as stack:
        sides = _start(stack, specs, near)
        for side in sides.values():
            for _ in range(MEASURED):
                side()
        return {name: (side, side.peak_memory - side.results["before"]) for name, side in sides.items()}


@pytest.mark.parametrize("attention", ["op", "parts"])
@pytest.mark.parametrize("dtype", NEAR)
def test_memory(record, dtype, attention):
    eager = "PyTorch, eager, 8 samples"
    specs = {
        "popsr, R = 2": _gpt(2, dtype, attention),
        "popsr, R = 1, 8 samples": _gpt(1, dtype, attention),
        eager: _torch_gpt(dtype, attention, False),
        "torch.compile, 8 samples": _torch_gpt(dtype, attention, True),
    }
    measured = _grown(specs, NEAR[dtype])
    what = f"{dtype}, attention as {'an op' if attention == 'op' else 'its parts'}"
    for name, (side, grown) in measured.items():
        planned, against = side.results.get("memory"), grown / measured[eager][1]
        cells = {"memory": mebibytes(grown), "against PyTorch, eager": number(against)}
        if planned:
            cells |= {"planned": mebibytes(sum(planned.values()))} | at_most(1.0, against)
        record("Resident memory that the GPT-like step adds", what, name, **cells)


@pytest.mark.parametrize("attention", ["op", "parts"])
def test_memory_of_replicas(record, attention):
    """Micro batch 1."""
    counts: dict[str, list[float]] = {}
    for replicas in (8, 1):
        ((side, grown),) = _grown({"popsr": _gpt(replicas, "float32", attention, replicas)}).values()
        planned = side.results["memory"]
        rest = grown - planned["activations"] - planned["streams"]
        kept = planned["variables"] + planned["constants"]
        for name, count in {
            "peak": grown,
            "activations as planned": planned["activations"],
            "peak less activations and streams": rest,
            "variables and constants": kept,
        }.items():
            counts.setdefault(name, []).append(count)
    for name, (many, one) in counts.items():
        cells = {"R = 8": mebibytes(many), "R = 1": mebibytes(one), "ratio": number(many / one)}
        goal = at_most(1.1, many / one) if "less" in name or "variables" in name else {}
        record(
            "Memory of R = 8 against R = 1, micro batch 1",
            f"{name}, attention as {attention}",
            **cells,
            **goal,
        )


# ResNet-18


def test_resnet(benchmark, record):
    specs = {
        "popsr": ("bench.programs.resnet_program:side", asdict(RESNET)),
        "PyTorch, eager, channels last": (
            "bench.sides.compiled_models:resnet",
            asdict(RESNET) | {"compiled": False},
        ),
        "torch.compile, channels last": (
            "bench.sides.compiled_models:resnet",
            asdict(RESNET) | {"compiled": True},
        ),
    }
    goals = {"PyTorch, eager, channels last": 1.0, "torch.compile, channels last": 0.9}
    what = f"ResNet-18 step, {RESNET.samples} images of {RESNET.extent}x{RESNET.extent}, group norm"
    _compare(benchmark, record, what, specs, goals, NEAR["float32"], STEPS)


# Single pieces


def _piece(
    benchmark, record, what: str, name: str, arguments: dict, calls: int, own: dict | None = None
) -> None:
    """PyTorch's function beside popsr's, which takes the arguments in ``own``, too."""
    arguments = arguments | {"calls": calls}
    specs = {
        "popsr": (f"bench.sides.popsr_sides:{name}", arguments | (own or {})),
        "PyTorch": (f"bench.sides.compiled_models:{name}", arguments),
    }
    _compare(benchmark, record, what, specs, {"PyTorch": 1.0}, NEAR["float32"], calls)


def test_adam(benchmark, record):
    model = Adam(mnist.RATE, mnist.BETA1, mnist.BETA2, mnist.EPSILON)
    _piece(benchmark, record, "Adam, 2^22 parameters, fused in PyTorch", "adam", asdict(model), 10)


@pytest.mark.parametrize(("rows", "classes"), [(4096, 1000), (512, 32000)])
@pytest.mark.parametrize("form", ["autodiff", "op"])
def test_cross_entropy(benchmark, record, rows, classes, form):
    what = f"softmax cross entropy of {rows}x{classes}, forward and backward, by {form}"
    _piece(benchmark, record, what, "cross_entropy", asdict(CrossEntropy(rows, classes)), 5, {"form": form})


def test_layer_norm(benchmark, record):
    model = LayerNorm()
    what = f"layer norm of {model.rows}x{model.width}, forward and backward"
    _piece(benchmark, record, what, "layer_norm", asdict(model), 10)
