"""States that share memory, and tensors whose memory is set: as torch has them on ranks, or refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import popsr.bridge.torch as bridge
from popsr.errors import UnsupportedError
from tests_py.bridge.torch.claims import check_claims, fixed, rows_of

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as functional  # noqa: E402
from torch import nn  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402


class Plain(nn.Module):
    """A layer, a buffer with a view of it as another, and one more."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = fixed(nn.Linear(4, 4))
        self.register_buffer("flat", torch.arange(16.0))
        self.register_buffer("view", self.flat[4:8])
        self.register_buffer("out", torch.zeros(4))


class Flat(Plain):
    """The weight is a view of a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.lin.weight.data = self.flat.view(4, 4)


class Slices(nn.Module):
    """Weights are parts of one flat parameter, as flat optimisers make them."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = fixed(nn.Linear(4, 4))
        self.flat = nn.Parameter(torch.cat([self.lin.weight.data.flatten(), self.lin.bias.data]))
        self.lin.weight.data = self.flat.data[:16].view(4, 4)
        self.lin.bias.data = self.flat.data[16:]


class Tied(Plain):
    """Two parameters in one memory."""

    def __init__(self) -> None:
        super().__init__()
        self.other = fixed(nn.Linear(4, 4))
        self.other.weight.data = self.lin.weight.data


class Outer(Plain):
    """Weights that are parts of a tensor outside of the states."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = torch.cat([self.lin.weight.data.flatten(), self.lin.bias.data])
        self.lin.weight.data = self.whole[:16].view(4, 4)
        self.lin.bias.data = self.whole[16:]


class Half(Plain):
    """Two buffers that overlap in part."""

    def __init__(self) -> None:
        super().__init__()
        base = torch.zeros(12)
        self.register_buffer("first", base[:8])
        self.register_buffer("second", base[4:])


class Columns(Plain):
    """A buffer that is a column of another, and one that is a row for all."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.zeros(4, 4))
        self.register_buffer("column", self.matrix[:, 1])
        self.register_buffer("rows", torch.zeros(4).expand(3, 4))


def vector(m: Any, x: Any) -> None:
    made = nn.utils.parameters_to_vector(m.parameters())
    nn.utils.vector_to_parameters(made + x.sum(), m.parameters())


def vector_written(m: Any, x: Any) -> None:
    made = nn.utils.parameters_to_vector(m.parameters()).clone()
    nn.utils.vector_to_parameters(made, m.parameters())
    made.add_(x[0, 0])


def loaded(m: Any, x: Any) -> None:
    m.load_state_dict(
        {name: value + x[0, 0] for name, value in m.state_dict().items() if name != "view"}, False
    )


CONSTANT = torch.zeros(4)


def left_constant(m: Any, x: Any) -> None:
    m.out.add_(x[0])
    m.out = CONSTANT


def written_constant(m: Any, x: Any) -> None:
    m.out.data = CONSTANT
    m.out.add_(x[0])


def left_data(m: Any, x: Any) -> None:
    m.out.add_(1)
    m.out.data = x[0]


def data_then_write(m: Any, x: Any) -> None:
    made = x[0].clone()
    m.lin.bias.data = made
    made.add_(1)


