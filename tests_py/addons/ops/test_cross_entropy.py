"""Cross entropy of scores, beside NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, ops
from popsr.addons.ops.cross_entropy import cross_entropy, cross_entropy_with_grad
from popsr.addons.transforms.autodiff import autodiff
from tests_py.support.helpers import Array, assert_refused, assert_same_bits, dtype, evaluate, np_dtype
from tests_py.support.unchecked import unchecked

SAMPLES, CLASSES = 5, 4
TOLERANCE = {"float64": 1e-12, "float32": 1e-6, "float16": 4e-3}


def data(name: str, labels: str = "int32") -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 2, (SAMPLES, CLASSES)).astype(np_dtype(name))
    return scores, np.array([0, 3, 1, 3, 2], labels)


def oracle(x: Array, labels: Array, ignore: int | None, reduction: str) -> tuple[Array, Array]:
    """The loss, and the gradient of its sum."""
    x = x.astype(np.float64)
    p = np.exp(x - x.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    counts = np.ones(len(x)) if ignore is None else (labels != ignore).astype(np.float64)
    rows = np.arange(len(x))
    losses = -np.log(p[rows, labels]) * counts
    p[rows, labels] -= 1
    gradient = p * counts[:, None]
    if reduction == "none":
        return losses, gradient
    divisor = counts.sum() if reduction == "mean" else 1.0
    return np.asarray(losses.sum() / divisor), gradient / divisor


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignore", [None, 3, 7])
@pytest.mark.parametrize("labels", ["int32", "uint32"])
@pytest.mark.parametrize("name", TOLERANCE)
def test_values(name: str, labels: str, ignore: int | None, reduction: Any) -> None:
    x, y = data(name, labels)
    loss, gradient = oracle(x, y, ignore, reduction)
    found = evaluate(
        lambda x, y: (
            cross_entropy(x, y, ignore, reduction),
            *cross_entropy_with_grad(x, y, 1, ignore, reduction),
        ),
        [x, y],
        check=True,
    )
    near = {"rtol": TOLERANCE[name], "atol": TOLERANCE[name]}
    assert [a.dtype for a in found] == [np_dtype(name)] * 3
    unchecked(np.testing.assert_allclose)(found[0], loss, **near)
    assert_same_bits(found[1], found[0])
    unchecked(np.testing.assert_allclose)(found[2], gradient, **near)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_the_scale_is_of_the_gradient_only(as_tensor: bool) -> None:
    x, y = data("float32")

    def both(x: popsr.Tensor, y: popsr.Tensor) -> Any:
        scale: Any = popsr.constant(64.0) if as_tensor else 64.0
        return (*cross_entropy_with_grad(x, y), *cross_entropy_with_grad(x, y, scale, ignore_index=1))

    plain, _, scaled, gradient = evaluate(both, [x, y])
    loss, expected = oracle(x, y, 1, "mean")
    np.testing.assert_allclose(scaled, loss, rtol=1e-6)
    assert not np.isclose(plain, scaled)
    np.testing.assert_allclose(gradient, 64 * expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_transform_has_the_same_gradient(reduction: Any) -> None:
    x, y = data("float64")
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        graph = ir.create_graph(
            lambda x, y: cross_entropy(x, y, 3, reduction),
            popsr.TensorSpec(x.shape, dtype("float64")),
            popsr.TensorSpec(y.shape, popsr.int32),
        )
        gradient = autodiff(graph, grads_required=[graph.inputs[0]])
        call = ops.call_with_info(graph, x, y)
        values = gradient.grad_graph_info.inputs_dict(call)
        (dx,) = gradient.call(popsr.constant(2.0, popsr.float64), args=values)
        out = popsr.d2h_stream(dx.shape, dx.dtype)
        ops.host_store(out, dx)
    with popsr.Session(ir) as session:
        found = session.run()[out]
    np.testing.assert_allclose(found, 2 * oracle(x, y, 3, reduction)[1], rtol=1e-12, atol=1e-14)


def test_samples_may_have_several_dimensions() -> None:
    x = np.random.default_rng(1).normal(size=(2, 3, CLASSES)).astype(np.float32)
    y = np.array([[0, 1, 2], [3, 2, 1]], np.int32)
    (loss,) = evaluate(lambda x, y: cross_entropy(x, y), [x, y])
    np.testing.assert_allclose(loss, oracle(x.reshape(6, -1), y.reshape(6), None, "mean")[0], rtol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", TOLERANCE)
def test_labels_may_be_flat_or_have_further_axes(name: str, reduction: Any) -> None:
    """In C order: the same bits as labels of the shape of the rows."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2, 3, CLASSES)).astype(np_dtype(name))
    y = np.array([[0, 1, 2], [3, 2, 1]], np.int32)
    shapes = [(2, 3), (6,), (3, 2), (6, 1), (1, 2, 3)]

    def build(x: popsr.Tensor, *labels: popsr.Tensor) -> Any:
        return [t for each in labels for t in cross_entropy_with_grad(x, each, 2.0, 1, reduction)]

    found = evaluate(build, [x, *(y.reshape(shape) for shape in shapes)], check=True)
    loss, gradient = oracle(x.reshape(6, -1), y.reshape(6), 1, reduction)
    near = {"rtol": TOLERANCE[name], "atol": TOLERANCE[name]}
    for i, shape in enumerate(shapes):
        assert found[2 * i].shape == (shape if reduction == "none" else ())
        unchecked(np.testing.assert_allclose)(found[2 * i].reshape(loss.shape), loss, **near)
        unchecked(np.testing.assert_allclose)(found[2 * i + 1].reshape(6, -1), 2 * gradient, **near)
        assert_same_bits(found[2 * i].reshape(-1), found[0].reshape(-1))
        assert_same_bits(found[2 * i + 1], found[1])


