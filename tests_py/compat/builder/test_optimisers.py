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


def _adaptive(mode: popart.AdaptiveMode, momentum: float, tf: bool = False) -> Case:
    rate, decay, alpha, eps = 0.1, 0.02, 0.9, 1e-2

    def rule(w: Array, g: Array, s: State) -> Array:
        square = s.get("a", float(tf))
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
            x = g / np.sqrt(root + eps) if tf else g / (np.sqrt(root) + eps)
        x = s["v"] = momentum * s.get("v", 0) + x
        return w - rate * (x + decay * w)

    values = {
        "defaultLearningRate": (rate, False),
        "defaultWeightDecay": (decay, True),
        "defaultAlpha": (alpha, True),
        "defaultMomentum": (momentum, True),
        "defaultEps": (eps, True),
    }
    return Case(lambda: popart.Adaptive(values, mode, rmsprop_tf_variant=tf), rule)


CASES: dict[str, Case] = {
    "sgd": _sgd(0.1, 0.0, 0.0, 0.0, False),
    "sgd decay": _sgd(0.1, 0.05, 0.0, 0.0, False),
    "sgd momentum": _sgd(0.1, 0.05, 0.9, 0.3, False),
    "sgd nesterov": _sgd(0.1, 0.05, 0.9, 0.0, True),
    "sgd nesterov dampening": _sgd(0.1, 0.05, 0.9, 0.3, True),
    **{f"adam {mode.name}": _adam(mode, popart.WeightDecayMode.Decay) for mode in popart.AdamMode},
    "adam l2": _adam(popart.AdamMode.Adam, popart.WeightDecayMode.L2Regularization),
    **{f"adaptive {mode.name}": _adaptive(mode, 0.0) for mode in popart.AdaptiveMode},
    "adaptive momentum": _adaptive(popart.AdaptiveMode.RMSProp, 0.8),
    "adaptive tf": _adaptive(popart.AdaptiveMode.RMSProp, 0.0, True),
    "adaptive tf momentum": _adaptive(popart.AdaptiveMode.RMSProp, 0.8, True),
    "adaptive tf centred": _adaptive(popart.AdaptiveMode.CenteredRMSProp, 0.8, True),
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


FIRST_STATES: dict[str, tuple[popart.Optimizer, dict[str, float]]] = {
    "sgd": (popart.SGD({"defaultMomentum": (0.5, True)}), {"Accl___": 0}),
    "adam": (popart.Adam({}), {"Accl1___": 0, "Accl2___": 0, "Step___": 0}),
    "adam without bias": (popart.Adam({}, popart.AdamMode.AdamNoBias), {"Accl1___": 0, "Accl2___": 0}),
    "adamax": (popart.Adam({}, popart.AdamMode.AdaMax), {"Accl1___": 0, "Accl2___": 0, "Step___": 0}),
    "lamb": (popart.Adam({}, popart.AdamMode.Lamb), {"Accl1___": 0, "Accl2___": 0, "Step___": 0}),
    "lamb without bias": (popart.Adam({}, popart.AdamMode.LambNoBias), {"Accl1___": 0, "Accl2___": 0}),
    "adagrad": (popart.Adaptive({}, popart.AdaptiveMode.AdaGrad), {"Accl1___": 0}),
    "rmsprop": (popart.Adaptive({}), {"Accl1___": 0}),
    "rmsprop momentum": (popart.Adaptive({"defaultMomentum": 0.5}), {"Accl1___": 0, "Accl3___": 0}),
    "rmsprop tf": (popart.Adaptive({}, rmsprop_tf_variant=True), {"Accl1___": 1}),
    "centred": (
        popart.Adaptive({"defaultMomentum": 0.5}, popart.AdaptiveMode.CenteredRMSProp),
        {"Accl1___": 0, "Accl2___": 0, "Accl3___": 0},
    ),
    "centred tf": (
        popart.Adaptive(
            {"defaultMomentum": 0.5}, popart.AdaptiveMode.CenteredRMSProp, rmsprop_tf_variant=True
        ),
        {"Accl1___": 1, "Accl2___": 0, "Accl3___": 0},
    ),
    "adadelta": (popart.Adaptive({}, popart.AdaptiveMode.AdaDelta), {"Accl1___": 0, "Accl2___": 0}),
}


@pytest.mark.parametrize("name", FIRST_STATES)
def test_states_before_the_first_step(name: str) -> None:
    optimizer, wanted = FIRST_STATES[name]
    program = Linear(np.ones(2, np.float32))
    session = program.session(optimizer)
    found = {each.removesuffix("w") for each in session.getTensorIds() if each.endswith("___w")}
    assert found == wanted.keys()
    for prefix, value in wanted.items():
        assert set(program.weight(session, prefix + "w").tolist()) == {value}


def test_rmsprop_of_tensorflow() -> None:
    """Rates are inside the momentum: the first rate stays in later steps."""
    program, w = Linear(np.array([1.0, -2.0], np.float32)), np.array([1.0, -2.0])
    x, square, moved = np.array([1.0, 0.5]), np.ones(2), np.zeros(2)

    def made(momentum: float, rate: float) -> popart.Adaptive:
        values = {"defaultLearningRate": (rate, False), "defaultMomentum": (momentum, True)}
        values |= {"defaultAlpha": (0.9, True), "defaultEps": (1e-3, True)}
        return popart.Adaptive(values, popart.AdaptiveMode.RMSProp, rmsprop_tf_variant=True)

    session = program.session(made(0.0, 0.1))
    for _ in range(3):
        program.step(session, x.astype(np.float32))
    np.testing.assert_allclose(program.weight(session), [0.7001, -2.1619], atol=5e-5)
    session = program.session(made(0.8, 0.1))
    for rate in (0.1, 0.01, 0.3):
        session.updateOptimizerFromHost(made(0.8, rate))
        program.step(session, x.astype(np.float32))
        square = 0.9 * square + 0.1 * x * x
        moved = 0.8 * moved + rate * x / np.sqrt(square + 1e-3)
        w = w - moved
    np.testing.assert_allclose(program.weight(session), w, rtol=1e-6)


def test_nesterov_without_momentum() -> None:
    program = Linear(np.zeros(2, np.float32))
    session = program.session(popart.SGD({"defaultDampening": 0.5, "nesterov": True}))
    program.step(session, np.ones(2, np.float32))
    np.testing.assert_allclose(program.weight(session), [-0.1, -0.1], rtol=1e-6)


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
    "Adaptive: rmsprop_tf_variant with another mode, got AdaGrad": lambda: popart.Adaptive(
        {}, popart.AdaptiveMode.AdaGrad, rmsprop_tf_variant=True
    ),
    "ClipNormSettings: maxNorm": lambda: popart.ClipNormSettings.clipAllWeights(-1),
}


@pytest.mark.parametrize("text", BAD)
def test_wrong_values(text: str) -> None:
    with pytest.raises(errors.Error, match=f"^{text}"):
        BAD[text]()
