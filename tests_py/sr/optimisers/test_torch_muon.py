"""``popsr.sr.torch.Muon``: its formula in fp64, torch's own, and rounding by known numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popsr import errors, sr
from tests_py.support.unchecked import unchecked

torch = pytest.importorskip("torch")
st = pytest.importorskip("popsr.sr.torch")

SIZES = ((8, 4), (3, 5), (1, 6), (7, 1))
OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "without Nesterov": {"nesterov": False, "momentum": 0.8},
    "rates of AdamW": {"adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.0},
    "few steps": {"ns_steps": 2, "eps": 1e-3, "ns_coefficients": (2.0, -1.5, 0.5)},
}


def parameters(dtype: Any) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    return [torch.nn.Parameter(torch.randn(size, generator=generator).to(dtype)) for size in SIZES]


def gradients(step: int) -> list[Any]:
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(size, generator=generator) for size in SIZES]


def orthogonal(x: Any, coefficients: tuple[float, float, float], steps: int, eps: float) -> Any:
    """The iteration on the singular values, of which the vectors know nothing."""
    a, b, c = coefficients
    u, s, v = np.linalg.svd(x, full_matrices=False)
    s = s / max(np.linalg.norm(s), eps)
    for _ in range(steps):
        s = a * s + b * s**3 + c * s**5
    return u @ np.diag(s) @ v


class Formula:
    """The formula, in fp64."""

    def __init__(self, given: dict[str, Any]) -> None:
        everything = {"momentum": 0.95, "nesterov": True, "weight_decay": 0.1, "adjust_lr_fn": None, **given}
        self._given = {"ns_coefficients": (3.4445, -4.775, 2.0315), "ns_steps": 5, "eps": 1e-7, **everything}
        self._kept = [np.zeros(size) for size in SIZES]

    def updates(self, w: list[Any], grads: list[Any]) -> list[Any]:
        """Differences of the weights by a learning rate of 1."""
        given, found = self._given, []
        beta = given["momentum"]
        for k, (x, g) in enumerate(zip(w, grads, strict=True)):
            self._kept[k] = beta * self._kept[k] + (1 - beta) * g
            direction = beta * self._kept[k] + (1 - beta) * g if given["nesterov"] else self._kept[k]
            rows, columns = x.shape
            own = 0.2 * max(rows, columns) ** 0.5 if given["adjust_lr_fn"] else max(1, rows / columns) ** 0.5
            o = orthogonal(direction, given["ns_coefficients"], given["ns_steps"], given["eps"])
            found.append(-own * o - given["weight_decay"] * x)
        return found


@pytest.mark.parametrize("what", OPTIONS)
def test_fp32_weights_follow_the_formula(what: str) -> None:
    params, formula = parameters(torch.float32), Formula(OPTIONS[what])
    optimiser = st.Muon(params, lr=0.05, seed=1, **OPTIONS[what])
    w = [p.detach().double().numpy() for p in params]
    for step in range(10):
        grads = gradients(step)
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        optimiser.step()
        updates = formula.updates(w, [g.double().numpy() for g in grads])
        w = [x + 0.05 * u for x, u in zip(w, updates, strict=True)]
        for p, x in zip(params, w, strict=True):
            np.testing.assert_allclose(p.detach().numpy(), x, rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
@pytest.mark.parametrize("what", OPTIONS)
def test_fp32_weights_stay_near_torch(what: str) -> None:
    """torch iterates in bf16, whose error is of the size of the tolerance."""
    ours, theirs = parameters(torch.float32), parameters(torch.float32)
    pair = st.Muon(ours, lr=0.01, seed=1, **OPTIONS[what]), torch.optim.Muon(theirs, lr=0.01, **OPTIONS[what])
    for step in range(10):
        for params, optimiser in zip((ours, theirs), pair, strict=True):
            for p, g in zip(params, gradients(step), strict=True):
                p.grad = g.clone()
            optimiser.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0.02)


def test_new_weights_are_one_rounding_of_the_formula() -> None:
    """Each is one of the two neighbours of the exact value, nearer ones more often: their mean is without drift."""
    size, seeds = (32, 32), 200
    g = torch.randn(size, generator=torch.Generator().manual_seed(2)).bfloat16()
    start = torch.ones(size, dtype=torch.bfloat16)
    wide = torch.nn.Parameter(start.double())
    wide.grad = g.double()
    st.Muon([wide], lr=2.0**-9, seed=0, moments=torch.float64).step()
    expect = wide.detach().numpy()
    total = np.zeros(size)
    for seed in range(seeds):
        p = torch.nn.Parameter(start.clone())
        p.grad = g
        st.Muon([p], lr=2.0**-9, seed=seed).step()
        new = p.detach().double().numpy()
        assert (np.abs(new - expect) < 2.0**-7).all()
        total += new
    deviation = 2.0**-8 / np.sqrt(seeds * total.size)
    assert abs((total / seeds - expect).mean()) < 5 * deviation


REFUSED: dict[str, tuple[Any, dict[str, Any], type, str]] = {
    "vector": (
        (3,),
        {},
        errors.ShapeError,
        r"Muon: a parameter is not a matrix, got shape \(3,\), expected two",
    ),
    "stack": ((2, 3, 4), {}, errors.ShapeError, r"Muon: a parameter is not a matrix, got shape \(2, 3, 4\)"),
    "momentum": (
        (2, 2),
        {"momentum": 1.0},
        errors.AttributeValueError,
        "Muon: momentum is out of range, got 1.0",
    ),
    "steps": ((2, 2), {"ns_steps": -1}, errors.AttributeValueError, "Muon: ns_steps"),
    "coefficients": (
        (2, 2),
        {"ns_coefficients": (1.0, 2.0)},
        errors.ArgumentTypeError,
        "Muon: ns_coefficients is not a tuple, got .*, expected three numbers",
    ),
    "rate": (
        (2, 2),
        {"adjust_lr_fn": "other"},
        errors.AttributeValueError,
        "Muon: adjust_lr_fn is unknown, got 'other', expected one of original, match_rms_adamw",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    size, options, kind, text = REFUSED[what]
    with pytest.raises(kind, match=text):
        unchecked(st.Muon)([torch.nn.Parameter(torch.zeros(size))], **options)


def test_a_refused_group_is_not_added() -> None:
    optimiser = st.Muon([torch.nn.Parameter(torch.zeros(2, 3))], seed=1)
    with pytest.raises(errors.ShapeError):
        optimiser.add_param_group({"params": [torch.nn.Parameter(torch.zeros(3))]})
    assert len(optimiser.param_groups) == 1


def test_keys_are_those_of_the_parameters_and_steps() -> None:
    """The second parameter draws as if it were alone, under the key of its number."""
    w, u = torch.ones(4, 4, dtype=torch.bfloat16), torch.full((4, 4), 2.0**-10)
    params = [torch.nn.Parameter(w.clone()) for _ in range(2)]
    for p in params:
        p.grad = torch.zeros(4, 4, dtype=torch.bfloat16)
    st.Muon(params, lr=2.0**-10, weight_decay=1.0, seed=5).step()
    for k, p in enumerate(params):
        assert torch.equal(p.detach(), sr.add_(w.clone(), -u, key=sr.Key(5).fold_in(k).at(1)))
