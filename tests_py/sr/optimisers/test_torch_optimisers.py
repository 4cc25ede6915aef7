"""Optimisers of ``popsr.sr.torch``: torch's own in fp32, an oracle of the rounding, and twins in fp64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, sr
from tests_py.support.oracles import rounding as oracle
from tests_py.support.unchecked import unchecked

torch = pytest.importorskip("torch")
st = pytest.importorskip("popsr.sr.torch")

# Ours, torch's own where there is one, and options of both.
BESIDE_TORCH: dict[str, Any] = {
    "SGD": ("SGD", {"lr": 0.05}),
    "SGD with decay": ("SGD", {"lr": 0.05, "weight_decay": 0.1}),
    "SGD with momentum": ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    "SGD of Nesterov": ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "SGD upwards": ("SGD", {"lr": 0.05, "momentum": 0.9, "maximize": True}),
    "Adafactor": ("Adafactor", {"lr": 0.05}),
    "Adafactor with decay": ("Adafactor", {"lr": 0.05, "weight_decay": 0.1, "d": 1.5, "maximize": True}),
    "AdamW upwards": ("AdamW", {"lr": 0.05, "maximize": True}),
    "AMSGrad": ("AdamW", {"lr": 0.05, "amsgrad": True, "weight_decay": 0.1}),
    "Adam": ("Adam", {"lr": 0.05}),
    "Adam with decay": ("Adam", {"lr": 0.05, "weight_decay": 0.1, "maximize": True}),
    "Adam and AMSGrad": ("Adam", {"lr": 0.05, "weight_decay": 0.1, "amsgrad": True, "betas": (0.8, 0.7)}),
}
ALL: dict[str, Any] = {
    "SGD": lambda params, **more: st.SGD(params, lr=2.0**-10, **more),
    "SGD with momentum": lambda params, **more: st.SGD(params, lr=2.0**-12, momentum=0.9, **more),
    "SGD of Nesterov": lambda params, **more: st.SGD(
        params, lr=2.0**-12, momentum=0.9, nesterov=True, weight_decay=0.1, **more
    ),
    "Lion": lambda params, **more: st.Lion(params, lr=2.0**-11, weight_decay=0.1, **more),
    "Adafactor": lambda params, **more: st.Adafactor(params, lr=2.0**-11, weight_decay=0.1, **more),
    "AdamW": lambda params, **more: st.AdamW(params, lr=2.0**-11, **more),
    "Adam": lambda params, **more: st.Adam(params, lr=2.0**-11, weight_decay=0.1, **more),
    "AMSGrad": lambda params, **more: st.AdamW(params, lr=2.0**-11, amsgrad=True, **more),
}


_COUNTED = (torch.int64, torch.bool)
"""Dtypes of a number of steps, and of a momentum that has begun."""


def parameters(dtype: Any, sizes: Any = ((8, 4), (4,))) -> Any:
    generator = torch.Generator().manual_seed(1)
    return [torch.nn.Parameter(torch.randn(size, generator=generator).to(dtype)) for size in sizes]


def set_gradients(params: Any, step: int) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)


@pytest.mark.parametrize("what", BESIDE_TORCH)
def test_fp32_weights_follow_torch(what: str) -> None:
    name, options = BESIDE_TORCH[what]
    ours, theirs = parameters(torch.float32), parameters(torch.float32)
    pair = getattr(st, name)(ours, seed=1, **options), getattr(torch.optim, name)(theirs, **options)
    for step in range(20):
        for params, optimiser in zip((ours, theirs), pair, strict=True):
            set_gradients(params, step)
            optimiser.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_lion_follows_its_formula() -> None:
    params = parameters(torch.float32)
    optimiser = st.Lion(params, lr=0.01, betas=(0.9, 0.99), weight_decay=0.1, seed=1)
    w = [p.detach().double().numpy().copy() for p in params]
    m = [np.zeros_like(x) for x in w]
    for step in range(20):
        set_gradients(params, step)
        optimiser.step()
        for k, p in enumerate(params):
            assert p.grad is not None
            g = p.grad.double().numpy()
            w[k] -= 0.01 * (np.sign(0.9 * m[k] + 0.1 * g) + 0.1 * w[k])
            m[k] = 0.99 * m[k] + 0.01 * g
            np.testing.assert_allclose(p.detach().numpy(), w[k], rtol=1e-4, atol=1e-5)


# The exact value of the new weight, in fp64 where all terms are short; one rounding follows.
FIRST_STEPS: dict[str, Any] = {
    "SGD": (lambda p: st.SGD(p, lr=2.0**-8, seed=9), lambda w, g: w - 2.0**-8 * g),
    "SGD with decay": (
        lambda p: st.SGD(p, lr=2.0**-8, weight_decay=0.5, seed=9),
        lambda w, g: w - 2.0**-8 * np.float32(np.float32(g) + np.float32(0.5 * w)).astype(np.float64),
    ),
    "SGD with momentum": (
        lambda p: st.SGD(p, lr=2.0**-8, momentum=0.5, seed=9),
        lambda w, g: w - 2.0**-8 * g,
    ),
    "Lion": (lambda p: st.Lion(p, lr=2.0**-8, seed=9), lambda w, g: w - 2.0**-8 * np.sign(g)),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn"])
@pytest.mark.parametrize("what", FIRST_STEPS)
def test_first_steps_are_rounded_by_their_numbers(what: str, dtype: str) -> None:
    make, exact = FIRST_STEPS[what]
    params = parameters(getattr(torch, dtype), ((16, 16), (16,)))
    before = [p.detach().double().numpy().reshape(-1) for p in params]
    set_gradients(params, 0)
    make(params).step()
    for k, p in enumerate(params):
        assert p.grad is not None
        totals = exact(before[k], p.grad.double().numpy().reshape(-1))
        numbers = sr.uniform_bits(sr.Key(9).fold_in(k).at(1), p.numel()).tolist()
        bits = p.detach().view(torch.uint8 if p.element_size() == 1 else torch.int16).reshape(-1).tolist()
        expect = [
            oracle.round_bits(oracle.number(float(t)), dtype, u=u)
            for t, u in zip(totals, numbers, strict=True)
        ]
        assert [b & (255 if p.element_size() == 1 else 65535) for b in bits] == expect


@pytest.mark.parametrize("seed", [3, 17, 2**63 + 1])
@pytest.mark.parametrize("what", ALL)
def test_no_drift_from_a_twin_in_fp64(what: str, seed: int) -> None:
    """4,000 weights with the same gradients and noise of their own: their mean stays within 5 deviations of the mean.

    2**-7 of the way is for the curvature of what depends on the weight itself.
    """
    n, steps = 4000, 100
    narrow = torch.nn.Parameter(torch.full((n,), 1.25, dtype=torch.bfloat16))
    twin = torch.nn.Parameter(torch.full((n,), 1.25, dtype=torch.float64))
    pair = ALL[what]([narrow], seed=seed), ALL[what]([twin], seed=seed)
    rng = np.random.default_rng(4)
    for _ in range(steps):
        gradient = float(rng.integers(32, 64)) / 64
        narrow.grad, twin.grad = torch.full_like(narrow, gradient), torch.full_like(twin, gradient)
        for optimiser in pair:
            optimiser.step()
    got, expect = narrow.detach().double(), twin.detach().double().mean()
    way = abs(float(expect) - 1.25)
    assert way > 2.0**-7
    assert abs(float(got.mean() - expect)) < 5 * float(got.std()) / n**0.5 + way * 2.0**-7


@pytest.mark.parametrize("what", ALL)
def test_threads_and_resumed_runs_have_the_same_bits(what: str) -> None:
    """The state of a run on two threads is loaded into a run on one."""

    def run(params: Any, optimiser: Any, steps: Any, threads: int) -> None:
        before = popsr.num_threads()
        popsr.set_num_threads(threads)
        for step in steps:
            set_gradients(params, step)
            optimiser.step()
        popsr.set_num_threads(before)

    params, other = (parameters(torch.bfloat16, ((300, 200), (50,))) for _ in range(2))
    optimiser = ALL[what](params, seed=6)
    run(params, optimiser, range(3), 2)
    for p, q in zip(params, other, strict=True):
        q.data.copy_(p.detach())
    resumed = ALL[what](other, seed=99)
    resumed.load_state_dict(optimiser.state_dict())
    run(params, optimiser, range(3, 5), 2)
    run(other, resumed, range(3, 5), 1)
    for p, q in zip(params, other, strict=True):
        assert torch.equal(p, q)
        for name, value in optimiser.state[p].items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(resumed.state[q][name]))
            assert value.dtype in (torch.float32, *_COUNTED)


@pytest.mark.parametrize("what", ["SGD with momentum", "Lion", "AdamW", "AMSGrad"])
def test_narrow_moments_are_rounded_without_drift(what: str) -> None:
    """The mean of the momentum follows fp64, although a step changes it by less than half of the spacing."""
    n = 4000
    p = torch.nn.Parameter(torch.zeros(n))
    optimiser = ALL[what]([p], seed=3, moments=torch.bfloat16)
    twin = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    expect = ALL[what]([twin], seed=3, moments=torch.float64)
    for _ in range(30):
        p.grad, twin.grad = torch.full_like(p, 0.7), torch.full_like(twin, 0.7)
        optimiser.step()
        expect.step()
    for name, value in optimiser.state[p].items():
        if value.dtype not in _COUNTED:
            got = value.double()
            assert value.dtype == torch.bfloat16
            assert (
                abs(float(got.mean()) - float(expect.state[twin][name]))
                < 5 * float(got.std()) / n**0.5 + 1e-7
            )


def test_groups_schedulers_and_closures() -> None:
    params = parameters(torch.bfloat16)
    kept = params[1].detach().clone()
    optimiser = st.SGD([{"params": [params[0]]}, {"params": [params[1]], "lr": 0.0}], lr=0.5, seed=1)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)

    def closure() -> Any:
        set_gradients(params, 0)
        return torch.tensor(3.0)

    assert float(optimiser.step(closure)) == 3.0
    schedule.step()
    assert [group["lr"] for group in optimiser.param_groups] == [0.25, 0.0]
    before = params[0].detach().clone()
    optimiser.step(closure)
    assert params[0].grad is not None
    key = sr.Key(1).fold_in(0).at(2)
    assert torch.equal(params[0].detach(), sr.add_(before, params[0].grad, alpha=-0.25, key=key))
    assert torch.equal(params[1], kept)


REFUSED: dict[str, Any] = {
    "negative rate": ("SGD", {"lr": -1.0}, errors.AttributeValueError, "SGD: lr is out of range, got -1.0"),
    "textual rate": ("Lion", {"lr": "a"}, errors.ArgumentTypeError, "Lion: lr is not a number"),
    "nesterov": (
        "SGD",
        {"nesterov": True},
        errors.AttributeValueError,
        "SGD: nesterov does not fit, got momentum 0",
    ),
    "beta": (
        "Lion",
        {"betas": (0.9, 1.0)},
        errors.AttributeValueError,
        r"Lion: betas\[1\] is out of range, got 1.0",
    ),
    "betas": (
        "Lion",
        {"betas": 0.9},
        errors.ArgumentTypeError,
        "Lion: betas is not a pair of numbers, got 0.9",
    ),
    "exponent": (
        "Adafactor",
        {"beta2_decay": 0.8},
        errors.AttributeValueError,
        "Adafactor: -beta2_decay is out",
    ),
    "amsgrad": ("Adam", {"amsgrad": 1.5}, errors.ArgumentTypeError, "Adam: amsgrad is not a bool, got 1.5"),
    "derivatives": (
        "AdamW",
        {"differentiable": True},
        errors.AttributeValueError,
        "AdamW: differentiable is not supported, got True, expected False: a rounded weight has no derivative",
    ),
    "capturable": (
        "Adam",
        {"capturable": 1},
        errors.ArgumentTypeError,
        "Adam: capturable is not a bool, got 1",
    ),
    "fused": ("SGD", {"fused": "yes"}, errors.ArgumentTypeError, "SGD: fused is not a bool, got 'yes'"),
    "way": ("Adafactor", {"foreach": 2}, errors.ArgumentTypeError, "Adafactor: foreach is not a bool, got 2"),
    "eps": ("Adafactor", {"eps": 1e-3}, errors.ArgumentTypeError, "Adafactor: eps is not a pair of numbers"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    name, options, kind, text = REFUSED[what]
    with pytest.raises(kind, match=text):
        unchecked(getattr(st, name))(parameters(torch.bfloat16), **options)


def test_a_group_that_asks_for_derivatives_is_refused() -> None:
    params = parameters(torch.bfloat16)
    optimiser = st.SGD(params[:1], seed=1, fused=True)
    with pytest.raises(errors.AttributeValueError, match="SGD: differentiable is not supported"):
        optimiser.add_param_group({"params": params[1:], "differentiable": True})


@pytest.mark.parametrize("what", ALL)
def test_a_rate_may_be_a_tensor_and_parameters_may_have_names(what: str) -> None:
    numbers, tensors = parameters(torch.bfloat16), parameters(torch.bfloat16)
    pair = ALL[what](numbers, seed=3), ALL[what](zip("ab", tensors, strict=True), seed=3)
    for group in pair[1].param_groups:
        group["lr"] = torch.tensor(group["lr"])
    for step in range(3):
        for params, optimiser in zip((numbers, tensors), pair, strict=True):
            set_gradients(params, step)
            optimiser.step()
    for p, q in zip(numbers, tensors, strict=True):
        assert torch.equal(p, q)
    assert pair[1].param_groups[0]["param_names"] == ["a", "b"]


def test_reachable_without_an_import_of_its_own() -> None:
    assert popsr.sr.torch.Lion is st.Lion
