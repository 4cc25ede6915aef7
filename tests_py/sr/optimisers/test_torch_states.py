"""Optimisers of ``popsr.sr.torch`` that are copied, pickled, or go on from a state of torch's own."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from popsr import errors

torch = pytest.importorskip("torch")
st = pytest.importorskip("popsr.sr.torch")

OPTIMISERS: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {}),
    "SGD with momentum": ("SGD", {"momentum": 0.9, "moments": torch.bfloat16}),
    "Lion": ("Lion", {"moments": torch.bfloat16}),
    "Adafactor": ("Adafactor", {}),
    "Adam": ("Adam", {"weight_decay": 0.1}),
    "AdamW": ("AdamW", {}),
    "AdamW, narrow": ("AdamW", {"moments": torch.bfloat16, "foreach": None}),
    "AMSGrad": ("AdamW", {"amsgrad": True}),
    "Muon": ("Muon", {"moments": torch.bfloat16}),
}
SIZES = ((6, 4), (4, 4))


class Job:
    """Two matrices and their optimiser."""

    def __init__(self, what: str, dtype: Any = torch.bfloat16, **more: Any) -> None:
        name, options = OPTIMISERS[what]
        generator = torch.Generator().manual_seed(1)
        self.params = [torch.nn.Parameter(torch.randn(n, generator=generator).to(dtype)) for n in SIZES]
        self.optimiser = getattr(st, name)(self.params, lr=0.02, seed=7, **options, **more)

    def step(self, number: int, call: Callable[[], Any] | None = None) -> None:
        set_gradients(self.params, number)
        (call or self.optimiser.step)()


def set_gradients(params: list[Any], number: int) -> None:
    generator = torch.Generator().manual_seed(100 + number)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)


def assert_same(one: Job, other: Job) -> None:
    for p, q in zip(one.params, other.params, strict=True):
        assert torch.equal(p, q)
        state, there = one.optimiser.state[p], other.optimiser.state[q]
        assert state.keys() == there.keys()
        for name, value in state.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(there[name]))


def _saved(job: Job) -> Job:
    file = io.BytesIO()
    torch.save(job, file)
    file.seek(0)
    return torch.load(file, weights_only=False)  # type: ignore[no-any-return, unused-ignore]


def _shallow(job: Job) -> Job:
    copied = copy.copy(job)
    copied.optimiser = copy.copy(job.optimiser)
    return copied


COPIES: dict[str, Callable[[Job], Job]] = {
    "copy": _shallow,
    "deepcopy": copy.deepcopy,
    "pickle": lambda job: pickle.loads(pickle.dumps(job)),
    "torch.save": _saved,
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("what", OPTIMISERS)
def test_copies_go_on_with_the_same_bits(what: str, way: str) -> None:
    whole, job = Job(what), Job(what)
    for number in range(2):
        whole.step(number)
        job.step(number)
    job = COPIES[way](job)
    assert job.optimiser.moments is whole.optimiser.moments
    for number in range(2, 4):
        whole.step(number)
        job.step(number)
    assert_same(whole, job)


def test_a_copy_before_the_first_step_and_a_state_keep_the_format_of_moments() -> None:
    job = copy.deepcopy(Job("Lion"))
    job.step(0)
    assert job.optimiser.state[job.params[0]]["exp_avg"].dtype == torch.bfloat16
    other = Job("Lion")
    other.optimiser.load_state_dict(job.optimiser.state_dict())
    assert other.optimiser.moments is torch.bfloat16


def test_a_state_from_before_amsgrad_loads() -> None:
    job, other = Job("AdamW"), Job("AdamW")
    job.step(0)
    state = job.optimiser.state_dict()
    del state["param_groups"][0]["amsgrad"]
    other.optimiser.load_state_dict(state)
    other.step(0)
    assert other.optimiser.param_groups[0]["amsgrad"] is False


# Options of torch's own optimiser, and what ours is given.
OF_TORCH: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {"weight_decay": 0.1}),
    "SGD with momentum": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "Adafactor": ("Adafactor", {"weight_decay": 0.1}),
    "Adam": ("Adam", {"weight_decay": 0.1}),
    "AdamW": ("AdamW", {"betas": (0.8, 0.9)}),
    "AMSGrad": ("AdamW", {"amsgrad": True, "foreach": True}),
}


@pytest.mark.parametrize("what", OF_TORCH)
def test_a_job_of_torch_goes_on_here(what: str) -> None:
    """A job in fp32 changes the optimiser after three steps; schedulers leave their options in the groups."""
    name, options = OF_TORCH[what]
    jobs = [Job("SGD", torch.float32) for _ in range(2)]
    theirs = [getattr(torch.optim, name)(job.params, lr=0.03, **options) for job in jobs]
    schedule = torch.optim.lr_scheduler.StepLR(theirs[0], 100)
    for number in range(3):
        for job, optimiser in zip(jobs, theirs, strict=True):
            job.step(number, optimiser.step)
    schedule.step()
    ours = getattr(st, name)(jobs[0].params, seed=9)
    ours.load_state_dict(theirs[0].state_dict())
    (group,) = ours.param_groups
    assert (group["seed"], group["initial_lr"], group["lr"]) == (9, 0.03, 0.03)
    for number in range(3, 8):
        jobs[0].step(number, ours.step)
        jobs[1].step(number, theirs[1].step)
    for p, q in zip(*(job.params for job in jobs), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
        step = ours.state[p]["step"]
        assert (step.dtype, int(step)) == (torch.int64, 5 if name == "SGD" else 8)


def test_narrow_moments_of_torch_are_widened_exactly() -> None:
    """torch keeps moments in the format of the weights."""
    job = Job("AdamW")
    theirs = torch.optim.AdamW(job.params)
    job.step(0, theirs.step)
    job.optimiser.load_state_dict(theirs.state_dict())
    for p in job.params:
        for name in ("exp_avg", "exp_avg_sq"):
            here, there = job.optimiser.state[p][name], theirs.state[p][name]
            assert (here.dtype, there.dtype) == (torch.float32, torch.bfloat16)
            assert torch.equal(here, there.float())


REFUSED: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "another optimiser": (
        "SGD with momentum",
        "AdamW",
        {},
        "SGD.load_state_dict: the state of a parameter has 'exp_avg'",
    ),
    "no optimiser of torch": (
        "Lion",
        "AdamW",
        {},
        "Lion.load_state_dict: the state of a parameter has 'exp_avg'",
    ),
    "L2": (
        "AdamW",
        "Adam",
        {"weight_decay": 0.1},
        "AdamW.load_state_dict: weight decay is another, got L2",
    ),
    "decoupled": (
        "Adam",
        "AdamW",
        {"weight_decay": 0.1},
        "Adam.load_state_dict: weight decay is another, got decoup",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_states_of_others_are_refused_and_change_nothing(what: str) -> None:
    ours, name, options, text = REFUSED[what]
    job = Job(ours)
    job.step(0)
    twin = copy.deepcopy(job)
    other = Job(ours)
    theirs = getattr(torch.optim, name)(other.params, **options)
    other.step(0, theirs.step)
    with pytest.raises(errors.AttributeValueError, match=text):
        job.optimiser.load_state_dict(theirs.state_dict())
    assert_same(job, twin)


@pytest.mark.parametrize("what", OPTIMISERS)
def test_states_whose_steps_are_integers_go_on(what: str) -> None:
    """As they were saved before steps were tensors; SGD's state did not say then if its momentum had begun."""
    one, other = Job(what), Job(what)
    for number in range(2):
        one.step(number)
    for p, q in zip(one.params, other.params, strict=True):
        q.data.copy_(p.detach())
    saved = one.optimiser.state_dict()
    old = {
        k: {name: int(x) if name == "step" else x for name, x in state.items() if name != "begun"}
        for k, state in saved["state"].items()
    }
    other.optimiser.load_state_dict({**saved, "state": old})
    for job in (one, other):
        job.step(2)
    assert_same(one, other)


@pytest.mark.parametrize("what", OPTIMISERS)
def test_counters_that_a_program_cast_go_on(what: str) -> None:
    """The core writes 64 bits: a loop over all tensors of the state makes floats of 32 of them."""
    one, other = Job(what), Job(what)
    for job in (one, other):
        job.step(0)
    for p in other.params:
        state = other.optimiser.state[p]
        state["step"] = state["step"].float()
    for job in (one, other):
        job.step(1)
    assert_same(one, other)
