"""Training steps in one call, beside PyTorch's; and the proof of what they keep equal."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr.addons.optimizers import AdamOptimizerStep, SGDOptimizerStep
from popsr.errors import ArgumentTypeError, Error, GradientError, ShapeError, UnknownNameError

pytest.importorskip("onnx")
torch = pytest.importorskip("torch")

from onnx import helper  # noqa: E402

from popsr.bridge.onnx import export, load, prove  # noqa: E402
from tests_py.bridge.onnx.models import MODELS  # noqa: E402
from tests_py.bridge.onnx.net import Net  # noqa: E402
from tests_py.bridge.onnx.test_trained import batch_norm  # noqa: E402
from tests_py.bridge.onnx.test_trained import model as model_of  # noqa: E402
from tests_py.bridge.onnx.test_training import (  # noqa: E402
    BATCH,
    RATES,
    REPLICAS,
    data_of,
    losses_of_torch,
)


def rows(batch: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.reshape(REPLICAS, BATCH, *value.shape[1:]) for name, value in batch.items()}


@pytest.mark.parametrize("name", MODELS)
def test_losses_are_those_of_torch(name: str) -> None:
    trained = MODELS[name]()
    model = load(trained.proto, shapes={"N": BATCH})
    step = model.train_step("loss.out", SGDOptimizerStep(), replicas=REPLICAS, lr=RATES[name])
    assert popsr.prove(step).ok
    losses = [float(np.mean(step.run(rows(batch)))) for batch in data_of(trained)]
    np.testing.assert_allclose(losses, losses_of_torch(trained, model.initial, RATES[name]), rtol=1e-5)
    moved = step.weights()
    assert any((value != model.initial[each]).any() for each, value in moved.items())
    again = load(export(model, weights=moved))
    np.testing.assert_array_equal(next(iter(again.initial.values())), next(iter(moved.values())))


def recurrent(op_type: str, gates: int) -> Any:
    """The last rows of a layer and a linear layer; no loss."""
    net = Net(op_type.lower(), seed=3)
    x = net.input("x", (6, 2, 3))
    names = [
        net.normal(name, shape)
        for name, shape in (("W", (1, 5 * gates, 3)), ("R", (1, 5 * gates, 5)), ("B", (1, 10 * gates)))
    ]
    y = net.add(op_type, [x, *names], "layer", hidden_size=5)
    net.normal("out", (5, 1))
    net.output(net.add("MatMul", [y, "out"], "guess"))
    return net.model()


def counted_loop() -> Any:
    """A weight is added in each of five passes."""
    net = Net("loop")
    x = net.input("x", (6, 2, 3))
    net.normal("w", (3, 3))
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["v", "w"], ["m"]),
            helper.make_node("Tanh", ["m"], ["n"]),
            helper.make_node("Identity", ["c"], ["d"]),
        ],
        "body",
        [helper.make_tensor_value_info(name, kind, None) for name, kind in (("i", 7), ("c", 9), ("v", 1))],
        [helper.make_empty_tensor_value_info(name) for name in ("d", "n")],
    )
    made = net.add("Loop", [net.constant(np.array(5)), "", x], "loop", body=body)
    net.output(net.add("ReduceMean", [made], "guess", axes=[2], keepdims=1))
    return net.model()


REPEATED = {
    "LSTM": lambda: recurrent("LSTM", 4),
    "GRU": lambda: recurrent("GRU", 3),
    "RNN": lambda: recurrent("RNN", 1),
    "loop": counted_loop,
}


def squared_error(outputs: Mapping[str, Any], y: Any) -> Any:
    error = ops.square(outputs["guess.out"] - y)
    return ops.mean(error, range(error.rank))


@pytest.mark.parametrize("name", REPEATED)
def test_loops_and_recurrent_layers_train(name: str) -> None:
    """With a loss of popsr's ops, of targets that the model does not have."""
    model = load(REPEATED[name]())
    x = np.random.default_rng(0).normal(size=(2, 6, 2, 3)).astype(np.float32)
    shape = model.outputs["guess.out"].shape
    data = {"x": x, "y": x.sum(3).reshape(2, *shape)}
    step = model.train_step(
        squared_error,
        AdamOptimizerStep(),
        replicas=2,
        targets={"y": (shape, popsr.float32)},
        lr=0.05,
    )
    proof = prove(step)
    assert proof.ok
    assert set(model.variables) <= {each.path for each in proof.states}
    losses = [float(np.mean(step.run(data))) for _ in range(16)]
    assert losses[-1] < 0.8 * losses[0]
    assert all((value != model.initial[each]).any() for each, value in step.weights().items())


