"""Gradients that modules write by hand: values, order, what is refused, and graphs that call such modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.addons.graph import GraphWithNamedArgs
from popsr.addons.module import Module, create_grad_graph_info
from popsr.addons.transforms.autodiff import autodiff
from popsr.addons.utils import OrderedDict
from popsr.transforms import ExpectedConnectionType
from tests_py.support.helpers import Array
from tests_py.support.unchecked import unchecked

F64 = popsr.float64
X = popsr.TensorSpec((3,), F64)
Tensor = popsr.Tensor


class Plain(Module):
    """``w * x**2 + b``, and ``x + b`` beside it."""

    def build(self, x: Tensor) -> tuple[Tensor, Tensor]:
        w = self.add_variable_input("w", partial(np.full, 3, 2.0), F64)
        b = self.add_variable_input("inner.b", partial(np.full, 3, 5.0), F64)
        return w * x * x + b, x + b


class ByHand(Plain):
    """The same with ``build_grad``; ``double`` scales what it returns, to know it by."""

    def __init__(self, factor: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.factor = factor

    def build(self, x: Tensor) -> tuple[Tensor, Tensor]:
        w = self.add_variable_input("w", partial(np.full, 3, 2.0), F64)
        b = self.add_variable_input("inner.b", partial(np.full, 3, 5.0), F64)
        square = x * x
        self.aux["x"], self.aux["square"], self.aux["w"], self.aux["two"] = x, square, w, 2.0
        self.aux["unused"] = square + 1.0
        return w * square + b, x + b

    def build_grad(self, dy: Tensor, dz: Tensor) -> Tensor:
        assert self.aux["square"] is self.aux["square"]
        self.var_grad["w"] = dy * self.aux["square"] * self.factor
        self.var_grad["inner.b"] = (dy + dz) * self.factor
        return (dy * self.aux["two"] * self.aux["w"] * self.aux["x"] + dz) * self.factor


@pytest.fixture
def ir() -> Iterator[popsr.Ir]:
    """A program, with its main graph entered in sequence."""
    program = popsr.Ir()
    with program.main_graph, popsr.in_sequence():
        yield program


VALUE, GRADIENT = np.array([1.5, -2.0, 0.25]), (np.array([1.0, 2.0, 3.0]), np.array([-1.0, 0.5, 4.0]))


def fetch(ir: popsr.Ir, tensors: Any) -> list[Array]:
    """Values of tensors of the main graph."""
    streams = [popsr.d2h_stream(t.shape, t.dtype) for t in tensors]
    for stream, t in zip(streams, tensors, strict=True):
        ops.host_store(stream, t)
    with popsr.Session(ir, check=True) as session:
        results = session.run()
    return [results[stream] for stream in streams]


def gradients(ir: popsr.Ir, made: Any, gradient: GraphWithNamedArgs, given: Any = GRADIENT) -> list[Array]:
    """Outputs of the gradient graph at ``VALUE``."""
    factories, graph = made
    info = graph.bind(factories.init()).call_with_info(popsr.constant(VALUE, F64))
    values = gradient.grad_graph_info.inputs_dict(info)
    return fetch(ir, gradient.call(*(popsr.constant(g, F64) for g in given), args=values))


EXPECTED = {  # of x, w and b
    "x": GRADIENT[0] * 4 * VALUE + GRADIENT[1],
    "w": GRADIENT[0] * VALUE**2,
    "inner.b": GRADIENT[0] + GRADIENT[1],
}


# Values and order


@pytest.mark.parametrize("make", [Plain, ByHand])
def test_gradients(make: Any, ir: popsr.Ir) -> None:
    made = make().create_graph(X)
    gradient = made[1].autodiff()
    info = gradient.grad_graph_info
    assert info.forward_graph is made[1].graph
    assert info.outputs == made[1].graph.inputs
    for found, expected in zip(gradients(ir, made, gradient), EXPECTED.values(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_the_gradient_graph(ir: popsr.Ir) -> None:
    _, graph = ByHand().create_graph(X)
    assert len(graph.graph.outputs) == 2
    before = graph.graph.outputs
    info = graph.autodiff().grad_graph_info
    x, w, _ = graph.graph.inputs
    # Provided tensors, then those taken from aux, in the order of first use.
    assert [c.connection_type for c in info.expected_inputs] == [ExpectedConnectionType.FwdGrad] * 2 + [
        ExpectedConnectionType.Fwd
    ] * 3
    assert info.inputs[:2] == before
    assert info.inputs[3:] == (w, x)
    # Of what is stored only what callers did not see and the gradient takes becomes an output.
    assert unchecked(graph.graph.outputs) == (*before, info.inputs[2])
    assert info.graph.name == "ByHand_grad_subgraph(1)"


def test_a_second_gradient_graph_is_like_the_first(ir: popsr.Ir) -> None:
    made = ByHand().create_graph(X)
    first, second = made[1].autodiff(), made[1].autodiff(force=True)
    assert first.graph is not second.graph
    assert first.grad_graph_info.inputs == second.grad_graph_info.inputs
    assert len(made[1].graph.outputs) == 3
    for found, expected in zip(gradients(ir, made, second), EXPECTED.values(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-15)


@pytest.mark.parametrize("wanted", [("w", "x"), ("inner.b",), ("x",), ("inner.b", "x", "w"), ()], ids=str)
def test_required_gradients(wanted: tuple[str, ...], ir: popsr.Ir) -> None:
    class Partial(ByHand):
        def build_grad(self, dy: Tensor, dz: Tensor) -> Any:
            result = super().build_grad(dy, dz)
            return result if "x" in wanted else None

    made = Partial().create_graph(X)
    named = {"x": made[1].graph.inputs[0], **made[1].args.to_dict()}
    gradient = made[1].autodiff(grads_required=[named[key] for key in wanted])
    order = sorted(wanted, key=lambda key: key != "x")  # keys without a variable are first
    assert gradient.grad_graph_info.outputs == tuple(named[key] for key in order)
    for found, key in zip(gradients(ir, made, gradient), order, strict=True):
        np.testing.assert_allclose(found, EXPECTED[key], rtol=1e-15)


def test_provided_gradients(ir: popsr.Ir) -> None:
    class One(ByHand):
        def build_grad(self, dz: Tensor) -> Tensor:  # type: ignore[override]
            self.var_grad["inner.b"] = dz
            return dz

    made = One().create_graph(X)
    x, _, b = made[1].graph.inputs
    gradient = made[1].autodiff([made[1].graph.outputs[1]], iter([x, b]))
    assert len(gradient.graph.inputs) == 1
    for found in gradients(ir, made, gradient, GRADIENT[1:]):
        np.testing.assert_array_equal(found, GRADIENT[1])


@pytest.mark.parametrize(("method", "factor"), [("auto", 3), ("build_grad", 3), ("autodiff", 1)])
def test_methods(method: Any, factor: int, ir: popsr.Ir) -> None:
    made = ByHand(3.0).create_graph(X)
    gradient = made[1].autodiff(method=method)
    np.testing.assert_allclose(gradients(ir, made, gradient)[1], factor * EXPECTED["w"], rtol=1e-15)


def test_info_of_a_graph_made_by_hand(ir: popsr.Ir) -> None:
    def forward(x: Tensor) -> Tensor:
        return x * x

    def backward(dy: Tensor, x: Tensor) -> Tensor:
        return dy * x * 2.0

    fwd, grad = ir.create_graph(forward, X), ir.create_graph(backward, X, X)
    info = create_grad_graph_info(
        ir,
        fwd,
        grad,
        OrderedDict(zip(grad.inputs, (fwd.outputs[0], fwd.inputs[0]), strict=True)),
        OrderedDict([(grad.outputs[0], fwd.inputs[0])]),
        {fwd.inputs[0]},
    )
    call = ops.call_with_info(fwd, popsr.constant(VALUE, F64))
    (dx,) = ops.call(grad, popsr.constant(GRADIENT[0], F64), inputs_dict=info.inputs_dict(call))
    np.testing.assert_allclose(fetch(ir, [dx])[0], 2 * VALUE * GRADIENT[0])


# Modules that call such modules


class Outer(Module):
    """``exp`` of the first output, through ``call_module``, any number of modules deep."""

    def __init__(self, inner: Module, **options: Any) -> None:
        super().__init__()
        self.inner, self.options = inner, options

    def build(self, x: Tensor) -> Tensor:
        y = self.call_module(self.inner, **self.options)(x)
        assert len(y) == len(self.inner_outputs)
        return ops.exp(y[0] * 0.125)

    @property
    def inner_outputs(self) -> tuple[int, ...]:
        """One number for each output."""
        return (0,) if isinstance(self.inner, Outer) else (0, 1)


def numeric(function: Callable[[Array], Array], at: Array) -> Array:
    """Central differences of the sum."""
    result = np.zeros_like(at)
    for i in range(at.size):
        step = np.zeros_like(at)
        step[i] = 1e-6
        result[i] = (function(at + step).sum() - function(at - step).sum()) / 2e-6
    return result


def plain(x: Array) -> Array:
    return np.asarray(np.exp((2 * x * x + 5) * 0.125))


@pytest.mark.parametrize("factor", [1.0, 3.0])
@pytest.mark.parametrize("depth", [1, 2])
def test_gradients_through_called_modules(factor: float, depth: int, ir: popsr.Ir) -> None:
    module: Module = ByHand(factor)
    for _ in range(depth):
        module = Outer(module)
    made = module.create_graph(X)
    key = ".".join(["Outer"] * (depth - 1) + ["ByHand"])
    assert made[0].keys_flat() == [f"{key}.w", f"{key}.inner.b"]
    assert unchecked(ByHand) not in {type(g) for g in made[1].called_graphs_grad_info}
    gradient = autodiff(made[1], grads_required=[made[1].graph.inputs[0]])
    found = gradients(ir, made, gradient, [np.ones(3)])[0]
    function = plain if depth == 1 else lambda x: np.exp(plain(x) * 0.125)
    np.testing.assert_allclose(found, factor * numeric(function, VALUE), rtol=1e-6)


def test_called_modules_can_be_made_again(ir: popsr.Ir) -> None:
    module = Outer(ByHand(), name="part")
    first, second = module.create_graph(X), module.create_graph(X)
    assert first[0].keys_flat() == second[0].keys_flat() == ["part.w", "part.inner.b"]
    assert not first[1].called_graphs_grad_info.keys() & second[1].called_graphs_grad_info.keys()
    autodiff(second[1])


def test_gradients_of_some_tensors_of_a_called_module(ir: popsr.Ir) -> None:
    class OnlyX(ByHand):
        def build_grad(self, dy: Tensor) -> Tensor:  # type: ignore[override]
            return dy * 10.0

    seen = []

    def provided(graph: GraphWithNamedArgs) -> list[Tensor]:
        seen.append(graph)
        return [graph.graph.outputs[0]]

    made = Outer(
        OnlyX(), grads_provided=provided, grads_required=lambda graph: [graph.graph.inputs[0]]
    ).create_graph(X)
    gradient = autodiff(made[1], grads_required=[made[1].graph.inputs[0]])
    found = gradients(ir, made, gradient, [np.ones(3)])[0]
    np.testing.assert_allclose(found, 10 * 0.125 * plain(VALUE), rtol=1e-12)
    assert len(seen) == 1


@pytest.mark.parametrize("method", ["autodiff", "none"])
def test_modules_without_build_grad_can_be_called(method: Any, ir: popsr.Ir) -> None:
    made = Outer(Plain(), autodiff=method).create_graph(X)
    assert len(made[1].called_graphs_grad_info) == (method == "autodiff")
    gradient = autodiff(made[1], grads_required=[made[1].graph.inputs[0]])
    found = gradients(ir, made, gradient, [np.ones(3)])[0]
    np.testing.assert_allclose(found, numeric(plain, VALUE), rtol=1e-6)


def test_graphs_that_are_called_without_their_gradient_are_unsafe(ir: popsr.Ir) -> None:
    for module in (Outer(ByHand(), autodiff="none"), Outer(Outer(ByHand(), autodiff="none"))):
        graph = module.create_graph(X)[1]
        for differentiate in (autodiff, lambda g: popsr.transforms.autodiff(g.graph)):
            with pytest.raises(errors.GraphError, match=r"marked as unsafe to autodiff.*ByHand"):
                differentiate(graph)
    # Arguments of autodiff are used.
    inner = ByHand().create_graph(X)

    class Holds(Module):
        def build(self, x: Tensor) -> Tensor:
            return inner[1].bind(self.add_variable_inputs("part", inner[0])).call(x)[0]

    known = inner[1].autodiff()
    outer = Holds().create_graph(X)
    gradient = autodiff(outer[1], called_graphs_grad_info=unchecked({inner[1]: known}))
    found = gradients(ir, outer, gradient, GRADIENT[:1])
    np.testing.assert_allclose(found[0], GRADIENT[0] * 4 * VALUE)


# Calling such modules inside others


class Inlining(Module):
    """Calls a part directly."""

    def __init__(self, part: Module) -> None:
        super().__init__()
        self.part = part

    def build(self, x: Tensor) -> Tensor:
        y, z = self.part(x)  # type: ignore[misc]
        return y + z


def test_inlining(ir: popsr.Ir) -> None:
    text = "ByHand: build_grad of a module inside another graph is not used"
    with pytest.raises(errors.GraphError, match=text):
        Inlining(ByHand()).create_graph(X)
    with pytest.warns(UserWarning, match=text):
        Inlining(ByHand(grad_inlining_error="warning")).create_graph(X)
    made = Inlining(ByHand(7.0, grad_inlining_error="none")).create_graph(X)
    gradient = autodiff(made[1])
    ones = [GRADIENT[0]]
    found = gradients(ir, made, gradient, ones)
    np.testing.assert_allclose(found[0], GRADIENT[0] * (4 * VALUE + 1), rtol=1e-14)


# Refusals


def returns(*values: Any) -> Any:
    """A module whose ``build_grad`` returns something, with all gradients of variables."""

    class Returning(ByHand):
        def build_grad(self, dy: Tensor, dz: Tensor) -> Any:
            super().build_grad(dy, dz)
            return [value(dy) if callable(value) else value for value in values]

    return Returning


def does(action: Callable[[Any, Tensor], Any]) -> Any:
    """A module whose ``build_grad`` does something first."""

    class Doing(ByHand):
        def build_grad(self, dy: Tensor, dz: Tensor) -> Any:
            action(self, dy)
            return super().build_grad(dy, dz)

    return Doing


def with_build_grad(function: Any) -> Any:
    return type("Other", (ByHand,), {"build_grad": function})


def scalar(dy: Tensor) -> Tensor:
    return ops.sum(dy)


REFUSED: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "missing": (
        with_build_grad(lambda self, dy, dz: dy),
        {},
        errors.GraphError,
        r"missing variable gradients.*'w', 'inner\.b'",
    ),
    "too many": (returns(scalar, scalar), {}, errors.GraphError, r"Too many outputs, got 2.*'x'"),
    "not enough": (returns(), {}, errors.GraphError, "Not enough outputs, got 0"),
    "shape": (
        returns(scalar),
        {},
        errors.ShapeError,
        r"wrong shape of output 0.*'x', got \(\), expected \(3,\)",
    ),
    "no tensor": (returns(3.0), {}, TypeError, "returned no Tensor, got 3.0"),
    "shape of a variable": (
        does(lambda m, dy: m.var_grad.__setitem__("w", scalar(dy))),
        {},
        errors.ShapeError,
        r"wrong shape of the gradient of 'w', got \(\), expected \(3,\)",
    ),
    "type of a variable": (
        does(lambda m, dy: m.var_grad.__setitem__("w", 1.0)),
        {},
        TypeError,
        "'w' is not a Tensor",
    ),
    "unknown variable": (
        does(lambda m, dy: m.var_grad.__setitem__("b", dy)),
        {},
        KeyError,
        r"got 'b'.*inner\.b",
    ),
    "variable read too early": (
        does(lambda m, dy: m.var_grad["w"]),
        {},
        KeyError,
        "no gradient yet, got 'w'",
    ),
    "unknown key": (does(lambda m, dy: m.aux["z"]), {}, KeyError, "aux: no such key, got 'z'"),
    "aux written": (
        does(lambda m, dy: m.aux.__setitem__("z", 1)),
        {},
        errors.StateError,
        "written in build_grad",
    ),
    "one parameter": (
        with_build_grad(lambda self, dy: dy),
        {},
        TypeError,
        "takes 1 gradients, got 2 provided",
    ),
    "three parameters": (with_build_grad(lambda self, a, b, c: a), {}, TypeError, "takes 3 gradients, got 2"),
    "any number": (with_build_grad(lambda self, *args: None), {}, TypeError, r"other parameters.*\['args'\]"),
    "keyword": (
        with_build_grad(lambda self, a, b, *, c=1: None),
        {},
        TypeError,
        r"other parameters.*\['c'\]",
    ),
    "provided twice": (
        ByHand,
        {"grads_provided": lambda g: [g.outputs[0]] * 2},
        ValueError,
        "grads_provided has.*twice",
    ),
    "provided input": (
        ByHand,
        {"grads_provided": lambda g: g.inputs},
        ValueError,
        "grads_provided.*another graph",
    ),
    "required twice": (
        ByHand,
        {"grads_required": lambda g: [g.inputs[0]] * 2},
        ValueError,
        "grads_required.*twice",
    ),
    "required output": (
        ByHand,
        {"grads_required": lambda g: g.outputs},
        ValueError,
        "grads_required.*another graph",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, ir: popsr.Ir) -> None:
    make, options, error, match = REFUSED[name]
    graph = make().create_graph(X)[1]
    with pytest.raises(error, match=match) as caught:
        graph.autodiff(**{key: value(graph.graph) for key, value in options.items()})
    assert isinstance(caught.value, popsr.Error)
    assert "\n" not in str(caught.value)
    assert len(graph.graph.outputs) == 2
    assert popsr.gcg() is ir.main_graph


def test_refused_calls(ir: popsr.Ir) -> None:
    class Reads(ByHand):
        def build(self, x: Tensor) -> Any:
            return self.aux["x"]

    with pytest.raises(errors.StateError, match="aux: read in build, got 'x'"):
        Reads().create_graph(X)
    with pytest.raises(ValueError, match=r"no cache for modules with build_grad"):
        ByHand(cache=True)
    with pytest.raises(ValueError, match="unknown grad_inlining_error, got 'loud'"):
        ByHand(grad_inlining_error="loud")
    graph = Plain().create_graph(X)[1]
    with pytest.raises(ValueError, match=r"no build_grad, got from_module .*Plain"):
        graph.autodiff(method="build_grad")
    with pytest.raises(ValueError, match="unknown method, got 'magic'"):
        graph.autodiff(method="magic")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown autodiff, got 'magic'"):
        Plain().call_module(Plain(), autodiff="magic")  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match=r"Plain does not define build_grad\(\)"):
        Plain().build_grad()
    graph.autodiff()
    with pytest.raises(RuntimeError, match=r"already differentiated.*force=True"):
        graph.autodiff()
    autodiff(graph)  # does not ask
    called = ByHand().create_graph(X)
    called[1].bind(called[0].init()).call(popsr.constant(VALUE, F64))
    with pytest.raises(errors.GraphError, match="called already"):
        called[1].autodiff()
