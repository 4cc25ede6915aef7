"""SGD, Lion and LAMB as modules, beside the same in NumPy and PyTorch: options, dtypes, shards, replicas, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, ops
from popsr.addons.optimizers import LambOptimizerStep, LionOptimizerStep, SGDOptimizerStep
from tests_py.support.helpers import Array, dtype, np_dtype

STEPS = 6
RATE = 0.1
Update = Callable[[Array, Array, dict[str, Array]], Array]


def rounded(value: float) -> float:
    """A factor of a program, which is a float32."""
    return float(np.float32(value))


def state(kept: dict[str, Array], name: str, like: Array) -> Array:
    return kept.setdefault(name, np.zeros(like.shape))


# Each oracle returns the step of a float64 variable; state is in float64 too.


def sgd(momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0) -> Update:
    def step(w: Array, g: Array, kept: dict[str, Array]) -> Array:
        d = g + weight_decay * w
        if momentum == 0:
            return d
        kept["velocity"] = momentum * state(kept, "velocity", w) + d
        return d + momentum * kept["velocity"] if nesterov else kept["velocity"]

    return step


def lion(beta1: float = 0.9, beta2: float = 0.99, weight_decay: float = 0.0) -> Update:
    def step(w: Array, g: Array, kept: dict[str, Array]) -> Array:
        m = state(kept, "first_order", w)
        kept["first_order"] = beta2 * m + (1 - beta2) * g
        return np.sign(beta1 * m + (1 - beta1) * g) + weight_decay * w

    return step


def lamb(
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: float = 1e-2,
    max_weight_norm: float = 10.0,
    bias_correction: bool = True,
) -> Update:
    def step(w: Array, g: Array, kept: dict[str, Array]) -> Array:
        m = kept["m"] = beta1 * state(kept, "m", w) + (1 - beta1) * g
        v = kept["v"] = beta2 * state(kept, "v", w) + (1 - beta2) * g**2
        kept["t"] = state(kept, "t", np.zeros(())) + 1
        if bias_correction:
            m, v = m / (1 - beta1 ** kept["t"]), v / (1 - beta2 ** kept["t"])
        u = m / (np.sqrt(v) + eps) + weight_decay * w
        of_w, of_u = float(np.linalg.norm(w)), float(np.linalg.norm(u))
        ratio = min(of_w, max_weight_norm) / of_u if of_w and of_u and max_weight_norm else 1.0
        return np.asarray(ratio * u)

    return step


MODULES: dict[str, tuple[type[addons.Module], Callable[..., Update]]] = {
    "sgd": (SGDOptimizerStep, sgd),
    "lion": (LionOptimizerStep, lion),
    "lamb": (LambOptimizerStep, lamb),
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("sgd", {}),
    "sgd decay": ("sgd", {"weight_decay": 0.125}),
    "sgd momentum": ("sgd", {"momentum": 0.75}),
    "sgd momentum decay": ("sgd", {"momentum": 0.5, "weight_decay": 0.25}),
    "sgd nesterov": ("sgd", {"momentum": 0.75, "nesterov": True, "weight_decay": 0.125}),
    "lion": ("lion", {}),
    "lion betas decay": ("lion", {"beta1": 0.75, "beta2": 0.5, "weight_decay": 0.25}),
    "lamb": ("lamb", {}),
    "lamb betas": ("lamb", {"beta1": 0.5, "beta2": 0.75, "eps": 0.125, "weight_decay": 0.0}),
    "lamb short": ("lamb", {"max_weight_norm": 0.5}),
    "lamb uncorrected": ("lamb", {"bias_correction": False}),
    "lamb without norms": ("lamb", {"max_weight_norm": 0.0}),
}


class Program:
    """Steps of a variable whose gradient is fed."""

    def __init__(
        self,
        kind: str,
        var: Array,
        *,
        replication: int = 1,
        sharded: bool = False,
        grouping: Callable[[popsr.Ir], popsr.ReplicaGrouping] | None = None,
        **options: Any,
    ) -> None:
        self.ir = popsr.Ir(replication=replication)
        groups = None if grouping is None else grouping(self.ir)
        of_dtype = dtype(var.dtype.name)
        with self.ir.main_graph, popsr.in_sequence():
            shape = var.shape if groups is None or groups.num_groups == 1 else var.shape[1:]
            mode = groups or self.ir.replica_grouping()
            self.gradient = popsr.h2d_stream(shape, of_dtype, "gradient", replicated_stream_mode=mode)
            grad = ops.host_load(self.gradient)
            target: popsr.Tensor
            if sharded:
                self.variable, target = popsr.replica_sharded_variable(var, of_dtype, "var")
                grad = ops.collectives.replica_sharded_slice(grad)
            else:
                self.variable = target = popsr.variable(var, of_dtype, "var", replica_grouping=groups)
            module, _ = MODULES[kind]
            factories, graph = module().create_graph(target, grad, groups, lr=RATE, **options)
            bound = {
                key: popsr.replica_sharded_variable(factory.next_data(), factory.dtype, key)[1]
                if sharded and key != "step"
                else factory.create_tensor(key)
                for key, factory in factories.to_dict().items()
            }
            graph.bind(addons.NamedTensors.from_dict(bound)).call(target, grad)

    def run(self, gradients: list[Array]) -> Array:
        with popsr.Session(self.ir, check=True) as session:
            for gradient in gradients:
                session.run({self.gradient: gradient})
            return session.get_tensor_data(self.variable).copy()


def gradients_of(shape: tuple[int, ...], kind: Any = np.float64) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape).astype(kind) for _ in range(STEPS)]


def expected(kind: str, var: Array, gradients: list[Array], **options: Any) -> Array:
    defaults = {
        "lion": {"beta1": 0.9, "beta2": 0.99},
        "lamb": {"beta1": 0.9, "beta2": 0.999, "weight_decay": 1e-2},
    }
    step = MODULES[kind][1](**{k: rounded(v) for k, v in defaults.get(kind, {}).items()} | options)
    kept: dict[str, Array] = {}
    w = var.astype(np.float64)
    for g in gradients:
        w = (w - RATE * step(w, g.astype(np.float64), kept)).astype(var.dtype).astype(np.float64)
    return w


VAR = np.random.default_rng(2).standard_normal((3, 4))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("name", "tolerance"), [("float64", 2e-6), ("float32", 1e-5), ("float16", 4e-3)])
def test_steps(case: str, name: str, tolerance: float) -> None:
    kind, options = CASES[case]
    var, gradients = VAR.astype(np_dtype(name)), gradients_of(VAR.shape, np_dtype(name))
    got = Program(kind, var, **options).run(gradients)
    assert got.dtype == var.dtype
    np.testing.assert_allclose(
        got.astype(np.float64), expected(kind, var, gradients, **options), tolerance, tolerance
    )


@pytest.mark.parametrize(
    "options", [{"momentum": 0.75}, {"momentum": 0.75, "nesterov": True, "weight_decay": 0.125}]
)
def test_sgd_is_pytorchs(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    gradients = gradients_of(VAR.shape)
    w = torch.tensor(VAR, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=RATE, **options)
    for gradient in gradients:
        w.grad = torch.tensor(gradient)
        optimizer.step()
    got = Program("sgd", VAR, velocity_dtype=popsr.float64, **options).run(gradients)
    np.testing.assert_allclose(got, w.detach().numpy(), 1e-13)


@pytest.mark.parametrize("case", CASES)
def test_a_sharded_variable_takes_the_steps_of_a_whole_one(case: str) -> None:
    kind, options = CASES[case]
    var, gradients = VAR.astype(np.float32), gradients_of(VAR.shape, np.float32)
    whole = Program(kind, var, **options).run(gradients)
    parts = Program(kind, var, replication=4, sharded=True, **options).run(gradients)
    np.testing.assert_allclose(parts, whole, 2e-6)


@pytest.mark.parametrize("case", CASES)
def test_groups_have_variables_and_state_of_their_own(case: str) -> None:
    kind, options = CASES[case]
    var = np.stack([VAR, VAR + 1]).astype(np.float32)
    gradients = gradients_of(var.shape, np.float32)
    program = Program(kind, var, replication=4, grouping=lambda ir: ir.replica_grouping(stride=2), **options)
    assert not popsr.analysis.analyze(program.ir).drifting()
    got = program.run(gradients)
    for k in range(2):
        alone = Program(kind, var[k], **options).run([g[k] for g in gradients])
        np.testing.assert_array_equal(got[k], alone)


@pytest.mark.parametrize("kind", MODULES)
def test_gradients_are_unscaled_and_clipped(kind: str) -> None:
    """A gradient that is 8 times as long, with loss scaling 4 and the norm halved, is the plain one."""
    module, _ = MODULES[kind]
    results = []
    for scaled in (False, True):
        ir = popsr.Ir()
        with ir.main_graph, popsr.in_sequence():
            w = popsr.variable(VAR.astype(np.float32), name="w")
            grad = popsr.constant((0.125 * VAR * (8 if scaled else 1)).astype(np.float32))
            norm = float(np.linalg.norm(0.25 * VAR))
            options: dict[str, Any] = {}
            if scaled:
                options = {
                    "loss_scaling": 4,
                    "global_norm": popsr.constant(np.float32(norm)),
                    "global_norm_max": norm / 2,
                }
            factories, graph = module().create_graph(w, grad, lr=RATE, **options)
            graph.bind(factories.init()).call(
                w, grad, *[v for v in options.values() if isinstance(v, popsr.Tensor)]
            )
        with popsr.Session(ir) as session:
            session.run()
            results.append(session.get_tensor_data(w).copy())
    np.testing.assert_allclose(results[0], results[1], 1e-5, 1e-6)
    assert not np.array_equal(results[0], VAR.astype(np.float32))


REFUSED: dict[str, tuple[str, dict[str, Any], type[Exception], str]] = {
    "nesterov alone": (
        "sgd",
        {"nesterov": True},
        errors.AttributeValueError,
        "nesterov needs momentum, got 0.0",
    ),
    "velocity of ints": (
        "sgd",
        {"momentum": 0.5, "velocity_dtype": popsr.int32},
        errors.DTypeError,
        "velocity_dtype is not of floats, got int32",
    ),
    "momentum": (
        "sgd",
        {"momentum": "much"},
        errors.ArgumentTypeError,
        "momentum is not a number, got str 'much'",
    ),
    "beta1": ("lion", {"beta1": None}, errors.ArgumentTypeError, "beta1 is not a number"),
    "moments of ints": (
        "lion",
        {"first_order_dtype": popsr.int32},
        errors.DTypeError,
        "first_order_dtype is not of floats, got int32",
    ),
    "norm alone": (
        "lion",
        {"global_norm_max": 1.0},
        errors.AttributeValueError,
        "global_norm and global_norm_max belong",
    ),
    "max_weight_norm": (
        "lamb",
        {"max_weight_norm": "far"},
        errors.ArgumentTypeError,
        "max_weight_norm is not a number",
    ),
    "lr": ("lamb", {"lr": "fast"}, errors.ArgumentTypeError, "lr is not a number, got str 'fast'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    kind, options, error, message = REFUSED[case]
    module, _ = MODULES[kind]
    with popsr.Ir().main_graph:
        w = popsr.variable(np.ones(3, np.float32))
        with pytest.raises(error, match=f"^{module.__name__}: {message}"):
            module().create_graph(w, popsr.constant(np.ones(3, np.float32)), **({"lr": 0.1} | options))


@pytest.mark.parametrize("kind", MODULES)
def test_refused_operands(kind: str) -> None:
    module, _ = MODULES[kind]
    with popsr.Ir().main_graph:
        w = popsr.variable(np.ones(3, np.float32))
        with pytest.raises(
            errors.ShapeError, match=rf"^{module.__name__}: grad has another shape, got \(2,\)"
        ):
            module().create_graph(w, popsr.constant(np.ones(2, np.float32)), lr=0.1)
        with pytest.raises(errors.DTypeError, match=f"^{module.__name__}: var is not of floats, got int32"):
            module().create_graph(popsr.variable(np.ones(3, np.int32)), w, lr=0.1)
