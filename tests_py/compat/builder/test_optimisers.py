"""Optimisers against their formulas in float64, over steps, micro batches and replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from popsr import errors
from popsr.compat import popart
from tests_py.compat.builder.programs import Linear, options_of

pytest.importorskip("onnx")

Array = np.ndarray[Any, Any]
State = dict[str, Any]
STEPS, REPLICAS, MICRO = 4, 2, 2


class Case(NamedTuple):
    """An optimiser, and the next weight by weight, gradient and what is kept, for a pass over arrays."""

    make: Callable[[], popart.Optimizer]
    rule: Callable[[Array, Array, State], Array]


def _sgd(rate: float, decay: float, momentum: float, dampening: float, nesterov: bool) -> Case:
    def rule(w: Array, g: Array, s: State) -> Array:
        g = g + decay * w
        v = s["v"] = momentum * s.get("v", 0) + (1 - dampening) * g
        return w - rate * (g + momentum * v if nesterov else v)

    values = {
        "defaultLearningRate": (rate, False),
        "defaultWeightDecay": (decay, True),
        "defaultMomentum": (momentum, False),
        "defaultDampening": (dampening, True),
        "nesterov": nesterov,
        "lossScaling": (8.0, False),
    }
    return Case(lambda: popart.SGD(values), rule)


def _adam(mode: popart.AdamMode, decay_mode: popart.WeightDecayMode) -> Case:
    rate, decay, b1, b2, eps, most = 0.1, 0.02, 0.8, 0.9, 1e-3, 1.5

    def rule(w: Array, g: Array, s: State) -> Array:
        plain = decay_mode == popart.WeightDecayMode.Decay
        g = g if plain else g + decay * w
        t = s["t"] = s.get("t", 0) + 1
        m = s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
        if mode == popart.AdamMode.AdaMax:
            v = s["v"] = np.maximum(b2 * s.get("v", 0), abs(g))
            x = m / (1 - b1**t) / (v + eps)
        else:
            v = s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
            if mode in (popart.AdamMode.Adam, popart.AdamMode.Lamb):
                m, v = m / (1 - b1**t), v / (1 - b2**t)
            x = m / (np.sqrt(v) + eps)
        x = x + decay * w if plain else x
        ratio = 1.0
        if mode in (popart.AdamMode.Lamb, popart.AdamMode.LambNoBias):
            ratio = float(min(float(np.linalg.norm(w)), most) / np.linalg.norm(x))
        return w - rate * ratio * x

    values = {
        "defaultLearningRate": (rate, False),
        "defaultWeightDecay": (decay, False),
        "defaultBeta1": (b1, True),
        "defaultBeta2": (b2, False),
        "defaultEps": (eps, True),
        "maxWeightNorm": (most, True),
        "lossScaling": (4.0, True),
    }
    return Case(lambda: popart.Adam(values, mode, decay_mode), rule)


def _adaptive(mode: popart.AdaptiveMode, momentum: float) -> Case:
    rate, decay, alpha, eps = 0.1, 0.02, 0.9, 1e-2

    def rule(w: Array, g: Array, s: State) -> Array:
        square = s.get("a", 0)
        s["a"] = (
            square + g * g if mode == popart.AdaptiveMode.AdaGrad else alpha * square + (1 - alpha) * g * g
        )
        if mode == popart.AdaptiveMode.AdaDelta:
            x = g * np.sqrt(s.get("x", 0) + eps) / np.sqrt(s["a"] + eps)
            s["x"] = alpha * s.get("x", 0) + (1 - alpha) * x * x
        else:
            root = s["a"]
            if mode == popart.AdaptiveMode.CenteredRMSProp:
                s["m"] = alpha * s.get("m", 0) + (1 - alpha) * g
                root = root - s["m"] ** 2
            x = g / (np.sqrt(root) + eps)
        x = s["v"] = momentum * s.get("v", 0) + x
        return w - rate * (x + decay * w)

    values = {
        "defaultLearningRate": (rate, False),
        "defaultWeightDecay": (decay, True),
        "defaultAlpha": (alpha, True),
        "defaultMomentum": (momentum, True),
        "defaultEps": (eps, True),
    }
    return Case(lambda: popart.Adaptive(values, mode), rule)


CASES: dict[str, Case] = {
    "sgd": _sgd(0.1, 0.0, 0.0, 0.0, False),
    "sgd decay": _sgd(0.1, 0.05, 0.0, 0.0, False),
    "sgd momentum": _sgd(0.1, 0.05, 0.9, 0.3, False),
    "sgd nesterov": _sgd(0.1, 0.05, 0.9, 0.0, True),
    **{f"adam {mode.name}": _adam(mode, popart.WeightDecayMode.Decay) for mode in popart.AdamMode},
    "adam l2": _adam(popart.AdamMode.Adam, popart.WeightDecayMode.L2Regularization),
    **{f"adaptive {mode.name}": _adaptive(mode, 0.0) for mode in popart.AdaptiveMode},
    "adaptive momentum": _adaptive(popart.AdaptiveMode.RMSProp, 0.8),
}


@pytest.mark.parametrize("mean", [False, True], ids=["Sum", "Mean"])
@pytest.mark.parametrize("name", CASES)
def test_weights_follow_the_formula(name: str, mean: bool) -> None:
    case, rng = CASES[name], np.random.default_rng(3)
    w = rng.normal(size=(2, 3)).astype(np.float32)
    program, options = Linear(w), options_of(REPLICAS, MICRO)
    if mean:
        options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    session = program.session(case.make(), options=options)
    wanted, state = w.astype(np.float64), State()
    for _ in range(STEPS):
        x = rng.normal(size=(MICRO, REPLICAS, 2, 3)).astype(np.float32)
        program.step(session, x)
        wanted = case.rule(wanted, x.astype(np.float64).sum((0, 1)) / (4 if mean else 1), state)
    np.testing.assert_allclose(program.weight(session), wanted, rtol=2e-5, atol=2e-5)


def test_values_that_may_change() -> None:
    program = Linear(np.zeros(3, np.float32))
    session = program.session(popart.SGD({"defaultLearningRate": (0.5, False)}))
    x = np.ones(3, np.float32)
    program.step(session, x)
    session.updateOptimizerFromHost(popart.SGD({"defaultLearningRate": (0.25, False)}))
    program.step(session, x)
    np.testing.assert_array_equal(program.weight(session), -0.75 * x)
    for other in (
        popart.SGD({"defaultLearningRate": (0.25, True)}),
        popart.SGD({"defaultLearningRate": (0.25, False), "defaultMomentum": (0.9, True)}),
        popart.Adam({"defaultLearningRate": (0.25, False)}),
    ):
        with pytest.raises(errors.SessionError, match="updateOptimizerFromHost"):
            session.updateOptimizerFromHost(other)


def test_values_of_one_weight() -> None:
    builder = popart.Builder()
    ids = [builder.addInitializedInputTensor(np.zeros(2, np.float32), name) for name in "vw"]
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.add(ids)], popart.ReductionType.Sum)
    optimizer = popart.SGD({"defaultLearningRate": (0.5, True)})
    optimizer.insertSpecific("w", {"learningRate": (0.25, False), "weightDecay": (0.0, True)})
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, []),
        loss,
        optimizer,
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    session.run(popart.PyStepIO({}, {}))
    found = {name: np.zeros(2, np.float32) for name in "vw"}
    session.readWeights(popart.PyWeightsIO(found))
    assert {name: value.tolist() for name, value in found.items()} == {"v": [-0.5, -0.5], "w": [-0.25, -0.25]}


def test_gradients_are_clipped_by_their_norm() -> None:
    clip = popart.ClipNormSettings.clipAllWeights(2.5)
    program = Linear(np.zeros(2, np.float32))
    session = program.session(popart.ConstSGD(1.0, clip_norm_settings=[clip]))
    program.step(session, np.array([3.0, 4.0], np.float32))
    np.testing.assert_allclose(program.weight(session), [-1.5, -2.0], rtol=1e-6)
    with pytest.raises(errors.UnknownNameError, match="clipWeights of what has no gradient, got 'v'"):
        program.session(
            popart.ConstSGD(1.0, clip_norm_settings=[popart.ClipNormSettings.clipWeights(["v"], 1.0)])
        )


def test_states_are_saved_and_go_on(tmp_path: Any) -> None:
    optimizer = popart.SGD({"defaultLearningRate": (0.5, False), "defaultMomentum": (0.5, True)})
    program, x = Linear(np.zeros(2, np.float32)), np.ones(2, np.float32)
    session = program.session(optimizer)
    program.step(session, x)
    session.modelToHost(tmp_path / "model.onnx")
    program.step(session, x)
    wanted = program.weight(session)
    assert program.weight(session, "Accl___w").tolist() == [1.5, 1.5]
    session.resetHostWeights(tmp_path / "model.onnx")
    program.step(session, x)
    np.testing.assert_array_equal(program.weight(session), wanted)


def test_models_are_saved_again(tmp_path: Any) -> None:
    """A session of a saved model saves it, with one entry for its step."""
    program, paths = Linear(np.zeros(2, np.float32)), [tmp_path / f"{i}.onnx" for i in range(2)]
    session = program.session(popart.SGD({"defaultMomentum": (0.5, True)}))
    program.step(session, np.ones(2, np.float32))
    session.modelToHost(paths[0])
    again = popart.InferenceSession(
        str(paths[0]), popart.DataFlow(1, []), popart.DeviceManager().createCpuDevice()
    )
    again.prepareDevice()
    again.modelToHost(paths[1])
    session.resetHostWeights(paths[1])
    np.testing.assert_array_equal(program.weight(session, "Accl___w"), np.ones(2))


BAD: dict[str, Callable[[], Any]] = {
    "SGD: unknown value, got 'defaultLearnRate', expected 'defaultLearningRate'": lambda: popart.SGD(
        {"defaultLearnRate": 1}
    ),
    "SGD: defaultLearningRate is not a number, got str 'x'": lambda: popart.SGD({"defaultLearningRate": "x"}),
    "SGD: defaultLearningRate is not a value": lambda: popart.SGD({"defaultLearningRate": (1, True, 2)}),
    "Adam: mode is not": lambda: popart.Adam({}, "Adam"),  # type: ignore[arg-type]
    "SGD: values is not a mapping": lambda: popart.SGD(3),  # type: ignore[arg-type]
    "SGD: unknown value, got 'rate'": lambda: popart.SGD({}).insertSpecific("w", {"rate": 1}),
    "ClipNormSettings: maxNorm": lambda: popart.ClipNormSettings.clipAllWeights(-1),
}


@pytest.mark.parametrize("text", BAD)
def test_wrong_values(text: str) -> None:
    with pytest.raises(errors.Error, match=f"^{text}"):
        BAD[text]()
