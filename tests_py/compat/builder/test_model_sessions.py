"""Sessions of models: batches, micro batches, anchors, data, options, control flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from popsr import errors
from popsr.compat import popart
from tests_py.compat.builder.programs import Linear, options_of

onnx = pytest.importorskip("onnx")
Art = popart.AnchorReturnType
DEVICE = popart.DeviceManager().createCpuDevice()
BATCHES, MICRO, REPLICAS = 4, 3, 2


def _data(seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-4, 4, (BATCHES, MICRO, REPLICAS, 2)).astype(np.float32)


ANCHORS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "All": (Art("All"), lambda full: full),
    "EveryN": (
        Art("EveryN", 2),
        lambda full: full.reshape(12, *full.shape[2:])[1::2].reshape(2, 3, *full.shape[2:]),
    ),
    "Final": (Art("Final"), lambda full: full[-1, -1]),
    "Sum": (Art("Sum"), lambda full: full.sum((0, 1))),
}


@pytest.mark.parametrize("name", ANCHORS)
def test_anchors_by_return_type(name: str) -> None:
    kind, chosen = ANCHORS[name]
    program, x = Linear(np.array([1.0, 2.0], np.float32)), _data()
    gradient, inner = (
        popart.reservedGradientPrefix() + program.w,
        popart.reservedGradientPrefix() + program.product,
    )
    updated, total = popart.reservedUpdatedVarPrefix() + program.w, popart.reservedAccumPrefix() + program.w
    ids = [program.loss, program.product, program.w, program.x, gradient, inner, updated, total]
    session = program.session(
        anchors=dict.fromkeys(ids, kind), batches=BATCHES, replicas=REPLICAS, micro=MICRO
    )
    anchors = program.step(session, x)
    w, sums = np.array([1.0, 2.0], np.float32), x.sum((1, 2))
    before = w - 0.5 * np.concatenate([np.zeros((1, 2)), sums.cumsum(0)[:-1]]).astype(np.float32)
    full = np.ones((BATCHES, MICRO, REPLICAS, 1), np.float32)
    weights = full * before[:, None, None]
    expected = {
        program.loss: (weights * x).sum(3),
        program.product: weights * x,
        program.w: weights,
        program.x: x,
        gradient: x,
        inner: np.ones_like(x),
        updated: full * (before - 0.5 * sums)[:, None, None],
        total: full * sums[:, None, None],
    }
    assert anchors.keys() == expected.keys()
    for id_, value in expected.items():
        np.testing.assert_array_equal(anchors[id_], chosen(value), err_msg=id_)


def _anchored(kind: str, period: int, batches: int, micro: int, values: Any) -> Any:
    """Anchors of micro batches one after another, as the specification says, with all leading extents."""
    passed = [values[batch, part] for batch in range(batches) for part in range(micro)]
    if kind == "Final":
        return passed[-1]
    if kind == "Sum":
        total = np.zeros_like(passed[0])
        for each in passed:
            total = total + each
        return total
    kept = [each for count, each in enumerate(passed, 1) if kind == "All" or count % period == 0]
    return np.reshape(kept, (batches // period, micro, *passed[0].shape))


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("micro", [1, 2, 3])
@pytest.mark.parametrize("batches", [1, 2, 4])
def test_return_types_count_micro_batches(batches: int, micro: int, replicas: int) -> None:
    kinds = [("All", 1), ("Final", 1), ("Sum", 1), *(("EveryN", n) for n in (1, 2, 4) if batches % n == 0)]
    values = np.random.default_rng(micro).integers(-9, 9, (batches, micro, replicas, 2)).astype(np.float32)
    for kind, period in kinds:
        program = Linear(np.ones(2, np.float32))
        art = Art(kind, period) if kind == "EveryN" else Art(kind)
        session = program.session(
            popart.ConstSGD(0.0),
            anchors={program.product: art},
            batches=batches,
            micro=micro,
            replicas=replicas,
        )
        wanted = _anchored(kind, period, batches, micro, values)
        shape = tuple(n for n in wanted.shape[:-1] if n > 1)
        anchors = program.step(session, values)
        np.testing.assert_array_equal(anchors[program.product], wanted.reshape(*shape, 2), err_msg=kind)


@pytest.mark.parametrize("counts", [(1, 1, 1), (2, 1, 1), (1, 3, 1), (1, 1, 2), (2, 1, 2)])
def test_extents_of_one_are_left_out(counts: tuple[int, int, int]) -> None:
    batches, micro, replicas = counts
    program = Linear(np.ones(2, np.float32))
    session = program.session(batches=batches, micro=micro, replicas=replicas)
    leading = tuple(n for n in counts if n > 1)
    assert session.initAnchorArrays()[program.loss].shape == leading
    assert (session.replicationFactor, session.accumulationFactor) == (replicas, micro)
    anchors = program.step(session, np.ones((*counts, 2), np.float32))
    assert anchors[program.loss].shape == leading


def test_arrays_count_by_their_elements() -> None:
    """Leading extents may be one, and inputs that nothing reads have data or none."""
    program = Linear(np.array([1.0, 2.0], np.float32))
    unused = program.builder.addInputTensor("FLOAT", [7], "unused")
    session = program.session(batches=2, replicas=2)
    found = np.zeros((4, 1), np.float32)
    data = np.arange(8, dtype=np.float32)
    session.run(popart.PyStepIO({program.x: data, unused: np.zeros(28, np.float32)}, {program.loss: found}))
    first = np.array([1, 2]) @ data.reshape(4, 2)[:2].T
    np.testing.assert_array_equal(found[:2, 0], first)


def test_data_by_callbacks() -> None:
    program, x = Linear(np.array([1.0, 2.0], np.float32)), _data()
    session = program.session(batches=BATCHES, replicas=REPLICAS, micro=MICRO)
    wanted = program.step(session, x)[program.loss]
    again = program.session(batches=BATCHES, replicas=REPLICAS, micro=MICRO)
    rows, found, done = iter(x.reshape(-1, 2)), list[Any](), list[str]()

    def output(id_: str) -> Any:
        found.append(np.zeros((), np.float32))
        return found[-1]

    again.run(popart.PyStepIOCallback(lambda _id, _prefetch: next(rows), done.append, output, done.append))
    np.testing.assert_array_equal(np.reshape(found, wanted.shape), wanted)
    assert done == [program.x] * 24 + [program.loss] * 24


def test_inputs_for_all_replicas() -> None:
    builder = popart.Builder()
    mode = popart.InputSettings(popart.ReplicatedStreamMode.Broadcast)
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]), mode, "x")
    y = builder.aiOnnx.neg([x])
    session = popart.InferenceSession(
        builder.getModelProto(), popart.DataFlow(3, [y]), DEVICE, userOptions=options_of(2)
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run("", popart.PyStepIO({x: np.arange(6, dtype=np.float32).reshape(3, 2)}, anchors))
    np.testing.assert_array_equal(anchors[y], -np.arange(6).reshape(3, 1, 2).repeat(2, 1))


def test_untyped_inputs() -> None:
    builder = popart.Builder()
    x = builder.addUntypedInputTensor("x")
    y = builder.aiOnnx.neg([x])
    shapes = popart.InputShapeInfo()
    shapes.add(x, popart.TensorInfo("FLOAT16", [3]))
    assert (shapes.has(x), shapes.get(x).shape(), shapes.getAllTensorIds()) == (True, [3], [x])
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), DEVICE, shapes)
    assert session.getInfo(y) == popart.TensorInfo("FLOAT16", [3])
    with pytest.raises(errors.Error, match="x"):
        popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), DEVICE)


def test_control_flow() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    c = builder.addInputTensor("BOOL", [], "c")
    yes, no = builder.createSubgraphBuilder(), builder.createSubgraphBuilder()
    yes.addOutputTensor(yes.aiOnnx.neg([yes.addInputTensorFromParentGraph(x)]))
    no.addOutputTensor(no.aiOnnx.exp([no.addInputTensorFromParentGraph(x)]))
    [chosen] = builder.aiOnnx.logical_if([c], 1, no, yes)
    body = builder.createSubgraphBuilder()
    body.addInputTensor("INT64", [])
    keep, value = body.addInputTensor("BOOL", []), body.addInputTensor("FLOAT", [2])
    body.addOutputTensor(body.aiOnnx.identity([keep]))
    body.addOutputTensor(body.aiOnnx.add([value, body.addInputTensorFromParentGraph(x)]))
    count, go = builder.aiOnnx.constant(np.array(3, np.int64)), builder.aiOnnx.constant(np.array(True))
    [looped] = builder.aiOnnx.loop([count, go, x], 1, body)
    for each in (chosen, looped):
        builder.addOutputTensor(each)
    onnx.checker.check_model(onnx.ModelProto.FromString(builder.getModelProto()))
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [chosen, looped]), DEVICE)
    session.prepareDevice()
    session.weightsFromHost()
    data = np.array([1.0, 2.0], np.float32)
    for flag, wanted in ((True, -data), (False, np.exp(data))):
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({x: data, c: np.array(flag)}, anchors))
        np.testing.assert_allclose(anchors[chosen], wanted, rtol=1e-6)
        np.testing.assert_array_equal(anchors[looped], 4 * data)


def test_dropout_is_for_training() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1000], "x")
    w = builder.addInitializedInputTensor(np.ones(1000, np.float32), "w")
    [y] = builder.aiOnnx.dropout([builder.aiOnnx.mul([x, w])], 1, 0.25)
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    gradient = popart.reservedGradientPrefix() + w
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(2, [y, gradient]),
        loss,
        popart.ConstSGD(0.0),
        DEVICE,
        userOptions=options_of(2),
    )
    session.prepareDevice()
    session.weightsFromHost()

    def run(seed: int) -> tuple[Any, Any]:
        session.setRNGState([seed, 0])
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({x: np.ones((2, 2, 1000), np.float32)}, anchors))
        return anchors[y].reshape(4, 1000), anchors[gradient].reshape(4, 1000)

    first, back = run(7)
    np.testing.assert_array_equal(first, back)
    assert set(np.unique(first)) == {0.0, np.float32(1) / np.float32(0.75)}
    assert abs((first == 0).mean() - 0.25) < 0.04
    assert len({row.tobytes() for row in first}) == 4
    inference = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), DEVICE)
    inference.prepareDevice()
    inference.weightsFromHost()
    anchors = inference.initAnchorArrays()
    inference.run(popart.PyStepIO({x: np.ones(1000, np.float32)}, anchors))
    np.testing.assert_array_equal(anchors[y], np.ones(1000))


def test_random_numbers_differ_by_run_and_replica() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [500], "x")
    ops = builder.aiOnnx
    ids = [
        ops.randomnormal([500], mean=2.0, scale=0.5),
        ops.randomnormallike([x]),
        ops.randomuniform([500], low=-1.0, high=3.0),
        ops.randomuniformlike([x], "FLOAT16"),
    ]
    moments = [(2.0, 0.5), (0.0, 1.0), (1.0, 4 / 12**0.5), (0.5, 12**-0.5)]
    assert builder.getTensorDtypeString(ids[3]) == "float16"
    session = popart.InferenceSession(
        builder.getModelProto(), popart.DataFlow(2, ids), DEVICE, userOptions=options_of(2)
    )
    session.prepareDevice()
    session.weightsFromHost()
    rows: list[Any] = []
    for _ in range(2):
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({x: np.zeros(2000, np.float32)}, anchors))
        rows.append({id_: anchors[id_].reshape(4, 500) for id_ in ids})
    for id_, (mean, deviation) in zip(ids, moments, strict=True):
        values = np.concatenate([each[id_] for each in rows]).astype(np.float64)
        assert len({row.tobytes() for row in values}) == 8
        assert abs(values.mean() - mean) < 0.1 * deviation
        assert abs(values.std() - deviation) < 0.1 * deviation


def test_batch_norm_trains_and_keeps_running_moments() -> None:
    builder, rng = popart.Builder(), np.random.default_rng(0)
    data = rng.normal(2.0, 3.0, (4, 2, 3, 3)).astype(np.float32)
    x = builder.addInputTensor(popart.TensorInfo(data), "x")
    kept = {
        name: builder.addInitializedInputTensor(np.full(2, float(v), np.float32), name)
        for name, v in (("scale", 1), ("bias", 0), ("mean", 0), ("var", 1))
    }
    y, mean, var, *_ = builder.aiOnnx.batchnormalization([x, *kept.values()], 5, momentum=0.75)
    builder.aiGraphcore.copyvarupdate([kept["mean"], mean])
    builder.aiGraphcore.copyvarupdate([kept["var"], var])
    loss = builder.aiGraphcore.l1loss([y], 1.0)
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(1, [loss, y]), loss, popart.ConstSGD(0.1), DEVICE
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: data}, anchors))
    np.testing.assert_allclose(anchors[y].mean((0, 2, 3)), 0, atol=1e-5)
    found = {name: np.zeros(2, np.float32) for name in kept}
    session.readWeights(popart.PyWeightsIO(found))
    np.testing.assert_allclose(found["mean"], 0.25 * data.mean((0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(found["var"], 0.75 + 0.25 * data.var((0, 2, 3)), rtol=1e-5)
    assert (found["bias"] != 0).any()


def test_narrow_weights_train() -> None:
    program = Linear(np.array([1.0, 2.0], np.float16))
    session = program.session(
        popart.SGD({"defaultLearningRate": (0.5, False), "defaultMomentum": (0.5, True)}), micro=2
    )
    program.step(session, np.ones((2, 2), np.float16))
    np.testing.assert_array_equal(program.weight(session), np.array([0.0, 1.0], np.float16))


def test_options_reach_the_program() -> None:
    options = options_of(2)
    options.enableStochasticRounding = True
    options.enableFloatingPointChecks = True
    options.autoRecomputation = popart.RecomputationType.Standard
    session = Linear(np.ones(2, np.float32)).session(options=options)
    assert session.getIr().options.enable_stochastic_rounding
    assert session.getIr().options.enableFloatingPointChecks


# Errors


def _options(**values: Any) -> popart.SessionOptions:
    options = popart.SessionOptions()
    for name, value in values.items():
        setattr(options, name, value)
    return options


def _with_loss_scaling() -> popart.SessionOptions:
    options = popart.SessionOptions()
    options.automaticLossScalingSettings.enabled = True
    return options


P = Linear(np.ones(2, np.float32))
X = np.ones(2, np.float32)
BAD_SESSIONS: dict[str, Callable[[], Any]] = {
    "TrainingSession: no such tensor in the main graph, got 'nothing'": lambda: P.session(
        anchors=["nothing"]
    ),
    "TrainingSession: anchor without a gradient, got 'Accum___x'": lambda: P.session(anchors=["Accum___x"]),
    "TrainingSession: no such anchor, got 'UpdatedVar___x'": lambda: P.session(anchors=["UpdatedVar___x"]),
    "TrainingSession: replicated graphs are off": lambda: P.session(options=_options(replicatedGraphCount=2)),
    "TrainingSession: replicas of other processes": lambda: P.session(
        options=_options(globalReplicaOffset=1)
    ),
    "TrainingSession: gradient accumulation is off": lambda: P.session(
        options=_options(accumulationFactor=2)
    ),
    "TrainingSession: automaticLossScalingSettings": lambda: P.session(options=_with_loss_scaling()),
    "TrainingSession: accumulationAndReplicationReductionType": lambda: P.session(
        options=_options(accumulationAndReplicationReductionType=popart.ReductionType.NoReduction)
    ),
    "DataFlow: period of anchor": lambda: P.session(anchors={P.loss: Art("EveryN", 2)}, batches=3),
    "TrainingSession: dataFlow: batchesPerStep: got 0": lambda: P.session(batches=0),
    "TrainingSession: optimizer is not": lambda: P.session(3),
    "InferenceSession: fnModel is missing": lambda: popart.InferenceSession(),
    "InferenceSession: deviceInfo is missing": lambda: popart.InferenceSession(b"", popart.DataFlow(1, [])),
    "InferenceSession: fnModel is not a model of ONNX": lambda: popart.InferenceSession(
        b"x", popart.DataFlow(1), DEVICE
    ),
    "InferenceSession: fnModel is not a model, got 3": lambda: popart.InferenceSession(
        3, popart.DataFlow(1), DEVICE
    ),
    "InferenceSession: no gradients, got anchor": lambda: popart.InferenceSession(
        P.builder.getModelProto(), popart.DataFlow(1, ["Gradient___w"]), DEVICE
    ),
    "TrainingSession: loss is not one number": lambda: popart.TrainingSession(
        P.builder.getModelProto(), popart.DataFlow(1), P.product, popart.ConstSGD(1.0), DEVICE
    ),
}


@pytest.mark.parametrize("text", BAD_SESSIONS)
def test_sessions_that_cannot_be(text: str) -> None:
    with pytest.raises(errors.Error, match=f"^{text}"):
        BAD_SESSIONS[text]()


def _run(inputs: Any, outputs: Any = None) -> None:
    session = P.session()
    anchors = session.initAnchorArrays() if outputs is None else outputs
    session.run(popart.PyStepIO(inputs, anchors))


def _early(prepared: bool) -> None:
    session = popart.TrainingSession(
        P.builder.getModelProto(), popart.DataFlow(1), P.loss, popart.ConstSGD(1.0), DEVICE
    )
    if prepared:
        session.prepareDevice()
    session.run(popart.PyStepIO({P.x: X}, {}))


BAD_RUNS: dict[str, Callable[[], Any]] = {
    "run: inputs are not the session's, got .'y'.": lambda: _run({"y": X}),
    "run: anchors are not the session's": lambda: _run({P.x: X}, {"y": X}),
    "run: dtypes differ for input 'x', got float64": lambda: _run({P.x: X.astype(np.float64)}),
    "run: shapes differ for input 'x', got .3., expected 2": lambda: _run({P.x: np.ones(3, np.float32)}),
    "run: dtypes differ for anchor": lambda: _run({P.x: X}, {P.loss: np.zeros((), np.float64)}),
    "run: shapes differ for anchor": lambda: _run({P.x: X}, {P.loss: np.zeros(2, np.float32)}),
    "run: anchor 'IdentityLoss:0' is not an array": lambda: _run({P.x: X}, {P.loss: [0.0]}),
    "run: stepio is not a PyStepIO, got 3": lambda: P.session().run(3),
    "run: programs by handle": lambda: P.session().run("other", popart.PyStepIO({}, {})),
    "run: no device is prepared": lambda: _early(False),
    "run: no weights on the device": lambda: _early(True),
    "resetHostWeights: weight of another model, got 'v'": lambda: P.session().resetHostWeights(
        _other_model()
    ),
    "resetHostWeights: not a model, got 3": lambda: P.session().resetHostWeights(3),  # type: ignore[arg-type]
    "getInfo: no such tensor, got 'y'": lambda: P.session().getInfo("y"),
    "saveExecutable: no device": lambda: P.session().saveExecutable("x"),  # type: ignore[attr-defined]
}


def _other_model() -> bytes:
    builder = popart.Builder()
    builder.addInitializedInputTensor(X, "v")
    return builder.getModelProto()


@pytest.mark.parametrize("text", BAD_RUNS)
def test_calls_that_do_not_fit(text: str) -> None:
    with pytest.raises(errors.Error, match=f"^{text}"):
        BAD_RUNS[text]()


def test_values_that_are_part_of_the_program() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3], "x")
    shape = builder.addInitializedInputTensor(np.array([3, 2], np.int64), "shape")
    y = builder.aiOnnx.reshape([x, shape])
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), DEVICE)
    found = np.zeros(2, np.int64)
    session.readWeights(popart.PyWeightsIO({shape: found}))
    assert found.tolist() == [3, 2]
    with pytest.raises(errors.UnsupportedError, match="writeWeights: 'shape' is part of the program"):
        session.writeWeights(popart.PyWeightsIO({shape: np.array([6, 1], np.int64)}))
