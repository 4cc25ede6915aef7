"""Steps of optimisers as they are made on other devices, with torch's operations: here on the CPU, beside the core."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popsr import errors, sr

torch = pytest.importorskip("torch")

from popsr.sr._torch import adam, base, roundings  # noqa: E402
from tests_py.support.unchecked import unchecked  # noqa: E402

BF16, F32, F64 = torch.bfloat16, torch.float32, torch.float64
FORMATS = (BF16, torch.float16, F32, torch.float8_e4m3fn)

# An optimiser, its options, and the formats of weights and moments.
ROWS: list[tuple[Any, dict[str, Any], Any, Any]] = [
    *((sr.torch.AdamW, {}, form, F32) for form in (*FORMATS, F64)),
    (sr.torch.AdamW, {"maximize": True, "weight_decay": 0.3, "betas": (0.8, 0.95)}, BF16, BF16),
    (sr.torch.AdamW, {"amsgrad": True}, BF16, torch.float16),
    (sr.torch.AdamW, {"lr": torch.tensor(0.01)}, BF16, F64),
    (sr.torch.Adam, {"weight_decay": 0.1}, BF16, F32),
    (sr.torch.Adam, {}, F32, BF16),
    *((sr.torch.SGD, {"momentum": 0.9, "weight_decay": 0.1}, form, F32) for form in FORMATS),
    (sr.torch.SGD, {}, BF16, F32),
    (sr.torch.SGD, {"momentum": 0.9, "nesterov": True, "lr": 1.0}, BF16, BF16),
    *((sr.torch.Lion, {"weight_decay": 0.1, "lr": 0.003}, form, F32) for form in FORMATS),
    (sr.torch.Adafactor, {}, BF16, None),
    (sr.torch.Muon, {}, BF16, F32),
    (sr.torch.Muon, {"nesterov": False, "weight_decay": 0.1}, F32, BF16),
]


def trained(kind: Any, options: dict[str, Any], form: Any, moments: Any) -> list[Any]:
    """Bytes of weights and states after three steps."""
    torch.manual_seed(3)
    shapes = ((7, 5), (3, 4)) if kind is sr.torch.Muon else ((7, 5), (11,), ())
    params = [torch.nn.Parameter(torch.randn(shape).to(form)) for shape in shapes]
    params[0] = torch.nn.Parameter(params[0].detach().t())  # not contiguous
    given = {"lr": 0.02, "seed": 5, **options} | ({} if moments is None else {"moments": moments})
    optimizer = kind(params, **given)
    for _ in range(3):
        for p in params:
            p.grad = torch.randn(p.shape).to(p.dtype)
        optimizer.step()
    kept = [each for p in params for _, each in sorted(optimizer.state[p].items())]
    return [each.detach().contiguous().reshape(-1).view(torch.uint8).tolist() for each in (*params, *kept)]


def square_root(x: Any) -> Any:
    """The root to nearest, as on GPUs; on CPUs torch takes it from MKL, which errs in the last bit."""
    return torch.from_numpy(np.asarray(np.sqrt(x.numpy())))


def as_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core refuses all weights, as those of another device."""
    monkeypatch.setattr(torch.Tensor, "sqrt", square_root)
    for module in (roundings, adam):
        monkeypatch.setattr(module, "is_portable", lambda _: True)
    monkeypatch.setattr(base, "row_of", lambda *_: None)
    monkeypatch.setattr(roundings, "add_", None)
    monkeypatch.setattr(roundings, "cast", None)
    monkeypatch.setattr(adam, "adamw_", None)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0].__name__} {row[1]} {row[2]} {row[3]}")
def test_bits_are_those_of_the_core(row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if row[1].get("amsgrad"):
        monkeypatch.setattr(torch.Tensor, "sqrt", square_root)
    wanted = trained(*row)
    as_elsewhere(monkeypatch)
    assert trained(*row) == wanted


def test_parts_of_large_weights_draw_the_numbers_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    row = ROWS[5]
    wanted = trained(*row)
    as_elsewhere(monkeypatch)
    monkeypatch.setattr(roundings, "_PART", 4)
    assert trained(*row) == wanted


def test_what_other_devices_do_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    p = torch.nn.Parameter(torch.ones(3, dtype=BF16, device="meta"))
    p.grad = torch.ones_like(p)
    optimizer = sr.torch.SGD([p], seed=0)
    with pytest.raises(
        errors.UnsupportedError, match=r"^SGD\.step: a parameter has no values, got one on meta"
    ):
        optimizer.step()
    assert int(optimizer.state[p].get("step", 0)) == 0
    as_elsewhere(monkeypatch)
    with pytest.raises(errors.UnsupportedError, match="a product has no portable form, got float64"):
        trained(sr.torch.SGD, {}, F64, F32)
    x, key = torch.ones(4), sr.Key(0)
    runs = sr._runs.Runs(*(unchecked(torch.tensor(each).numpy()) for each in ([0, 8], [2, 2])))
    with pytest.raises(
        errors.UnsupportedError, match="is in pieces of the whole, expected a part along axis 0"
    ):
        roundings.rounded("AdamW", x, BF16, key, runs)
