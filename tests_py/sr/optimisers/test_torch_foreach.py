"""Optimisers of ``popsr.sr.torch`` that step all weights in one call: the bits are those of one call per weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import popsr
from popsr import errors

torch = pytest.importorskip("torch")
st = pytest.importorskip("popsr.sr.torch")

OPTIMISERS: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {}),
    "SGD upwards": ("SGD", {"maximize": True}),
    "SGD with decay": ("SGD", {"weight_decay": 0.3}),
    "SGD with momentum": ("SGD", {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    "SGD of Nesterov": ("SGD", {"momentum": 0.7, "nesterov": True}),
    "SGD with all": ("SGD", {"momentum": 0.7, "nesterov": True, "weight_decay": 0.1, "maximize": True}),
    "Lion": ("Lion", {}),
    "Lion with decay": ("Lion", {"betas": (0.7, 0.8), "weight_decay": 0.1, "maximize": True}),
    "AdamW": ("AdamW", {}),
    "AdamW upwards": ("AdamW", {"betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.5, "maximize": True}),
}
SIZES = ((), (0, 3), (1,), (7, 5), (300, 200), (2048,), (2049,), (50,))
DTYPES = ("float32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3fn")


def parameters(dtype: Any, sizes: Any = SIZES) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    return [torch.nn.Parameter(torch.randn(size, generator=generator).to(dtype)) for size in sizes]


def set_gradients(params: list[Any], step: int) -> None:
    """None of every fifth, and special numbers."""
    generator = torch.Generator().manual_seed(100 + step)
    for k, p in enumerate(params):
        grad = torch.randn(p.shape, generator=generator)
        if grad.numel() > 5:
            grad.view(-1)[:4] = torch.tensor([torch.nan, torch.inf, -0.0, 1e-40])
        p.grad = None if (k + step) % 5 == 4 else grad.to(p.dtype)


def assert_same(a: Any, b: Any) -> None:
    """Equal bits; of moments, which are float32, NaNs count as equal."""
    if not isinstance(a, torch.Tensor):
        assert a == b
        return
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    if a.dtype == torch.float32:
        a, b = (torch.where(x.isnan(), torch.nan, x.detach()) for x in (a, b))
    assert torch.equal(*(x.detach().reshape(-1).view(torch.uint8) for x in (a, b)))


def assert_same_states(optimisers: list[Any], groups: list[list[Any]]) -> None:
    for p, q in zip(*groups, strict=True):
        assert_same(p, q)
        states = optimisers[0].state[p], optimisers[1].state[q]
        assert states[0].keys() == states[1].keys()
        for name in states[0]:
            assert_same(states[0][name], states[1][name])


def take_steps(optimisers: list[Any], groups: list[list[Any]], steps: range = range(4)) -> None:
    for step in steps:
        for optimiser, params in zip(optimisers, groups, strict=True):
            set_gradients(params, step)
            optimiser.step()


def make(what: str, params: list[Any], **more: Any) -> Any:
    name, options = OPTIMISERS[what]
    return getattr(st, name)(params, **{"lr": 0.01, "seed": 5, **options, **more})


def general(optimiser: Any) -> Any:
    """The same optimiser with torch's arithmetic."""
    optimiser._step_all = lambda weights, group: False
    return optimiser


def special(optimiser: Any) -> Any:
    """The same optimiser, where the general way is an error."""
    optimiser._step_generally = None
    return optimiser


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("what", OPTIMISERS)
def test_bits_are_those_of_the_general_way(what: str, dtype: str, foreach: bool) -> None:
    groups = [parameters(getattr(torch, dtype)) for _ in range(2)]
    optimisers = [special(make(what, groups[0], foreach=foreach)), general(make(what, groups[1]))]
    take_steps(optimisers, groups)
    assert_same_states(optimisers, groups)


@pytest.mark.parametrize("what", OPTIMISERS)
def test_bits_are_those_of_any_number_of_threads(what: str) -> None:
    before = popsr.num_threads()
    found = []
    for threads in (1, 2, 5):
        popsr.set_num_threads(threads)
        params = parameters(torch.bfloat16, (*SIZES, (1 << 18,)))
        take_steps([special(make(what, params))], [params], range(2))
        found.append(params)
    popsr.set_num_threads(before)
    for others in found[1:]:
        for p, q in zip(found[0], others, strict=True):
            assert_same(p, q)


def _strided(params: list[Any]) -> None:
    params[3].data = params[3].detach().T.contiguous().T


def _mixed(params: list[Any]) -> None:
    for k, name in enumerate(DTYPES):
        params[k].data = params[k].detach().to(getattr(torch, name))


def _shared(params: list[Any]) -> None:
    """A part of a weight is another one, which is stepped after it."""
    params[7].data = params[5].detach()[100:150]


def _doubles(params: list[Any]) -> None:
    for p in params:
        p.data = p.detach().double()


def _nothing(_: list[Any]) -> None:
    pass


# Weights that may not fit one call, made from parameters; options that have kernels of their own.
OTHERS: dict[str, tuple[Callable[[list[Any]], None], dict[str, Any]]] = {
    "strided": (_strided, {}),
    "several dtypes": (_mixed, {}),
    "shared": (_shared, {}),
    "doubles": (_doubles, {}),
    "rate of one": (_nothing, {"lr": 1.0}),
    "narrow moments": (_nothing, {"moments": torch.bfloat16}),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("what", OPTIMISERS)
def test_whatever_does_not_fit_goes_the_general_way(what: str, other: str) -> None:
    change, options = OTHERS[other]
    groups = [parameters(torch.bfloat16) for _ in range(2)]
    for params in groups:
        change(params)
    optimisers = [make(what, groups[0], **options), general(make(what, groups[1], **options))]
    take_steps(optimisers, groups)
    assert_same_states(optimisers, groups)


@pytest.mark.parametrize("what", ["SGD with momentum", "Lion", "AdamW"])
def test_state_of_either_way_goes_on_in_the_other(what: str) -> None:
    groups = [parameters(torch.bfloat16) for _ in range(2)]
    optimisers = [special(make(what, groups[0])), general(make(what, groups[1]))]
    take_steps(optimisers, groups, range(2))
    resumed = special(make(what, groups[1]))
    resumed.load_state_dict(optimisers[1].state_dict())
    take_steps([optimisers[0], resumed], groups, range(2, 4))
    assert_same_states([optimisers[0], resumed], groups)


def test_a_state_from_before_foreach_loads() -> None:
    params, other = (parameters(torch.bfloat16) for _ in range(2))
    saved = make("SGD", params).state_dict()
    del saved["param_groups"][0]["foreach"]
    resumed = special(make("SGD", other))
    resumed.load_state_dict(saved)
    take_steps([resumed], [other])


def test_autograd_sees_the_step() -> None:
    p = torch.nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
    loss = (p * p).sum()
    p.grad = torch.ones_like(p)
    special(make("SGD", [p])).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("what", ["SGD", "Lion", "AdamW"])
def test_foreach_is_a_bool(what: str) -> None:
    with pytest.raises(errors.ArgumentTypeError, match=f"^{what}: foreach is not a bool, got 'yes'"):
        make(what, parameters(torch.bfloat16), foreach="yes")
