"""Steps that cannot be read: one line each, with the user's."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import popsr.bridge.torch as bridge
from popsr.bridge import UnsupportedOpsError
from popsr.errors import ArgumentTypeError, ReplicaError, UnknownNameError, UnsupportedError

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as functional  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from tests_py.bridge.torch import models  # noqa: E402

X = torch.ones(4, 6)


def trace(step: Callable[..., Any], **options: Any) -> Any:
    return bridge.trace_step(step, models.mlp(), None, X, replicas=4, **options)


def line_of(function: Callable[..., Any], offset: int) -> str:
    """``file:line`` of a line of a function, as a pattern."""
    file, first = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    return re.escape(f"{file}:{first + offset}")


def as_float(model: Any, x: Any) -> Any:
    loss = model(x).sum()
    scale = float(loss)
    return loss * scale


def masked(model: Any, x: Any) -> Any:
    out = model(x)
    return out[out > 0].sum()


def wrong(model: Any, x: Any) -> Any:
    return x @ model(x)


@pytest.mark.parametrize(
    ("step", "line", "text"),
    [
        (as_float, 2, "Python needs a value of the data"),
        (masked, 2, "a shape or number of the data"),
        (wrong, 1, "cannot be traced"),
    ],
)
def test_data_dependent(step: Callable[..., Any], line: int, text: str) -> None:
    with pytest.raises(UnsupportedError, match=text) as caught:
        trace(step)
    assert re.search(line_of(step, line), str(caught.value)), caught.value
    assert "\n" not in str(caught.value)


def lacking(model: Any, x: Any) -> Any:
    y = torch.fft.rfft(x).abs()
    z = torch.linalg.qr(x)[0]
    return y.sum() + torch.linalg.svdvals(x).sum() + z.sum()


def test_all_gaps_are_named() -> None:
    with pytest.raises(UnsupportedOpsError) as caught:
        trace(lacking)
    found = {(gap.op.split(".")[1], gap.location.rsplit(":", 1)[1]) for gap in caught.value.gaps}
    first = inspect.getsourcelines(lacking)[1]
    assert ("linalg_qr", str(first + 2)) in found
    assert len({op for op, _ in found}) >= 2


def forgetful(model: Any, x: Any) -> Any:
    return functional.all_reduce(torch.linalg.qr(x)[0], "avg", models.world())


def test_conservative_steps_are_proved_and_not_run() -> None:
    made = trace(forgetful, unsupported="conservative")
    assert made.gaps
    assert made.prove().gaps == made.gaps
    with pytest.raises(UnsupportedOpsError):
        made.run()


def of_rank(model: Any, x: Any) -> Any:
    if dist.get_rank() == 2:
        return functional.all_reduce(model(x), "sum", dist.group.WORLD)
    return functional.all_reduce(model(x), "max", dist.group.WORLD)


def test_ranks_that_do_different_ops() -> None:
    with pytest.raises(UnsupportedError, match="ranks 0 and 2 run different ops") as caught:
        trace(of_rank)
    assert re.search(line_of(of_rank, 2), str(caught.value))
    assert re.search(line_of(of_rank, 3), str(caught.value))


def crossed(model: Any, x: Any) -> Any:
    groups = [dist.new_group([0, 1]), dist.new_group([1, 2, 3])]
    return functional.all_reduce(model(x), "sum", groups[dist.get_rank() > 0])


COUNT = torch.zeros(())


def counted(model: Any, x: Any) -> Any:
    COUNT.add_(1)
    return model(x)


def test_writes_of_tensors_from_outside() -> None:
    with pytest.raises(UnsupportedError, match="a tensor from outside of the step is written") as caught:
        trace(counted)
    assert re.search(line_of(counted, 1), str(caught.value)), caught.value
    assert COUNT == 0
    made = trace(lambda model, x: COUNT.clone().add_(model(x).sum()), equal=["x"])
    assert made.run()["result"][0] == pytest.approx(models.mlp()(X).sum().item(), rel=1e-5)


def strided(x: Any) -> Any:
    return torch.as_strided(x.t(), (2, 2), (1, 2))


def test_memory_of_views() -> None:
    module = make_fx(strided, tracing_mode="fake")(X)
    with pytest.raises(UnsupportedError, match="as_strided of a view"):
        bridge.from_fx(module, X, replicas=2)


def test_groups_that_do_not_fit() -> None:
    with pytest.raises(ReplicaError, match=r"do not fit together, got \[0, 1\] on rank 0"):
        trace(crossed)


def test_job_of_another_size() -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        with pytest.raises(ReplicaError, match="replicas do not match the process group, got 4, expected 2"):
            trace(as_float)
    finally:
        dist.destroy_process_group()


def test_dynamic_shapes() -> None:
    size = torch.export.Dim("n", min=2, max=9)
    program = torch.export.export(models.mlp(), (X,), dynamic_shapes={"x": {0: size}})
    with pytest.raises(UnsupportedError, match="dynamic shapes"):
        bridge.from_export(program, replicas=2)


def test_unknown_process_group() -> None:
    def reduced(x: Any) -> Any:
        return torch.ops._c10d_functional.all_reduce(x, "sum", "tensor parallel")

    module = make_fx(reduced, tracing_mode="fake")(X)
    with pytest.raises(ReplicaError, match="unknown process group, got 'tensor parallel'"):
        bridge.from_fx(module, X, replicas=4)
    made = bridge.from_fx(module, X, replicas=4, process_groups={"tensor parallel": [[0, 1], [2, 3]]})
    assert str(made.prove().facts.partition(made.results[0].tensor)) == "{0,1}{2,3}"


def sgd(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def scheduled(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    loss = models.plain_step(model, optimizer, x, y)
    optimizer.param_groups[0]["lr"] *= 0.5
    return loss


def rated_by_data(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    optimizer.param_groups[0]["lr"] = x.sum().item()
    return models.plain_step(model, optimizer, x, y)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: bridge.trace_step(as_float, 3, None, X, replicas=2),
            ArgumentTypeError,
            "model is not a module",
        ),
        (lambda: bridge.from_fx(models.mlp(), X, replicas=2), ArgumentTypeError, "module is not a graph"),
        (
            lambda: bridge.from_export(models.mlp(), replicas=2),
            ArgumentTypeError,
            "expected an ExportedProgram",
        ),
        (
            lambda: trace(masked, groups={"x": [[0, 1], [2, 3], [4, 5]]}),
            ReplicaError,
            "groups of other replicas, got 6",
        ),
        (
            lambda: bridge.trace_step(
                models.plain_step,
                models.mlp(),
                torch.optim.SGD([torch.nn.Parameter(X)], lr=0.1),
                *models.labelled(0),
                replicas=2,
            ),
            ArgumentTypeError,
            "a parameter that is not the model's",
        ),
        (
            lambda: bridge.trace_step(
                models.plain_step,
                models.mlp(),
                lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, dampening=0.5),
                *models.labelled(0),
                replicas=2,
            ),
            UnsupportedError,
            "the first step of SGD with dampening differs",
        ),
        (
            lambda: bridge.trace_step(scheduled, models.mlp(), sgd, *models.labelled(0), replicas=2),
            UnsupportedError,
            r"""the step changes "optimizer.param_groups\[0\]\['lr'\]" each time, got 0.05 and then 0.025""",
        ),
        (
            lambda: bridge.trace_step(rated_by_data, models.mlp(), sgd, *models.labelled(0), replicas=2),
            UnsupportedError,
            "sets an option of the optimizer to what depends on data or is of another kind, got 'lr' 0.1 and then a "
            "number of the step",
        ),
    ],
)
def test_arguments(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"replicas": 2**40}, ValueError, r"replicas: got 1099511627776, expected an int from 1 to 1048576"),
        ({"groups": "x"}, ArgumentTypeError, "groups is not a mapping, got 'x'"),
        ({"groups": {3: [0, 0]}}, ArgumentTypeError, "a pattern of groups is not a str, got 3"),
        ({"equal": 5}, ArgumentTypeError, "equal is not a sequence of patterns, got 5"),
        ({"equal": [3]}, ArgumentTypeError, "a pattern of equal is not a str, got 3"),
        ({"equal": range(10**12)}, ValueError, "equal has too many items, got 1000000000000"),
        ({"process_groups": "a"}, ArgumentTypeError, "process_groups is not a mapping, got 'a'"),
        (
            {"groups": {"*": "none"}},
            ArgumentTypeError,
            "groups are said otherwise, got 'none', expected lists",
        ),
        ({"groups": {"*": 0}}, ArgumentTypeError, "groups are said otherwise, got 0, expected lists"),
        ({"equal": ["first.wieght"]}, UnknownNameError, "got 'first.wieght', expected 'first.weight'"),
        ({"groups": {"third.*": [0, 1]}}, UnknownNameError, r"groups or equal of nothing, got 'third.\*'"),
        ({"equal": "X"}, UnknownNameError, "groups or equal of nothing, got 'X', expected 'x'"),
    ],
)
def test_declarations(given: dict[str, Any], error: type[Exception], text: str) -> None:
    graph = torch.export.export(models.mlp(), (X,))
    for read in (
        lambda **more: bridge.trace_step(lambda m, x: m(x), models.mlp(), None, X, **more),
        lambda **more: bridge.from_export(graph, **more),
    ):
        with pytest.raises(error, match=text):
            read(**{"replicas": 2, **given})


@pytest.mark.parametrize(
    "given",
    [{"equal": ["*", "x"]}, {"equal": "random seed"}, {"groups": {"*.bias": [0, 1]}}, {"equal": "result"}],
)
def test_patterns_that_fit_something_are_taken(given: dict[str, Any]) -> None:
    """A pattern need not be the first that fits, and a step need not draw random numbers."""
    bridge.trace_step(lambda m, x: m(x), models.mlp(), None, X, replicas=2, **given)


def test_initial_values_that_differ_in_their_group() -> None:
    def model() -> Any:
        made = models.mlp()
        with torch.no_grad():
            made.first.bias += dist.get_rank()
        return made

    with pytest.raises(ReplicaError, match=r"initial values of 'first.bias' differ inside its groups"):
        bridge.trace_step(lambda m, x: m(x), model, None, X, replicas=2, groups={"first.bias": [0, 0]})
    made = bridge.trace_step(lambda m, x: m(x), model, None, X, replicas=2)
    assert str(made.argument("first.bias").grouping.partition) == "{0}{1}"


def test_tensors_without_values() -> None:
    """A model that is made on the meta device says nothing of where replicas begin."""

    def make() -> Any:
        return torch.nn.Linear(4, 4, device="meta")

    def step(model: Any, x: Any) -> Any:
        return model(x).sum()

    text = "state 'weight' has no values, got a tensor on the meta device"
    with pytest.raises(UnsupportedError, match=text):
        bridge.trace_step(step, make, None, torch.ones(2, 4, device="meta"), replicas=2)