def test_only_the_loss_with_gradient_takes_labels_of_any_shape() -> None:
    with popsr.Ir().main_graph:
        x, y, few = constant((2, 3, 4)), constant((6,), "int32"), constant((5,), "int32")
        for call in (
            lambda: cross_entropy(x, y),
            lambda: ops.nll_loss(ops.softmax(x, -1), y),
            lambda: cross_entropy_with_grad(x, few),
            lambda: ops.nll_loss_with_softmax_grad(x, few),
        ):
            with pytest.raises(
                errors.ShapeError, match=r"labels (has another shape|do not match), got .*expected"
            ):
                call()
        _, gradient = ops.nll_loss_with_softmax_grad(x, y, constant((6,)), reduction="none")
        assert gradient.shape == x.shape
        with pytest.raises(errors.ShapeError, match="loss_grad does not match the loss"):
            ops.nll_loss_with_softmax_grad(x, y, constant((2, 3)), reduction="none")


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "labels": (
        lambda f: f(constant((5, 4)), constant((4,), "int32")),
        errors.ShapeError,
        r"labels has another shape, got \(4,\), expected \(5,\)",
    ),
    "floating labels": (
        lambda f: f(constant((5, 4)), constant((5,))),
        errors.DTypeError,
        "labels are not integers, got float32",
    ),
    "integer scores": (
        lambda f: f(constant((5, 4), "int32"), constant((5,), "int32")),
        errors.DTypeError,
        "int32",
    ),
    "reduction": (
        lambda f: f(constant((5, 4)), constant((5,), "int32"), reduction="max"),
        errors.AttributeValueError,
        "unknown reduction, got 'max'",
    ),
    "ignored": (
        lambda f: f(constant((5, 4)), constant((5,), "int32"), ignore_index=0.5),
        errors.ArgumentTypeError,
        "ignore_index is not an int, got 0.5",
    ),
    "no tensor": (
        lambda f: f([1.0], constant((5,), "int32")),
        errors.ArgumentTypeError,
        "x is not a Tensor",
    ),
}


def constant(shape: tuple[int, ...], name: str = "float32") -> popsr.Tensor:
    return popsr.constant(np.zeros(shape, np_dtype(name)))


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("function", [cross_entropy, cross_entropy_with_grad])
def test_refused(name: str, function: Any) -> None:
    call, error, match = REFUSED[name]
    assert_refused(lambda: call(function), error, match)


def test_refused_scale() -> None:
    assert_refused(
        lambda: cross_entropy_with_grad(constant((5, 4)), constant((5,), "int32"), "two"),  # type: ignore[arg-type]
        errors.ArgumentTypeError,
        "loss_scaling",
    )


def test_names_of_the_package() -> None:
    assert addons.cross_entropy is addons.ops.cross_entropy is cross_entropy  # type: ignore[attr-defined]
    assert addons.ops.cross_entropy_with_grad is cross_entropy_with_grad
