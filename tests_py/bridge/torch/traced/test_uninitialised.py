"""Memory that nothing has written differs on every replica until a step overwrites it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr.bridge.torch as bridge
from popsr.errors import UnsupportedError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

ALL, NONE = "{0,1}", "{0}{1}"
X = torch.arange(1.0, 9.0)


def _by_parts(x: Any) -> Any:
    t = torch.empty(8)
    for part in range(4):
        t[2 * part : 2 * part + 2] = x[2 * part : 2 * part + 2]
    return t


def _half(x: Any) -> Any:
    t = torch.empty(8)
    t[:4] = x[:4]
    return t


def _by_elements(x: Any) -> Any:
    t = torch.empty(2, 4)
    for i in range(8):
        t[i // 4][i % 4] = x[i]
    return t.view(8)


def _every_other(x: Any, starts: tuple[int, ...]) -> Any:
    t = torch.empty(8)
    for start in starts:
        t[start::2] = x[start::2]
    return t


def _diagonal(x: Any) -> Any:
    t = torch.empty(8, 8)
    t.diagonal().copy_(x)
    return t.diagonal()


def _filled_parts_of_views(x: Any) -> Any:
    t = torch.empty(8)
    for part in t.view(2, 4).t().split(2):
        part.copy_(x.view(4, 2)[:2])
    return t


def _out_in_part(x: Any) -> Any:
    t = torch.empty(8)
    torch.add(x[:4], 1, out=t[:4])
    return t


def _parameter(fill: bool) -> Any:
    p = nn.Parameter(torch.empty(8))
    return nn.init.ones_(p) if fill else p


WRITTEN: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda x: torch.zeros(8),
    "fill_": lambda x: torch.empty(8).fill_(2),
    "fill_ with a tensor": lambda x: torch.empty(8).fill_(x[0]),
    "zero_": lambda x: torch.empty(8).zero_(),
    "zeros_like": lambda x: torch.zeros_like(torch.empty(8)),
    "full_like": lambda x: torch.full_like(torch.empty(8), 3),
    "copy_": lambda x: torch.empty_like(x).copy_(x),
    "copy_ that repeats": lambda x: torch.empty(2, 8).copy_(x)[1],
    "copy_ of another type": lambda x: torch.empty(8, dtype=torch.float64).copy_(x).float(),
    "out=": lambda x: torch.mul(x, 2, out=torch.empty(8)),
    "out= that grows": lambda x: torch.mul(x, 2, out=torch.empty(0)),
    "cat with out=": lambda x: torch.cat([x[:4], x[4:]], out=torch.empty(8)),
    "by parts": _by_parts,
    "by elements": _by_elements,
    "every other": lambda x: _every_other(x, (0, 1)),
    "parts of views": _filled_parts_of_views,
    "the part that is read": lambda x: _half(x)[:4].repeat(2),
    "diagonal": _diagonal,
    "padded": lambda x: nn.functional.pad(_half(x)[1:3], (3, 3)),
    "parameter": lambda x: _parameter(True).detach(),
    "constructor that is filled": lambda x: torch.Tensor(8).fill_(1),
    "resize_ that shrinks": lambda x: x.repeat(2).resize_(8),
    "slice of all": lambda x: torch.empty(8)[:].copy_(x),
}

READ: dict[str, Callable[[Any], Any]] = {
    "empty": lambda x: torch.empty(8),
    "empty of int8": lambda x: torch.empty(8, dtype=torch.int8).float(),
    "empty of bool": lambda x: torch.empty(8, dtype=torch.bool).float(),
    "empty of bfloat16": lambda x: torch.empty(8, dtype=torch.bfloat16).float(),
    "empty_like": lambda x: x + torch.empty_like(x),
    "new_empty": lambda x: torch.cat([x.new_empty(2), x[:6]]),
    "empty_strided": lambda x: torch.empty_strided((8,), (1,)),
    "empty_permuted": lambda x: torch.empty_permuted((2, 4), (1, 0)).reshape(8),
    "constructor": lambda x: torch.Tensor(8),
    "constructor of a type": lambda x: torch.FloatTensor(2, 4).view(8),
    "new": lambda x: x.new(8),
    "parameter": lambda x: _parameter(False).detach(),
    "half": _half,
    "half by out=": _out_in_part,
    "every other": lambda x: _every_other(x, (1,)),
    "masked": lambda x: torch.empty(8).masked_fill_(x > 3, 1),
    "times zero": lambda x: torch.empty(8) * 0,
    "where": lambda x: torch.where(x > 3, x, torch.empty(8)),
    "resize_ that grows": lambda x: x[:4].clone().resize_(8),
}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("out", torch.zeros(8))


def traced(body: Callable[[Any], Any], **options: Any) -> Any:
    def step(model: Any, x: Any) -> None:
        with torch.no_grad():
            model.out.copy_(body(x))

    return bridge.trace_step(step, Model(), None, X, replicas=2, equal=["x"], **options)


@pytest.mark.parametrize("name", WRITTEN)
def test_memory_that_is_written_has_its_values(name: str) -> None:
    step = traced(WRITTEN[name])
    proof = step.prove()
    assert (str(proof.value("out").proved), proof.ok) == (ALL, True)
    expected = WRITTEN[name](X.clone()).numpy()
    assert all(np.array_equal(row, expected) for row in step.run()["out"])


@pytest.mark.parametrize("name", READ)
def test_memory_that_is_read_differs(name: str) -> None:
    step = traced(READ[name])
    proof = step.prove()
    assert (str(proof.value("out").proved), proof.ok) == (NONE, False)
    assert [each.path for each in step.states] == ["out"]
    [problem] = proof.problems
    assert "nothing was written to 'uninitialised memory', at test_uninitialised.py:" in problem
    assert problem.endswith("write all of it before it is read")
    step.run()
    gc.collect()


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "storage that is resized": (
        lambda x: (x.clone().untyped_storage().resize_(0), x)[1],
        r"a storage is resized at .*test_uninitialised.py:\d+",
    ),
    "set_ of a storage": (
        lambda x: torch.empty(0).set_(x.untyped_storage(), 0, (8,)),
        r"set_\.source_Storage\S* at .*test_uninitialised.py:\d+ is given a UntypedStorage",
    ),
    "fill_ of a storage": (lambda x: x.clone().untyped_storage().fill_(0), "is given a UntypedStorage"),
    "resize_ of a transposed tensor": (
        lambda x: x.repeat(2).view(2, 8).t().resize_(8),
        "resize of a view at",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_memory_that_cannot_be_followed_is_refused(name: str) -> None:
    body, told = REFUSED[name]
    with pytest.raises(UnsupportedError, match=told) as caught:
        traced(body)
    assert "\n" not in str(caught.value)
    gc.collect()


def test_memory_around_a_view_differs_where_a_gap_reads_it() -> None:
    proof = traced(lambda x: x.repeat(2)[:4].resize_(8), unsupported="conservative").prove()
    assert str(proof.value("out").proved) == NONE