FOLLOWED: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "two buffers, the whole is written": (Plain, lambda m, x: m.flat.add_(x[0].repeat(4))),
    "two buffers, the view is written": (Plain, lambda m, x: m.view.add_(x[0])),
    "a weight in a buffer that is written": (Flat, lambda m, x: m.flat.add_(x[0].repeat(4))),
    "a weight in a buffer, written": (Flat, lambda m, x: m.lin.weight.add_(x[0])),
    "two weights in one memory": (Tied, lambda m, x: m.other.weight.add_(x[0])),
    "weights in a flat parameter": (Slices, lambda m, x: m.flat.add_(x[0, 0])),
    "a part of a flat parameter": (Slices, lambda m, x: m.lin.bias.add_(x[0])),
    "apart in one memory": (Outer, lambda m, x: m.lin.weight.add_(x[0])),
    "overlap, not written": (Half, lambda m, x: m.out.add_(m.first[4:] + x[0])),
    "column, not written": (Columns, lambda m, x: m.out.add_(m.column + m.rows[0] + x[0])),
    "data of a parameter": (Plain, lambda m, x: setattr(m.lin.bias, "data", x[0].clone())),
    "data, and then a write": (Plain, data_then_write),
    "data of a buffer": (Plain, lambda m, x: setattr(m.out, "data", x[0] * 2)),
    "data.copy_": (Plain, lambda m, x: m.lin.bias.data.copy_(x[0])),
    "set_": (Plain, lambda m, x: m.out.set_(x[0] * 2)),
    "vector_to_parameters": (Plain, vector),
    "vector_to_parameters, and then a write": (Plain, vector_written),
    "_foreach_copy_": (Plain, lambda m, x: torch._foreach_copy_([m.out, m.lin.bias], [x[0], x[1]])),
    "load_state_dict": (Plain, loaded),
    "resize_ to the shape": (Plain, lambda m, x: m.out.resize_(4).copy_(x[0])),
    "out=": (Plain, lambda m, x: torch.add(x[0], 1, out=m.out)),
    "a buffer assigned anew": (Plain, lambda m, x: setattr(m, "out", x[0] * 1)),
}
REFUSED: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any], str]] = {
    "overlap in part": (
        Half,
        lambda m, x: m.first.add_(x[0, 0]),
        "tensors that share memory are written at .*test_storage.py:.* got 'first' and 'second'",
    ),
    "column": (
        Columns,
        lambda m, x: m.column.add_(x[0]),
        "tensors that share memory are written at .*test_storage.py:.* got 'matrix' and 'column'",
    ),
    "expanded": (
        Columns,
        lambda m, x: m.rows[0].add_(x[0]),
        "share memory are written at .*test_storage.py:.* got 'rows', which is expanded",
    ),
    "memory from outside, written": (
        Outer,
        lambda m, x: m.whole.add_(x[0, 0]),
        "a tensor from outside of the step is written at .*test_storage.py:",
    ),
    "memory from outside, read": (
        Outer,
        lambda m, x: m.out.copy_(m.whole[:4]),
        "a state is read at .*test_storage.py:.* got 'lin.weight'",
    ),
    "data in the memory of another": (
        Plain,
        lambda m, x: setattr(m.out, "data", m.flat[8:12]),
        "share memory only after the step, got 'flat' and 'out'",
    ),
    "a buffer that is a view of a weight": (
        Plain,
        lambda m, x: setattr(m, "out", m.lin.bias.detach()),
        "share memory only after the step, got 'lin.bias' and 'out'",
    ),
    "no view any more": (
        Plain,
        lambda m, x: setattr(m, "flat", m.flat + x[0, 0]),
        "share memory only before the step, got 'flat' and 'view'",
    ),
    "data of another shape": (
        Plain,
        lambda m, x: setattr(m.out, "data", x[0, :2].clone()),
        "a state of another kind, got 'out' of shape \\(2,\\), float32 after shape \\(4,\\)",
    ),
    "data of another type": (
        Plain,
        lambda m, x: setattr(m.out, "data", x[0].double()),
        ".data is set at .*test_storage.py:.* got FakeTensor of float64 in place of FakeTensor of float32",
    ),
    "resize_": (Plain, lambda m, x: m.out.resize_(2), "a state of another kind, got 'out' of shape \\(2,\\)"),
    "a Parameter anew": (
        Plain,
        lambda m, x: setattr(m.lin, "bias", nn.Parameter(x[0].clone())),
        "that is not the model's in this step is used at .*test_storage.py:.*, got 'lin.bias'",
    ),
    "load_state_dict that assigns": (
        Plain,
        lambda m, x: m.load_state_dict({"lin.bias": x[0] * 1}, strict=False, assign=True),
        "that is not the model's in this step is used at .*test_storage.py:.*, got 'lin.bias'",
    ),
    "swap_tensors": (
        Plain,
        lambda m, x: torch.utils.swap_tensors(m.out, x[0].clone()),
        "cannot be traced at .*test_storage.py:.* Cannot swap t1",
    ),
    "a new buffer": (
        Plain,
        lambda m, x: m.register_buffer("new", x[0].clone()),
        "the step adds a parameter or buffer, got 'new'",
    ),
    "a buffer removed": (
        Plain,
        lambda m, x: delattr(m, "out"),
        "the step removes a parameter or buffer, got 'out'",
    ),
    "a constant that the next step writes": (
        Plain,
        left_constant,
        "a state is written at .*test_storage.py:.* got 'out', expected a clone",
    ),
    "data that the next step writes": (
        Plain,
        left_data,
        "a state is written at .*test_storage.py:.* got 'out', expected a clone",
    ),
    "a constant that the step writes": (
        Plain,
        written_constant,
        "a tensor from outside of the step is written at .*test_storage.py:",
    ),
    "out= from outside": (
        Plain,
        lambda m, x: torch.add(x[0], 1, out=CONSTANT),
        "a tensor from outside of the step is written at .*test_storage.py:",
    ),
    "no gradients any more": (
        Plain,
        lambda m, x: m.lin.weight.requires_grad_(False),
        "got 'lin.weight' of shape \\(4, 4\\), float32 after shape \\(4, 4\\), float32, with gradient",
    ),
}


