"""Generators that a step gives to random ops: ranks draw the same numbers where their generators are in one state."""

from __future__ import annotations

import functools
import gc
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr.bridge.torch as bridge
from popsr.bridge.torch._tracing.generators import reachable
from popsr.errors import ReplicaError, UnsupportedError

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from tests_py.bridge.torch.ranks import run_ranks  # noqa: E402

WORLD = 4
ALL, NONE, PAIRS = "{0,1,2,3}", "{0}{1}{2}{3}", "{0,1}{2,3}"
X = torch.ones(8)
OF_MODULE = torch.Generator().manual_seed(4)


def made(seed: int = 1) -> Any:
    return torch.Generator().manual_seed(seed)


def made_of_rank() -> Any:
    return made(dist.get_rank())


class Nested:
    def __init__(self) -> None:
        self.generators = {"a": [torch.Generator().manual_seed(2)]}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("out", torch.zeros(8))
        self.register_buffer("narrow", torch.full((8,), 1.0, dtype=torch.bfloat16))
        self.first, self.second = made(), made()
        self.of_rank = made(100 + dist.get_rank())
        self.nested = Nested()


Body = Callable[[Any, Any], Any]

DRAWS: dict[str, Callable[[Any], Any]] = {
    "rand": lambda g: torch.rand(8, generator=g),
    "rand_like": lambda g: torch.rand_like(X, generator=g),
    "randn": lambda g: torch.randn(8, generator=g),
    "randint": lambda g: torch.randint(9, (8,), generator=g).float(),
    "randint between": lambda g: torch.randint(2, 9, (8,), generator=g).float(),
    "randperm": lambda g: torch.randperm(8, generator=g).float(),
    "normal_": lambda g: torch.zeros(8).normal_(generator=g),
    "uniform_": lambda g: torch.zeros(8).uniform_(1, 2, generator=g),
    "bernoulli_": lambda g: torch.empty(8).bernoulli_(0.5, generator=g),
    "bernoulli": lambda g: torch.bernoulli(torch.full((8,), 0.5), generator=g),
    "random_": lambda g: torch.empty(8).random_(100, generator=g),
    "random_ between": lambda g: torch.empty(8).random_(20, 100, generator=g),
    "exponential_": lambda g: torch.empty(8).exponential_(generator=g),
    "geometric_": lambda g: torch.empty(8).geometric_(0.1, generator=g),
    "cauchy_": lambda g: torch.empty(8).cauchy_(generator=g),
    "log_normal_": lambda g: torch.empty(8).log_normal_(generator=g),
    "normal": lambda g: torch.normal(1.0, 2.0, (8,), generator=g),
    "normal of tensors": lambda g: torch.normal(torch.zeros(8), torch.ones(8), generator=g),
    "init": lambda g: nn.init.kaiming_normal_(torch.empty(2, 4), generator=g).view(8),
}
try:
    DRAWS["rand_like"](torch.Generator())
except TypeError:  # of versions in which it takes no generator
    del DRAWS["rand_like"]


def _set_apart(model: Any, x: Any) -> Any:
    model.first.manual_seed(dist.get_rank())
    return torch.rand(8, generator=model.first)


def _set_on_one(model: Any, x: Any) -> Any:
    if dist.get_rank() == 3:
        OF_MODULE.manual_seed(0)
    return torch.rand(8, generator=OF_MODULE)


def _go_on_apart(model: Any, x: Any) -> Any:
    """Equal in the first step; in the second the first generator has drawn once or twice."""
    out = torch.rand(8, generator=model.first)
    torch.rand(8, generator=model.first if dist.get_rank() == 0 else model.second)
    return out


def _other_shapes_before(model: Any, x: Any) -> Any:
    torch.rand(4, generator=model.first)
    torch.rand(20, generator=model.second)
    return torch.rand(8, generator=model.first if dist.get_rank() == 0 else model.second)


def _again(model: Any, x: Any) -> Any:
    g = made(5)
    first = torch.rand(8, generator=g)
    return first - torch.rand(8, generator=g.manual_seed(5))


def _copied(model: Any, x: Any, of: str) -> Any:
    g = torch.Generator().set_state(getattr(model, of).get_state())
    return torch.rand(8, generator=g)


