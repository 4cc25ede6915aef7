"""Optimisers of ``popsr.sr.torch`` under ``torch.compile``: one graph with the bits of the eager step."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest

from popsr import errors

torch = pytest.importorskip("torch")
st = pytest.importorskip("popsr.sr.torch")

OPTIMISERS: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {"weight_decay": 0.1}),
    "SGD with momentum": ("SGD", {"momentum": 0.9, "dampening": 0.3, "moments": torch.bfloat16}),
    "SGD of Nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "Lion": ("Lion", {"moments": torch.bfloat16}),
    "Adafactor": ("Adafactor", {}),
    "Adam": ("Adam", {"weight_decay": 0.1}),
    "AdamW": ("AdamW", {"foreach": False}),
    "AMSGrad": ("AdamW", {"amsgrad": True}),
    "Muon": ("Muon", {"moments": torch.bfloat16}),
}
STEPS = 20


class Job:
    """Two groups of matrices, in bf16 and fp32, the second group with another rate of learning."""

    def __init__(self, what: str, lr: Any = 0.02, **more: Any) -> None:
        name, options = OPTIMISERS[what]
        generator = torch.Generator().manual_seed(1)
        self.params = [
            torch.nn.Parameter(torch.randn(6, 4, generator=generator).to(dtype))
            for dtype in (torch.bfloat16, torch.float32, torch.bfloat16)
        ]
        groups = [{"params": self.params[:2]}, {"params": self.params[2:], "lr": lr * 2}]
        self.optimiser = getattr(st, name)(groups, lr=lr, seed=2**63 + 7, **options, **more)
        self.step: Any = self.optimiser.step  # before the scheduler wraps it, which torch does not compile
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimiser, 0.9)

    def run(self, steps: range) -> None:
        for number in steps:
            generator = torch.Generator().manual_seed(100 + number)
            for p in self.params:
                p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)
            self.step()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a scheduler whose wrapper was not called
                self.schedule.step()


def assert_same(one: Job, other: Job) -> None:
    for p, q in zip(one.params, other.params, strict=True):
        assert torch.equal(p, q)
        state, there = one.optimiser.state[p], other.optimiser.state[q]
        assert state.keys() == there.keys()
        for name, value in state.items():
            assert torch.equal(value, there[name])


def compiled(job: Job) -> Job:
    torch._dynamo.reset()
    job.step = torch.compile(job.step, backend="aot_eager", fullgraph=True)
    return job


@pytest.mark.parametrize("what", OPTIMISERS)
def test_one_graph_has_the_bits_of_the_eager_step(what: str) -> None:
    """A schedule compiles nothing again, be the rate a number or a tensor; nothing warns."""
    from torch._dynamo.utils import counters

    for rate in (float, torch.tensor):
        eager, graph = Job(what, rate(0.02)), compiled(Job(what, rate(0.02)))
        counters.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for job in (eager, graph):
                job.run(range(STEPS))
        assert_same(eager, graph)
        assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.filterwarnings("ignore:`torch.jit")  # of torch about itself, as it is imported
def test_compiled_for_the_processor() -> None:
    """Steps of Inductor; copies of the optimiser go on in the same graph, with options of their own."""
    eager, graph = Job("AdamW"), Job("AdamW")
    torch._dynamo.reset()
    graph.step = torch.compile(graph.step, fullgraph=True)
    for job in (eager, graph):
        job.run(range(2))
    assert_same(eager, graph)
    for job in (eager, graph):
        job.params, job.optimiser = copy.deepcopy((job.params, job.optimiser))
        job.step = job.optimiser.step
    graph.step = torch.compile(graph.step, fullgraph=True)
    for job in (eager, graph):
        job.optimiser.param_groups[0] |= {"betas": (0.5, 0.6), "seed": 3}
        job.run(range(2, 4))
    assert_same(eager, graph)


def test_parameters_without_a_gradient_are_left() -> None:
    eager, graph = Job("AdamW"), compiled(Job("AdamW"))
    for number in range(4):
        for job in (eager, graph):
            job.run(range(number, number))
            for k, p in enumerate(job.params):
                p.grad = None if (k + number) % 3 == 0 else torch.full_like(p, 0.3)
            job.step()
    assert_same(eager, graph)
    assert [int(eager.optimiser.state[p]["step"]) for p in eager.params] == [2, 3, 3]


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"
)  # of torch about itself
def test_a_whole_step_of_training_as_people_write_it() -> None:
    """The rate is set in the function that is compiled, as a number and in place; a closure computes the loss."""

    def job() -> Any:
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).bfloat16()
        return model, st.AdamW(model.named_parameters(), lr=torch.tensor(0.01), weight_decay=0.0, seed=4)

    def train(model: Any, optimiser: Any, x: Any, lr: Any) -> Any:
        for group in optimiser.param_groups:
            if isinstance(lr, float):
                group["lr"] = lr
            else:
                group["lr"].copy_(lr)

        def closure() -> Any:
            loss = model(x).square().mean()
            optimiser.zero_grad()
            loss.backward()
            return loss

        return optimiser.step(closure)

    def train_plainly(model: Any, optimiser: Any, x: Any, lr: Any) -> Any:
        loss = model(x).square().mean()
        loss.backward()
        for group in optimiser.param_groups:
            if isinstance(lr, float):
                group["lr"] = lr
            else:
                group["lr"].copy_(lr)
        optimiser.step()
        optimiser.zero_grad()
        return loss

    for step in (train, train_plainly):
        torch._dynamo.reset()
        jobs = [job(), job()]
        ways = [step, torch.compile(step, backend="aot_eager")]
        for rates in ([torch.tensor(0.1), torch.tensor(0.2), torch.tensor(0.05)], [0.3, 0.1, 0.2]):
            for lr in rates:
                losses = [
                    way(*each, torch.ones(3, 4).bfloat16(), lr) for way, each in zip(ways, jobs, strict=True)
                ]
                assert torch.equal(*losses)
        for p, q in zip(*(model.parameters() for model, _ in jobs), strict=True):
            assert torch.equal(p, q)


def test_options_of_another_kind_are_refused_and_reset_compiles_anew() -> None:
    graph, eager = compiled(Job("AdamW")), Job("AdamW")
    for job in (eager, graph):
        job.run(range(1))
        job.optimiser.param_groups[1]["amsgrad"] = True
    with pytest.raises(
        errors.StateError, match=r"AdamW.step: the optimizer is another one than when its step"
    ):
        graph.run(range(1, 2))