def step_of(body: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def step(model: Any, optimizer: Any, x: Any) -> None:
        with torch.no_grad():
            body(model, x)
        optimizer.step()

    return step


def sgd(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.share(2)
@pytest.mark.parametrize("name", FOLLOWED)
def test_followed(name: str) -> None:
    model, body = FOLLOWED[name]
    check_claims(step_of(body), model, sgd)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    model, body, text = REFUSED[name]
    with pytest.raises(UnsupportedError, match=text):
        bridge.trace_step(step_of(body), model, sgd, rows_of, replicas=2)


def flat_step(model: Any, optimizer: Any, x: Any) -> None:
    """As optimisers on one flat parameter: gradients of its parts are put together."""
    optimizer.zero_grad()
    model.lin.weight.grad = model.lin.bias.grad = None
    model.lin(x).square().mean().backward()
    grads = torch.cat([model.lin.weight.grad.flatten(), model.lin.bias.grad])
    model.flat.grad = functional.all_reduce(grads, "avg", dist.group.WORLD)
    optimizer.step()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_flat_optimizer(momentum: float) -> None:
    def optimizer(model: Any) -> Any:
        return torch.optim.SGD([model.flat], lr=0.1, momentum=momentum)

    assert check_claims(flat_step, Slices, optimizer).prove().ok


def write_alias(model: Any, x: Any, y: Any) -> None:
    x.add_(1)
    model.out.copy_(y[0])


def write_state(model: Any, x: Any, y: Any) -> None:
    model.out.copy_(y[0])


def test_batch_that_shares_memory_is_not_written() -> None:
    x = torch.ones(8, 4)
    with pytest.raises(UnsupportedError, match=r"share memory are written at .*, got 'x' and 'y'"):
        bridge.trace_step(write_alias, Plain(), None, x, x, replicas=2)
    made = bridge.trace_step(write_state, Plain(), None, x, x, replicas=2)
    assert made.run()["out"].tolist() == [[1.0] * 4] * 2


def test_batch_is_not_the_memory_of_a_written_state() -> None:
    model = Plain()
    with pytest.raises(UnsupportedError, match=re.escape("got 'out' and 'y'")):
        bridge.trace_step(write_state, model, None, torch.ones(4, 4), model.out.view(1, 4), replicas=2)


def test_graphs_that_write_memory_of_two_inputs() -> None:
    def written(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 2

    flat = torch.zeros(8)
    module = make_fx(written, tracing_mode="fake")(torch.zeros(4), torch.zeros(4))
    with pytest.raises(UnsupportedError, match=r"share memory are written, got 'a_1' and 'b_1'"):
        bridge.from_fx(module, flat[:4], flat[2:6], replicas=2)
    assert bridge.from_fx(module, flat[:4], flat[4:], replicas=2).prove().ok
