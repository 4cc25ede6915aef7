"""Seeds of sessions: the same one begins again, whatever draws random numbers; each draw is of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from popsr import errors
from popsr.compat import popart
from tests_py.compat.builder.programs import Linear, options_of, run_once

pytest.importorskip("onnx")

DEVICE = popart.DeviceManager().createCpuDevice()
ONES = np.ones(64, np.float32)
Make = Callable[[popart.Builder, str], str]
DRAWS: dict[str, Make] = {
    "dropout": lambda b, t: b.aiOnnx.dropout([t], 1, 0.5)[0],
    "shapeddropout": lambda b, t: b.aiGraphcore.shapeddropout([t], [64], 0.5),
    "randomnormal": lambda b, t: b.aiOnnx.add([t, b.aiOnnx.randomnormal([64])]),
    "randomnormallike": lambda b, t: b.aiOnnx.add([t, b.aiOnnx.randomnormallike([t])]),
    "randomuniform": lambda b, t: b.aiOnnx.add([t, b.aiOnnx.randomuniform([64])]),
    "randomuniformlike": lambda b, t: b.aiOnnx.add([t, b.aiOnnx.randomuniformlike([t])]),
}


def _session(make: Make, options: Any = None) -> tuple[Any, Callable[[], Any]]:
    """A session of training, and what one step returns."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [64], "x")
    w = builder.addInitializedInputTensor(ONES, "w")
    y = make(builder, builder.aiOnnx.mul([x, w]))
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [y]),
        loss,
        popart.ConstSGD(0.0),
        DEVICE,
        userOptions=options_of() if options is None else options,
    )
    session.prepareDevice()
    session.weightsFromHost()

    def step() -> Any:
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({x: ONES}, anchors))
        return anchors[y].copy()

    return session, step


@pytest.mark.parametrize("name", DRAWS)
def test_the_same_seed_begins_again(name: str) -> None:
    session, step = _session(DRAWS[name])
    session.setRandomSeed(7)
    first = [step(), step()]
    state = session.getRNGState()
    third = step()
    session.setRandomSeed(8)
    other = step()
    session.setRandomSeed(7)
    assert session.getRandomSeed() == 7
    np.testing.assert_array_equal([step(), step(), step()], [*first, third])
    session.setRNGState(state)
    np.testing.assert_array_equal(step(), third)
    assert len({each.tobytes() for each in (*first, third, other)}) == 4


def _linear(program: Linear, options: Any) -> Any:
    return program.session(popart.ConstSGD(0.1), options=options)


@pytest.mark.parametrize("what", ["stochastic rounding", "synthetic data"])
def test_seeds_of_what_the_session_draws(what: str) -> None:
    """Stochastic rounding of a weight's update, and data that the session makes."""

    def options() -> popart.SessionOptions:
        made = options_of()
        if what == "synthetic data":
            made.syntheticDataMode = popart.SyntheticDataMode.RandomNormal
        else:
            made.enableStochasticRounding = True
        return made

    def trained(session: Any, seed: int | None) -> Any:
        session.writeWeights(popart.PyWeightsIO({"w": np.ones(64, np.float16)}))
        session.weightsFromHost()
        if seed is not None:
            session.setRandomSeed(seed)
        for _ in range(3):
            program.step(session, np.full(64, 1.3e-3, np.float16))
        return program.weight(session)

    program = Linear(np.ones(64, np.float16))
    session = _linear(program, options())
    seven, again, eight = (trained(session, seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(seven, again)
    assert (seven != eight).any()
    np.testing.assert_array_equal(trained(_linear(program, options()), 8), eight)


def test_weights_and_states_stay_when_a_seed_is_set() -> None:
    options = options_of()
    options.enableStochasticRounding = True
    program = Linear(np.zeros(2, np.float32))
    optimizer = popart.SGD({"defaultLearningRate": (0.5, False), "defaultMomentum": (0.5, True)})
    session = program.session(optimizer, options=options)
    program.step(session, np.ones(2, np.float32))
    session.updateOptimizerFromHost(
        popart.SGD({"defaultLearningRate": (0.25, False), "defaultMomentum": (0.5, True)})
    )
    session.setRandomSeed(9)
    program.step(session, np.ones(2, np.float32))
    assert program.weight(session, "Accl___w").tolist() == [1.5, 1.5]
    assert program.weight(session).tolist() == [-0.875, -0.875]


def _loop(draw: Make, passes: int) -> Make:
    def make(b: popart.Builder, t: str) -> str:
        body = b.createSubgraphBuilder()
        body.addInputTensor("INT64", [])
        keep, value = body.addInputTensor("BOOL", []), body.addInputTensor("FLOAT", [64])
        body.addOutputTensor(body.aiOnnx.identity([keep]))
        body.addOutputTensor(draw(body, value))
        count, go = b.aiOnnx.constant(np.array(passes, np.int64)), b.aiOnnx.constant(np.array(True))
        return str(b.aiOnnx.loop([count, go, t], 1, body)[0])

    return make


@pytest.mark.parametrize("passes", [2, 12])
def test_each_pass_of_a_loop_draws_its_own(passes: int) -> None:
    """A sum of equal draws would have the deviation of one, times their number."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [64], "x")
    y = _loop(DRAWS["randomnormallike"], passes)(builder, x)
    anchors = run_once(builder.getModelProto(), [y], {x: 0 * ONES})
    assert anchors[y].std() < 1.4 * passes**0.5


def test_calls_and_nodes_draw_their_own() -> None:
    """Equal are draws of nodes of one kind whose attribute ``seed`` is equal."""
    builder = popart.Builder()
    inner = builder.createSubgraphBuilder()
    inner.addOutputTensor(inner.aiOnnx.randomuniformlike([inner.addInputTensor("FLOAT", [64])]))
    x = builder.addInputTensor("FLOAT", [64], "x")
    ids = [builder.aiGraphcore.call([x], 1, inner)[0] for _ in range(2)]
    ids += [builder.aiOnnx.randomuniform([64]) for _ in range(2)]
    seeded = [builder.aiOnnx.randomuniform([64], seed=seed) for seed in (0.0, 1.0, 1.0)]
    anchors = run_once(builder.getModelProto(), [*ids, *seeded], {x: ONES})
    assert len({anchors[id_].tobytes() for id_ in (*ids, *seeded)}) == len(ids) + 2
    np.testing.assert_array_equal(anchors[seeded[1]], anchors[seeded[2]])


def test_draws_in_a_scan_are_refused() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3, 64], "x")
    body = builder.createSubgraphBuilder()
    body.addOutputTensor(body.aiOnnx.randomuniformlike([body.addInputTensor("FLOAT", [64])]))
    [y] = builder.aiOnnx.scan([x], 1, body, 1)
    with pytest.raises(errors.UnsupportedError, match="random numbers in a scan"):
        popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), DEVICE)