@pytest.mark.parametrize("name", REPEATED)
def test_gradients_that_would_stop_at_a_loop_are_refused(name: str) -> None:
    """Also where they reach the weights another way: they would be a part of the gradients."""
    model = load(REPEATED[name](), unroll=False)
    with pytest.raises(GradientError, match=r"gradients stop at a loop, got '(layer|loop) \("):
        model.train_step(squared_error, SGDOptimizerStep(), lr=0.1)


def test_an_optimizer_of_ones_own() -> None:
    proto = MODELS["mlp"]().proto
    step = load(proto, shapes={"N": 4}, replicas=2).train_step(
        optimizer=lambda weight, gradient: ops.var_updates.accumulate_(weight, gradient, -0.1)
    )
    assert repr(step) == "OnnxTraining[mlp: 2 replicas 2 inputs 4 weights]"
    assert popsr.prove(step.ir).ok


def test_options_of_load_are_read_once() -> None:
    """The step reads the model again: iterators that were given are not empty then."""
    proto = MODELS["mlp"]().proto
    shape, names = (4, 12), ["fc1.weight", "fc2.bias"]
    model = load(proto, shapes={"N": 4, "x": iter(shape)}, trainable=iter(names))
    step = model.train_step(None, SGDOptimizerStep(), lr=0.1)
    assert model.inputs["x"].shape == step.input_streams["x"].shape == shape
    assert list(model.variables) == list(step.variables) == names


def test_weights_of_groups_have_means_of_their_own() -> None:
    halves = popsr.ReplicaGrouping.from_assignment([0, 0, 1, 1])
    model = load(MODELS["mlp"]().proto, shapes={"N": 4}, replicas=4, groups={"fc1.weight": halves})
    proof = popsr.prove(model.train_step(None, SGDOptimizerStep(), lr=0.1))
    assert proof.ok
    assert {each.path: str(each.proved) for each in proof.states}["fc1.weight"] == "{0,1}{2,3}"


def quantised(net: Net, x: str, dynamic: bool) -> str:
    """A layer whose result is quantised: the gradient would be of the scale alone, or none."""
    made = net.add("MatMul", [x, net.normal("weight", (3, 1))])
    if dynamic:
        codes = net.add("DynamicQuantizeLinear", [made], "codes", outputs=3)
        scale, zero = "codes.out1", "codes.out2"
    else:
        scale, zero = net.constant(np.array(0.1, np.float32)), net.constant(np.array(0, np.int8))
        codes = net.add("QuantizeLinear", [made, scale, zero])
    return net.add("ReduceMean", [net.add("DequantizeLinear", [codes, scale, zero])], keepdims=0)


REFUSED: dict[str, tuple[Any, dict[str, Any], type[Error], str]] = {
    "no optimizer": (REPEATED["LSTM"], {}, ArgumentTypeError, "train_step: not an optimizer, got None"),
    "no such output": (
        REPEATED["LSTM"],
        {"loss": "loss", "optimizer": SGDOptimizerStep()},
        UnknownNameError,
        "train_step: loss is not an output, got 'loss', expected one of ['guess.out']",
    ),
    "several elements": (
        REPEATED["LSTM"],
        {"optimizer": SGDOptimizerStep(), "lr": 0.1},
        ShapeError,
        "train_step: loss is not one float, got float32 [6, 1, 2, 1]",
    ),
    "a name twice": (
        REPEATED["LSTM"],
        {"optimizer": SGDOptimizerStep(), "targets": {"x": ((1,), popsr.float32)}},
        UnknownNameError,
        "train_step: target has the name of an input, got 'x'",
    ),
    **{
        f"numbers that are quantised, {dynamic}": (
            functools.partial(model_of, functools.partial(quantised, dynamic=dynamic)),
            {"optimizer": SGDOptimizerStep(), "lr": 0.1},
            GradientError,
            "train_step: no gradient reaches a weight, got ['weight'], expected weights that the loss depends on",
        )
        for dynamic in (False, True)
    },
    "no weights": (
        lambda: model_of(lambda net, x: net.add("Pow", [x, net.weight("two", np.array(2, np.float32))])),
        {"optimizer": SGDOptimizerStep(), "lr": 0.1},
        GradientError,
        "train_step: model without weights, got ['two'] as constants, expected trainable= of load",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, options, kind, text = REFUSED[name]
    with pytest.raises(kind, match=re.escape(text)):
        load(make()).train_step(**options)


def test_statistics_of_a_norm_stay() -> None:
    """An epsilon and a variance that train would become negative: the loss of the documented loop was NaN."""
    model = load(model_of(batch_norm))
    loss = lambda outputs: ops.mean(ops.square(next(iter(outputs.values()))), [0, 1])  # noqa: E731
    step = model.train_step(loss, SGDOptimizerStep(), lr=10.0)
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    assert all(np.isfinite(step.run({"x": x})) for _ in range(5))
    assert set(step.weights()) == {"scale", "shift"}