def _rounded(generator: Callable[[], Any]) -> Body:
    """A bfloat16 weight that is rounded stochastically by its bits."""

    def body(model: Any, x: Any) -> Any:
        bits = (model.narrow.float() + 0.001 * x).view(torch.int32)
        noise = torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32, generator=generator())
        model.narrow.copy_(((bits + noise) & -65536).view(torch.float32))
        return model.narrow.float()

    return body


WHERE: dict[str, tuple[Body, str]] = {
    "made": (lambda m, x: torch.rand(8, generator=made()), ALL),
    "made of the rank": (lambda m, x: torch.rand(8, generator=made_of_rank()), NONE),
    "made of the pair": (lambda m, x: torch.rand(8, generator=made(dist.get_rank() // 2)), PAIRS),
    "made, not seeded": (lambda m, x: torch.rand(8, generator=torch.Generator()), ALL),
    "attribute": (lambda m, x: torch.rand(8, generator=m.first), ALL),
    "attribute of the rank": (lambda m, x: torch.rand(8, generator=m.of_rank), NONE),
    "variable of the module": (lambda m, x: torch.rand(8, generator=OF_MODULE), ALL),
    "deep in an attribute": (lambda m, x: torch.rand(8, generator=m.nested.generators["a"][0]), ALL),
    "seeded apart": (_set_apart, NONE),
    "seeded on one": (_set_on_one, NONE),  # groups of one size are declared
    "go on apart": (_go_on_apart, NONE),
    "other shapes before": (_other_shapes_before, NONE),
    "the same seed again": (_again, ALL),
    "copied": (lambda m, x: _copied(m, x, "first"), ALL),
    "copied from one that goes on apart": (
        lambda m, x: (_copied(m, x, "first"), _go_on_apart(m, x))[0],
        NONE,
    ),
    "copied from one of the rank": (lambda m, x: _copied(m, x, "of_rank"), NONE),
    "clone_state": (lambda m, x: torch.rand(8, generator=made().clone_state()), ALL),
    "a seed of a seed": (lambda m, x: torch.rand(8, generator=made(made(3).initial_seed() + 1)), ALL),
    "two, the one": (lambda m, x: (torch.rand(8, generator=made_of_rank()), DRAWS["rand"](made()))[1], ALL),
    "two, the other": (
        lambda m, x: (DRAWS["rand"](made()), torch.rand(8, generator=made_of_rank()))[1],
        NONE,
    ),
    "rounding": (_rounded(made), ALL),
    "rounding of the rank": (_rounded(made_of_rank), NONE),
}


def traced(body: Body, **options: Any) -> Any:
    def step(model: Any, x: Any) -> None:
        with torch.no_grad():
            model.out.copy_(body(model, x))

    equal = ["x", *options.pop("equal", ())]
    return bridge.trace_step(step, Model, None, X, replicas=WORLD, equal=equal, **options)


def groups_of(rows: Any) -> str:
    """Ranks whose rows have the same bits."""
    found: dict[bytes, list[int]] = {}
    for rank, row in enumerate(rows):
        found.setdefault(row.tobytes(), []).append(rank)
    return "".join("{" + ",".join(map(str, ranks)) + "}" for ranks in found.values())


@pytest.mark.share(2)
@pytest.mark.parametrize("name", DRAWS)
def test_each_op_draws_the_numbers_of_its_generator(name: str) -> None:
    draw = DRAWS[name]

    def body(m: Any, x: Any, make: Callable[[], Any]) -> Any:
        return draw(make())

    for generator, expected in ((made, ALL), (made_of_rank, NONE)):
        step = traced(functools.partial(body, make=generator))
        proof = step.prove()
        assert (str(proof.value("out").proved), proof.ok) == (expected, expected == ALL)
        assert groups_of(step.run()["out"]) == expected
        if not proof.ok:
            assert "generator 1" in proof.problems[0]
            assert "test_generators.py:" in proof.problems[0]
    gc.collect()


@pytest.mark.parametrize("name", WHERE)
def test_generators_are_followed(name: str) -> None:
    body, expected = WHERE[name]
    before = OF_MODULE.get_state()
    proof = traced(body).prove()
    assert str(proof.value("out").proved) == expected
    assert torch.equal(OF_MODULE.get_state(), before)
    gc.collect()
    model = [_model_of(rank) for rank in range(WORLD)]
    others = [OF_MODULE] if name in ("variable of the module", "seeded on one") else []

    def work(rank: int) -> list[Any]:
        with torch.no_grad():
            return [body(model[rank], X).numpy().copy() for _ in range(2)]

    if not others:  # ranks in threads of one process share it
        rows = run_ranks(WORLD, work)
        for blocks in proof.value("out").proved.blocks:
            for run in range(2):
                assert len({rows[rank][run].tobytes() for rank in blocks}) == 1


def _model_of(rank: int) -> Any:
    made_model = Model.__new__(Model)
    nn.Module.__init__(made_model)
    made_model.register_buffer("out", torch.zeros(8))
    made_model.register_buffer("narrow", torch.full((8,), 1.0, dtype=torch.bfloat16))
    made_model.first, made_model.second, made_model.of_rank = made(), made(), made(100 + rank)
    made_model.nested = Nested()
    return made_model


def test_a_generator_that_lasts_draws_others_in_the_next_run() -> None:
    lasting = traced(WHERE["attribute"][0])
    seeded = traced(lambda m, x: torch.rand(8, generator=made(77)))  # no seed of a generator that lasts
    assert not np.array_equal(lasting.run()["out"], lasting.run()["out"])
    np.testing.assert_array_equal(seeded.run()["out"], seeded.run()["out"])


def test_the_same_state_draws_the_same_numbers() -> None:
    assert (traced(_again).run()["out"] == 0).all()


@pytest.mark.parametrize(
    "draw", [lambda x: torch.poisson(x), lambda x: nn.functional.rrelu(x, training=True)]
)
def test_draws_whose_number_depends_on_data(draw: Any) -> None:
    def body(model: Any, x: Any) -> Any:
        return draw(x) + torch.dropout(x, 0.5, True)

    assert str(traced(body, unsupported="conservative").prove().value("out").proved) == NONE
    with pytest.raises(ReplicaError, match=r"draws as many numbers as its operands say.*'random seed'"):
        traced(body, equal=["random seed"], unsupported="conservative")
    with pytest.raises(UnsupportedError, match=r"generator= of poisson at .*test_generators.py:\d+ draws as"):
        traced(lambda m, x: torch.poisson(x, generator=made()))


def test_a_generator_that_is_not_found_is_refused() -> None:
    with pytest.raises(
        UnsupportedError, match=r"generator of the op at .*test_generators.py:\d+ cannot be found"
    ):
        traced(lambda m, x: torch.rand(8, generator=getattr(sys.modules[__name__], "HIDD" + "EN")[0]))


HIDDEN = [torch.Generator()]


def installed(package: str, source: str, **names: Any) -> dict[str, Any]:
    """The names of a module of an installed package."""
    made = {"torch": torch, **names}
    exec(compile(source, f"/v/lib/python3.11/site-packages/{package}/steps.py", "exec"), made)
    return made


def test_what_installed_packages_name_is_followed_in_that_of_the_step() -> None:
    """Names of one function of a large package lead to all of it, in each trace of each rank."""
    draw = "OWN = torch.Generator()\ndef draw(m, x): return torch.rand(8, generator=OWN)\n"
    ours = installed("ours", f"{draw}def step(m, x): return draw(m, x)\n")
    others = installed("others", "def step(m, x): return draw(m, x)\n", draw=ours["draw"])
    cached = installed(
        "ours", "import functools\n@functools.cache\ndef step(m, x): return draw(m, x)\n", **ours
    )

    def found(root: Any, step: Any) -> bool:
        return any(each is ours["OWN"] for each in reachable(root, step))

    assert found([ours["step"]], ours["step"])
    assert found([functools.partial(ours["step"], 1)], functools.partial(ours["step"], 1))
    assert found([cached["step"]], cached["step"])
    assert not found([ours["step"]], made)
    assert not found([others["step"]], others["step"])
    assert found([others["step"], {"seen": [ours["OWN"]]}], others["step"])
    with pytest.raises(UnsupportedError, match="cannot be found"):
        traced(ours["draw"])


def test_loggers_and_patched_classes_do_not_lead_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformers gives torch's Module a function of its own: each trace looked at 56,000 objects from then on."""
    table = {f"name {number}": [number] for number in range(2000)}
    patch = installed("large", "def smart_apply(self, fn): return TABLE\n", TABLE=table)
    monkeypatch.setattr(nn.Module, "smart_apply", patch["smart_apply"], raising=False)
    model = Model.__new__(Model)
    nn.Module.__init__(model)
    before = sum(1 for _ in reachable([model], made))
    model.log = logging.getLogger("popsr.tests")
    monkeypatch.setattr(model.log, "large", table, raising=False)
    assert sum(1 for _ in reachable([model], made)) == before < 1000


CHILD = """
import gc, torch, popsr, warnings
import torch.distributed as dist
from torch import nn
from popsr.bridge.torch import trace_step
warnings.simplefilter("ignore")

class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("out", torch.zeros(4))
        self.g = torch.Generator().manual_seed(1)

def own():
    return torch.Generator().manual_seed(1)

gc.collect()
gc.freeze()  # collections after each trace look at what it left alone
for name, body in BODIES.items():
    made = eval(f"lambda m, x: {body}", globals())

    def step(m, x):
        with torch.no_grad():
            m.out.copy_(made(m, x))

    try:
        trace_step(step, M(), None, torch.ones(4), replicas=2)
        told = "traced"
    except popsr.Error as error:
        assert "\\n" not in str(error), error
        told = type(error).__name__
    del made, step
    gc.collect()
    gc.collect()
    print(f"{name}: {told}", flush=True)
"""
KEPT: dict[str, tuple[str, str]] = {
    "rand": ("torch.rand(4, generator=own())", "traced"),
    "randn": ("torch.randn(4, generator=own())", "traced"),
    "normal_": ("torch.zeros(4).normal_(generator=own())", "traced"),
    "randperm": ("torch.randperm(4, generator=own())", "traced"),
    "unused generator": ("(own(), torch.ones(4))[1]", "traced"),
    "attribute": ("torch.rand(4, generator=m.g)", "traced"),
    "no generator": ("torch.rand(4)", "traced"),
    "poisson": ("torch.poisson(x, generator=own())", "UnsupportedError"),
    "multinomial": ("torch.multinomial(x, 4, generator=own())", "UnsupportedOpsError"),
    "kept by the model": ("(setattr(m, 'h', own()), torch.rand(4, generator=m.h))[1]", "traced"),
    "stream": ("(torch.Stream(device='cpu'), x)[1]", "traced"),
    "record_stream": ("(x.record_stream(torch.Stream(device='cpu')), x)[1]", "traced"),
    "event": ("(torch.Event(device='cpu').record(), x)[1]", "UnsupportedError"),
    "new group": ("(dist.all_reduce(x, group=dist.new_group([0, 1])), x)[1]", "traced"),
    "storage": ("(x.untyped_storage(), x)[1]", "traced"),
    "set_": ("torch.empty(0).set_(x.untyped_storage(), 0, (4,))", "UnsupportedError"),
    "storage that is written": ("(x.untyped_storage().fill_(0), x)[1]", "UnsupportedError"),
    "deepcopy": ("torch.rand(4, generator=__import__('copy').deepcopy(own()))", "UnsupportedError"),
    "handle": ("(setattr(m, 'w', dist.all_reduce(x, async_op=True)), x)[1]", "traced"),
    "future": ("torch.jit.wait(torch.jit.fork(lambda a: a + 1, x))", "traced"),
    "handle's future": ("dist.all_reduce(x, async_op=True).get_future().wait()[0]", "traced"),
}


def test_the_process_lives_after_each_trace() -> None:
    bodies = {name: body for name, (body, _) in KEPT.items()}
    code = f"BODIES = {bodies!r}\n{CHILD}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = [f"{name}: {told}" for name, (_, told) in KEPT.items()]
    assert (done.stdout.splitlines(), done.returncode) == (expected, 0), done.stderr[-2000:]


def _of_torch(model: Any, x: Any) -> Any:
    return torch.rand(8, generator=torch.Generator().set_state(torch.get_rng_state()))


def _of_torch_earlier(model: Any, x: Any) -> Any:
    torch.rand(3)
    g = torch.Generator().set_state(torch.get_rng_state())
    torch.rand(1)
    return torch.rand(8, generator=g)


@pytest.mark.parametrize("body", [_of_torch, _of_torch_earlier])
def test_states_of_torchs_own_generator(body: Body) -> None:
    """Ranks that seed torch apart have other states in a job, though not while they are traced."""
    assert str(traced(body).prove().value("out").proved) == NONE
    assert str(traced(body, equal=["random seed"]).prove().value("out").proved) == ALL


def test_the_seed_of_torchs_own_generator_is_refused() -> None:
    with pytest.raises(
        UnsupportedError, match=r"the seed of torch's generator is asked for at .*test_generators"
    ):
        traced(lambda model, x: torch.rand(8, generator=made(torch.initial_seed())))
    assert torch.initial_seed.__module__ == "torch.random"
