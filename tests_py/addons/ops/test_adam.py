"""AdamOptimizerStep beside Adam in NumPy, over several steps: options, dtypes, shards, replicas, refused arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, ops
from popsr.addons.ops import grad_reduce_square_add
from popsr.addons.optimizers import AdamOptimizerStep
from tests_py.support.helpers import Array, assert_same_bits, dtype, np_dtype
from tests_py.support.unchecked import unchecked

STEPS = 5


class Oracle:
    """In float64, but for state and variable, which are rounded to their dtypes when they are stored."""

    def __init__(self, var: Array, first: str, **options: Any) -> None:
        self.var = var.copy()
        self.m = np.zeros(var.shape, np_dtype(first))
        self.v = np.zeros(var.shape, np.float32)
        self.t = 0
        self.options = {
            "beta1": 0.9,
            "beta2": 0.999,
            "eps": 1e-5,
            "weight_decay": 0.01,
            "bias_correction": True,
            "loss_scaling": 1.0,
            "global_norm_max": None,
        } | options
        for name in ("beta1", "beta2"):  # factors are rounded first: 1 - beta2 differs in its fifth digit
            self.options[name] = float(np.float32(self.options[name]))

    def update(self, grad: Array, lr: float) -> None:
        o, g = self.options, grad.astype(np.float64) / self.options["loss_scaling"]
        if o["global_norm_max"] is not None:
            norm = np.sqrt(np.sum(g**2))
            g = g * o["global_norm_max"] / max(norm, o["global_norm_max"])
        m = o["beta1"] * self.m.astype(np.float64) + (1 - o["beta1"]) * g
        v = o["beta2"] * self.v.astype(np.float64) + (1 - o["beta2"]) * g**2
        self.m, self.v = m.astype(self.m.dtype), v.astype(np.float32)
        m, v = self.m.astype(np.float64), self.v.astype(np.float64)
        self.t += 1
        if o["bias_correction"]:
            m, v = m / (1 - o["beta1"] ** self.t), v / (1 - o["beta2"] ** self.t)
        var = self.var.astype(np.float64)
        step = m / (np.sqrt(v) + o["eps"]) + o["weight_decay"] * var
        self.var = (var - lr * step).astype(self.var.dtype)


class Program:
    """Steps of a variable whose gradient is fed, on some replicas."""

    def __init__(
        self,
        var: Array,
        *,
        replication: int = 1,
        group: Callable[[popsr.Ir], popsr.ReplicaGrouping] | None = None,
        sharded: bool = False,
        norm_max: float | None = None,
        scaled: Any = 1,
        lr_stream: bool = True,
        **options: Any,
    ) -> None:
        self.ir = popsr.Ir(replication=replication)
        kind = dtype(var.dtype.name)
        grouping = None if group is None else group(self.ir)
        with self.ir.main_graph, popsr.in_sequence():
            shape = var.shape if grouping is None else var.shape[1:]
            self.gradient = popsr.h2d_stream(shape, kind, "gradient")
            self.rate = popsr.h2d_stream((), popsr.float32, "rate", replicated_stream_mode="broadcast")
            grad = ops.host_load(self.gradient)
            lr: Any = ops.host_load(self.rate) if lr_stream else 0.1
            if norm_max is not None:
                options["global_norm"] = ops.sqrt(grad_reduce_square_add(grad, scaled))
                options["global_norm_max"] = norm_max
            target: popsr.Tensor
            if sharded:
                self.variable, target = popsr.replica_sharded_variable(var, kind, "var")
                grad = ops.collectives.replica_sharded_slice(grad)
            else:
                self.variable = target = popsr.variable(var, kind, "var", replica_grouping=grouping)
            options["loss_scaling"] = popsr.constant(scaled, popsr.float32) if norm_max else scaled
            factories, graph = AdamOptimizerStep().create_graph(target, grad, grouping, lr=lr, **options)
            self.factories, self.graph = factories, graph
            self.state = self._make(sharded)
            scalars = [each for each in (lr, *options.values()) if isinstance(each, popsr.Tensor)]
            graph.bind(self.named).call(target, grad, *self._ordered(scalars, lr, options))

    def _make(self, sharded: bool) -> dict[str, popsr.Variable]:
        """The variables of the state; ``named`` has what is bound."""
        bound, made = {}, {}
        for key, factory in self.factories.to_dict().items():
            if sharded and key != "step":
                made[key], bound[key] = popsr.replica_sharded_variable(
                    factory.next_data(), factory.dtype, key
                )
            else:
                made[key] = bound[key] = factory.create_tensor(key)
        self.named = addons.NamedTensors.from_dict(bound)
        return made

    @staticmethod
    def _ordered(scalars: list[popsr.Tensor], lr: Any, options: dict[str, Any]) -> list[popsr.Tensor]:
        """Tensors among the scalars in the order of the parameters."""
        names = ("beta1", "beta2", "eps", "weight_decay", "loss_scaling", "global_norm", "global_norm_max")
        found = [lr, *(options.get(name) for name in names)]
        ordered = [each for each in found if isinstance(each, popsr.Tensor)]
        assert len(ordered) == len(scalars)
        return ordered

    def run(self, gradients: list[Array], rates: list[float]) -> tuple[Array, dict[str, Array]]:
        """The variable and the state after some steps."""
        with popsr.Session(self.ir, check=True) as session:
            for gradient, rate in zip(gradients, rates, strict=True):
                inputs: dict[Any, Any] = {self.gradient: gradient}
                if self.rate in session.expected_inputs():
                    inputs[self.rate] = np.float32(rate)
                session.run(inputs)
            state = {key: session.get_tensor_data(v).copy() for key, v in self.state.items()}
            return session.get_tensor_data(self.variable).copy(), state


def gradients_of(shape: tuple[int, ...], name: str, scale: float = 1.0) -> list[Array]:
    rng = np.random.default_rng(3)
    return [(scale * rng.standard_normal(shape)).astype(np_dtype(name)) for _ in range(STEPS)]


RATES = [0.1, 0.05, 0.2, 0.1, 0.01]
VAR = np.random.default_rng(2).standard_normal((3, 4))

OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "first order of float32": {"first_order_dtype": "float32"},
    "no bias correction": {"bias_correction": False},
    "no decay": {"weight_decay": 0},
    "betas": {"beta1": 0.5, "beta2": 0.9, "eps": 1e-2, "weight_decay": 0.3},
    "loss scaling": {"scaled": 128.0},
    "clipped": {"norm_max": 0.5},
    "not clipped": {"norm_max": 1e3},
    "clipped and scaled": {"norm_max": 0.7, "scaled": 64.0},
    "constant rate": {"lr_stream": False},
}


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("row", OPTIONS)
def test_against_numpy(row: str, name: str) -> None:
    options = dict(OPTIONS[row])
    first = options.pop("first_order_dtype", "float16")
    scale = options.get("scaled", 1.0)
    var, gradients = VAR.astype(np_dtype(name)), gradients_of(VAR.shape, name, scale)
    program = Program(var, first_order_dtype=dtype(first), **options)
    rates = RATES if options.pop("lr_stream", True) else [0.1] * STEPS
    got, state = program.run(gradients, rates)
    options["global_norm_max"] = options.pop("norm_max", None)
    options["loss_scaling"] = options.pop("scaled", 1.0)
    oracle = Oracle(var, first, **options)
    for gradient, rate in zip(gradients, rates, strict=True):
        oracle.update(gradient, rate)
    tolerance = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}[name]
    np.testing.assert_allclose(
        got.view(np_dtype(name)).astype(np.float64), oracle.var.astype(np.float64), atol=tolerance * 2
    )
    assert state["first_order"].dtype == dtype(first).as_numpy()
    half = {"float16": 2**-9, "float32": 1e-6}[first]
    np.testing.assert_allclose(
        state["first_order"].astype(np.float64), oracle.m.astype(np.float64), rtol=half, atol=1e-7
    )
    np.testing.assert_allclose(state["second_order"], oracle.v, rtol=2e-6)
    assert ("step" in state) is options.get("bias_correction", True)
    assert state.get("step", STEPS) == STEPS


def test_all_scalars_as_tensors() -> None:
    """They become inputs in the order of the parameters, and give the same bits as numbers of float32."""
    var, gradients = VAR.astype(np.float32), gradients_of(VAR.shape, "float32")
    values = {"beta1": 0.75, "beta2": 0.875, "eps": 2.0**-10, "weight_decay": 0.25}
    expect, _ = Program(var, **unchecked(values)).run(gradients, RATES)
    ir = popsr.Ir()
    with ir.main_graph:
        constants = {key: popsr.constant(value, popsr.float32) for key, value in values.items()}
        lr = popsr.constant(0.1, popsr.float32)
        v = popsr.variable(var, name="var")
        gradient = popsr.h2d_stream(VAR.shape, popsr.float32)
        grad = ops.host_load(gradient)
        factories, graph = AdamOptimizerStep().create_graph(v, grad, lr=lr, **constants)
        assert [t.name for t in graph.graph.inputs] == [
            "var", "grad", "lr", *values, "first_order", "second_order", "step"
        ]  # fmt: skip
        graph.bind(factories.init()).call(v, grad, lr, *constants.values())
    with popsr.Session(ir) as session:
        for each in gradients:
            session.run({gradient: each})
        got = session.get_tensor_data(v).copy()
    constant_rate, _ = Program(var, lr_stream=False, **unchecked(values)).run(gradients, RATES)
    np.testing.assert_allclose(got, constant_rate, rtol=1e-6)
    assert not np.array_equal(got, expect)


@pytest.mark.parametrize("name", ["float32", "float16"])
def test_shards_are_updated_as_the_whole(name: str) -> None:
    """Replicated tensor sharding: state is sharded as the variable, and all bits are the same."""
    var = np.random.default_rng(2).standard_normal((4, 6)).astype(np_dtype(name))
    gradients = gradients_of((4, 6), name)
    everywhere = [np.broadcast_to(each, (4, 4, 6)).copy() for each in gradients]
    options = {"scaled": 4.0, "norm_max": 0.5}
    whole, state = Program(var, **unchecked(options)).run(gradients, RATES)
    program = Program(var, replication=4, sharded=True, **unchecked(options))
    parts, sharded_state = program.run(everywhere, RATES)
    assert program.named.get("first_order").shape == (6,)
    assert program.named.get("first_order").meta_shape == (4, 6)
    assert program.graph.args.get("second_order").meta_shape == (4, 6)
    assert_same_bits(parts, whole)
    assert_same_bits(sharded_state["first_order"], state["first_order"])
    assert_same_bits(sharded_state["second_order"], state["second_order"])
    assert sharded_state["step"] == STEPS


@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # gradients are not reduced
def test_groups_of_replicas_have_state_of_their_own() -> None:
    """Each group is a training of its own; what its members hold is proved to be one value."""
    var = np.random.default_rng(2).standard_normal((2, 3)).astype(np.float32)
    gradients = [np.repeat(each, 2, 0) for each in gradients_of((2, 3), "float32")]  # equal in pairs
    program = Program(var, replication=4, group=lambda ir: ir.replica_grouping(1, 2))
    got, state = program.run(gradients, RATES)
    assert state["first_order"].shape == (2, 3)
    for k in range(2):
        alone, alone_state = Program(var[k]).run([each[2 * k] for each in gradients], RATES)
        assert_same_bits(got[k], alone)
        assert_same_bits(state["second_order"][k], alone_state["second_order"])


def test_replicas_that_reduce_their_gradients_agree() -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        v = popsr.variable(np.ones(3, np.float32), name="v")
        grad = ops.collectives.replicated_all_reduce(
            ops.host_load(popsr.h2d_stream((3,), popsr.float32)), "mean"
        )
        factories, graph = AdamOptimizerStep(cache=True).create_graph(v, grad, lr=0.1)
        state = factories.init()
        graph.bind(state).call(v, grad)
    facts = popsr.analysis.analyze(ir)
    for t in (v, *state.tensors):
        assert facts.partition(t).blocks == ((0, 1, 2, 3),)


def test_one_graph_for_several_variables() -> None:
    """Equal arguments share a graph with ``cache``; state is made for each."""
    ir = popsr.Ir()
    optimizer = AdamOptimizerStep(cache=True)
    with ir.main_graph, popsr.in_sequence():
        grad = popsr.constant(np.ones(3, np.float32))
        variables = [popsr.variable(np.ones(3, np.float32), name=f"v{i}") for i in range(2)]
        graphs = []
        for i, v in enumerate(variables):
            factories, graph = optimizer.create_graph(v, grad, lr=0.1)
            graph.bind(factories.init(f"adam{i}")).call(v, grad)
            graphs.append(graph.graph)
    assert graphs[0] == graphs[1]
    with popsr.Session(ir) as session:
        session.run({})
        first, second = (session.get_tensor_data(v).copy() for v in variables)
    assert_same_bits(first, second)
    assert (first < 1).all()


# Refused


def _input(*shape: int, kind: Any = popsr.float32, meta: tuple[int, ...] = ()) -> popsr.TensorSpec:
    return popsr.TensorSpec(shape, kind, meta)


REFUSED: dict[str, tuple[type[Exception], str, list[popsr.TensorSpec], dict[str, Any]]] = {
    "shape": (
        errors.ShapeError,
        r"AdamOptimizerStep: grad has another shape, got \(2,\), expected \(3,\)",
        [_input(3), _input(2)],
        {},
    ),
    "integers": (
        errors.DTypeError,
        "AdamOptimizerStep: var is not of floats, got int32",
        [_input(3, kind=popsr.int32), _input(3)],
        {},
    ),
    "rate": (
        errors.ArgumentTypeError,
        "AdamOptimizerStep: lr is not a number, got str 'fast'",
        [_input(3), _input(3)],
        {"lr": "fast"},
    ),
    "scalar of several": (
        errors.ShapeError,
        r"AdamOptimizerStep: beta2 is not a scalar, got shape \(2,\)",
        [_input(3), _input(3)],
        {"beta2": _input(2)},
    ),
    "norm alone": (
        errors.AttributeValueError,
        "AdamOptimizerStep: global_norm and global_norm_max belong together",
        [_input(3), _input(3)],
        {"global_norm_max": 1.0},
    ),
    "state of integers": (
        errors.DTypeError,
        "AdamOptimizerStep: first_order_dtype is not of floats, got int32",
        [_input(3), _input(3)],
        {"first_order_dtype": popsr.int32},
    ),
    "no shard": (
        errors.ReplicaError,
        r"AdamOptimizerStep: var is not a shard of its groups, got shape \(3,\) of \(8,\), expected .* group size 2",
        [_input(3, meta=(8,)), _input(3, meta=(8,))],
        {},
    ),
}


@pytest.mark.parametrize("row", REFUSED)
def test_refused(row: str) -> None:
    """Nothing is appended to the graph that is being made but its inputs."""
    error, match, tensors, options = REFUSED[row]
    ir = popsr.Ir(replication=2)
    with ir.main_graph, pytest.raises(error, match=match) as caught:
        AdamOptimizerStep().create_graph(*tensors, **({"lr": 0.1} | options))
    assert isinstance(caught.value, popsr.Error)
    assert "\n" not in str(caught.value)
    assert not ir.main_graph.ops
