"""Each argument of each op differs on a rank in turn: what is called equal has the same bits in torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from popsr.bridge.torch import trace_step  # noqa: E402
from popsr.errors import Error  # noqa: E402
from tests_py.bridge.torch.ops import more_rows, rows  # noqa: E402

OPS: dict[str, list[Any]] = {
    **rows.COMPARISONS,
    **rows.SHAPES,
    **more_rows.INDEXING,
    **rows.ARITHMETIC,
    **rows.FUNCTIONS,
    **more_rows.REDUCTIONS,
    **more_rows.BAGS,
    **more_rows.PRODUCTS,
    **more_rows.NETWORKS,
}
SLICE = 12  # the normal suite takes each twelfth


def changed(value: Any) -> Iterator[Any]:
    """Values of the same kind that are not this one."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
        yield float(value)
    elif isinstance(value, float):
        yield value * 1.25 + 0.125
        yield -value
    elif isinstance(value, list | tuple):
        for i, each in enumerate(value):
            for new in changed(each):
                yield [*value[:i], new, *value[i + 1 :]]


def variants() -> Iterator[tuple[str, Any, Any]]:
    """Name of an op, its arguments, and those of rank 1."""
    for name, calls in sorted(OPS.items()):
        for args, options in calls:
            for i, value in enumerate(args):
                for new in changed(value):
                    yield name, (args, options), ((*args[:i], new, *args[i + 1 :]), options)
            for key, value in options.items():
                for new in changed(value):
                    yield name, (args, options), (args, {**options, key: new})


def bits(op: Any, call: Any) -> Any:
    """Results of torch as bytes; None where it refuses the arguments or makes a sparse tensor."""
    try:
        made = op(*call[0], **call[1])
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
        return None
    results = [each for each in (made if isinstance(made, list | tuple) else [made]) if torch.is_tensor(each)]
    if any(each.layout is not torch.strided for each in results):
        return None
    return [(e.dtype, e.shape, e.contiguous().reshape(-1).view(torch.uint8).tolist()) for e in results]


def check(name: str, first: Any, second: Any) -> str:
    """Outcome of a step whose rank 1 has other arguments: what is claimed must be what torch does."""
    packet, overload = name.rsplit(".", 1)
    op = getattr(getattr(torch.ops.aten, packet), overload)
    expected = [bits(op, each) for each in (first, second)]
    if None in expected:
        return "invalid"

    def step(model: Any, x: Any) -> Any:
        args, options = second if dist.get_rank() == 1 else first
        with torch.no_grad():
            return op(*args, **options)

    try:
        made = trace_step(step, torch.nn.Identity(), None, torch.ones(1), replicas=2)
    except Error:
        return "refused"
    facts = made.prove().facts
    for number, result in enumerate(made.results):
        if len(facts.partition(result.tensor).blocks) == 1:
            assert expected[0][number] == expected[1][number], (name, first, second, result.path)
    return "proved"


def _outcomes(chosen: list[tuple[str, Any, Any]]) -> list[str]:
    return [check(*each) for each in chosen]


def test_some_arguments_of_a_rank() -> None:
    outcomes = _outcomes(list(variants())[::SLICE])
    assert outcomes.count("proved") >= 8
    assert outcomes.count("refused") >= 20


@pytest.mark.slow
@pytest.mark.parametrize("start", range(SLICE))
def test_arguments_of_a_rank(start: int) -> None:
    outcomes = _outcomes(list(variants())[start::SLICE])
    assert outcomes.count("proved") >= 4
