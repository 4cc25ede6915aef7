"""Whole programs of ``support/programs/published``, written with PopXL's names, beside twins in NumPy and PyTorch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, compat
from popsr.compat._check import check as _check
from tests_py.support.helpers import Array, assert_same_bits
from tests_py.support.programs import PUBLISHED
from tests_py.support.unchecked import unchecked

NAMES = sorted(file.stem for file in PUBLISHED.glob("*.py"))


@pytest.fixture(scope="module")
def programs() -> Iterator[dict[str, ModuleType]]:
    """The programs, which import popxl and popxl_addons."""
    compat.install()
    sys.path.insert(0, str(PUBLISHED))
    try:
        yield {name: importlib.import_module(name) for name in NAMES}
    finally:
        sys.path.remove(str(PUBLISHED))
        for name in NAMES:
            sys.modules.pop(name, None)
        compat.uninstall()


@pytest.mark.parametrize("name", NAMES)
def test_popsr_has_all_that_the_programs_use(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _check.main([str(PUBLISHED / f"{name}.py")]) == 0
    assert "runs as far as names go" in capsys.readouterr().out


# Twins in NumPy, in float64

ACTIVATIONS = {
    "relu": (lambda x: np.maximum(x, 0), lambda y: (y > 0).astype(float)),
    "tanh": (np.tanh, lambda y: 1 - y * y),
}


def cross_entropy(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Losses of all samples, and the gradient of their mean."""
    scores = scores - scores.max(-1, keepdims=True)
    chances = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    wanted = np.eye(scores.shape[-1])[labels]
    return -np.log((chances * wanted).sum(-1)), (chances - wanted) / len(labels)


class Dense:
    """Layers ``activation(x @ w + b)``, the last without activation."""

    def __init__(self, weights: Sequence[tuple[Array, Array]], activation: str) -> None:
        self.weights = [[w.astype(np.float64), b.astype(np.float64)] for w, b in weights]
        self.act, self.slope = ACTIVATIONS[activation]

    def step(self, x: Array, labels: Array) -> tuple[Array, list[list[Array]]]:
        """Losses of all samples, and gradients of their mean."""
        values = [x.astype(np.float64)]
        for w, b in self.weights[:-1]:
            values.append(unchecked(self.act)(values[-1] @ w + b))
        w, b = self.weights[-1]
        losses, d = cross_entropy(values[-1] @ w + b, labels)
        grads = []
        for i in reversed(range(len(self.weights))):
            grads.append([values[i].T @ d, d.sum(0)])
            if i:
                d = d @ self.weights[i][0].T * self.slope(values[i])
        return losses, grads[::-1]

    def descend(self, grads: list[list[Array]], rate: float) -> None:
        for pair, grad in zip(self.weights, grads, strict=True):
            for p, g in zip(pair, grad, strict=True):
                p -= rate * g


class Adam:
    """With bias correction; epsilon outside of the root."""

    def __init__(self, weights: list[list[Array]], rate: float, decay: float = 0.0) -> None:
        self.weights, self.rate, self.decay, self.steps = weights, rate, decay, 0
        self.m, self.v = ([[np.zeros_like(p) for p in pair] for pair in weights] for _ in range(2))

    def step(self, grads: list[list[Array]], scale: float = 1.0) -> None:
        self.steps += 1
        for pair, grad, ms, vs in zip(self.weights, grads, self.m, self.v, strict=True):
            for p, g, m, v in zip(pair, grad, ms, vs, strict=True):
                m += 0.1 * (scale * g - m)
                v += 0.001 * ((scale * g) ** 2 - v)
                right, wide = m / (1 - 0.9**self.steps), v / (1 - 0.999**self.steps)
                p -= self.rate * (right / (np.sqrt(wide) + 1e-5) + self.decay * p)


def assert_close(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


# Modules inlined and outlined


def initial(program: Any) -> dict[str, Array]:
    """Data of all variables before anything ran."""
    with popsr.Session(program.ir) as session:
        data = session.get_tensors_data(program.variables.tensors)
    return {key: data[t] for key, t in program.variables.to_dict().items()}


def test_outlined_layers_compute_what_inlined_ones_do(programs: dict[str, Any]) -> None:
    mlp = programs["outlined_mlp"]
    trained = []
    for style in ("inlined", "outlined"):
        program = mlp.Program(style)
        before = initial(program)
        trained.append(program.train(*mlp.samples(12, program.shape, program.classes)))
    for key, value in trained[0][1].items():
        assert_same_bits(value, trained[1][1][key])
    assert trained[0][0] == trained[1][0]

    keys = [f"layers.{i}" for i in range(3)] + ["head"]
    twin = Dense([(before[f"{k}.weight"], before[f"{k}.bias"]) for k in keys], "relu")
    for x, labels, loss in zip(*mlp.samples(12, (5, 6), 4), trained[0][0], strict=True):
        losses, grads = twin.step(x, labels)
        twin.descend(grads, 0.1)
        assert_close(loss, losses.mean())
    for key, (w, b) in zip(keys, twin.weights, strict=True):
        assert_close(trained[0][1][f"{key}.weight"], w)
        assert_close(trained[0][1][f"{key}.bias"], b)


def test_schedules_show_calls_of_one_graph(programs: dict[str, Any]) -> None:
    inlined, outlined = (programs["outlined_mlp"].Program(style) for style in ("inlined", "outlined"))
    assert outlined.forward.print_schedule().count("(Dense_subgraph(1))") == 3
    assert outlined.backward.print_schedule().count("(Dense_subgraph(1)_bwd)") == 3
    assert "Call" not in inlined.forward.print_schedule()
    assert inlined.variables.keys_flat() == outlined.variables.keys_flat()


# Common mistakes


class Adds(addons.Module):
    """``x`` and a variable."""

    def __init__(self, data: Any) -> None:
        super().__init__()
        self.data = data

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        return x + self.add_variable_input("b", self.data, x.dtype)


class Several(addons.Module):
    """Parts in a plain list, or in one of ours."""

    def __init__(self, plain: bool) -> None:
        super().__init__()
        parts = [Adds(lambda: np.zeros(4)) for _ in range(2)]
        self.parts = parts if plain else addons.Module.from_list(list(parts))

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        for part in self.parts:
            x = part(x)
        return x


def test_parts_in_a_plain_list_are_reported() -> None:
    spec = popsr.TensorSpec((4,), popsr.float32)
    with popsr.Ir().main_graph:
        factories, _ = Several(plain=False).create_graph(spec)
        assert factories.keys_flat() == ["parts.0.b", "parts.1.b"]
        text = r"Several: .* got Adds with \['b'\], expected an attribute or Module\.from_list"
        with pytest.warns(UserWarning, match=text):
            factories, graph = Several(plain=True).create_graph(spec)
        assert factories.keys_flat() == graph.args.keys_flat() == []


def test_data_that_ends_says_whose() -> None:
    with popsr.Ir(replication=2).main_graph:
        groups = popsr.gir().replica_grouping(group_size=1)
        factory = addons.VariableFactory(iter(np.zeros((3, 4))), name="rows", replica_grouping=groups)
        factory.create_tensor()
        with pytest.raises(StopIteration, match=r"'rows': data_iter has no more items, expected 2"):
            factory.create_tensor()


def test_keys_are_not_set_as_attributes() -> None:
    tree = addons.NamedTensors()
    tree.insert("a.b", addons.NamedTensors())
    with pytest.raises(AttributeError, match=r"NamedTensors: .* got 'a', expected insert\('a', \.\.\."):
        tree.a = 1
    assert tree.keys_flat() == []
    assert tree.keys() == ["a"]


# Mixed precision, clipping, Adam


@pytest.mark.parametrize("own", [True, False], ids=["own", "library"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float16", 1e-2)])
def test_clipped_adam(programs: dict[str, Any], own: bool, dtype: str, tolerance: float) -> None:
    module = programs["clipped_adam"]
    opts = module.Options(own=own, dtype=popsr.dtypes.dtype.from_name(dtype))
    program = module.Program(opts)
    assert len(program.graphs) == 4  # variables of one shape share their optimiser's graph
    assert program.state.len_flat() == 3 * program.variables.len_flat()
    before = initial(program)
    data = module.samples(opts, 25)
    losses, norms = program.train(*data)

    layers = ("fc1", "fc2", "fc3")
    twin = Dense([(before[f"{k}.weight"], before[f"{k}.bias"]) for k in layers], "tanh")
    adam = Adam(twin.weights, opts.learning_rate, opts.weight_decay)
    for x, labels, loss, norm in zip(*data, losses, norms, strict=True):
        each, grads = twin.step(x, labels)
        total = np.sqrt(sum(float((g * g).sum()) for pair in grads for g in pair))
        adam.step(grads, opts.max_norm / max(total, opts.max_norm))
        assert_close([loss, norm], [each.mean(), total], tolerance)
    assert norms.max() > opts.max_norm  # something was clipped
    assert_close(program.trained["fc1.weight"], twin.weights[0][0], tolerance)


# Tensor and data parallelism, weights and state in remote memory


def test_sharded_training(programs: dict[str, Any]) -> None:
    module = programs["sharded_training"]
    opts, steps = module.Options(), 12
    program = module.Program(opts)
    x, labels = module.samples(opts, steps)
    losses, weights = program.train(x, labels, check=True)

    w = module.initial(opts)
    twin = Dense([(w["wide"], w["wide_bias"]), (w["back"], w["back_bias"])], "tanh")
    adam = Adam(twin.weights, opts.learning_rate)
    for a, b, loss in zip(x, labels, losses, strict=True):
        each, grads = twin.step(a.reshape(-1, opts.features), b.reshape(-1))
        adam.step(grads)
        by_replica = each.reshape(opts.gradient_accumulation, opts.dp, -1).mean(-1).repeat(opts.tp, 1)
        assert_close(loss, by_replica, 1e-4)
    (wide, wide_bias), (back, back_bias) = twin.weights
    assert_close(np.concatenate(weights["wide"], 1), wide, 1e-4)
    assert_close(weights["wide_bias"].ravel(), wide_bias, 1e-4)
    assert_close(np.concatenate(weights["back"]), back, 1e-4)
    assert_close(weights["back_bias"], back_bias, 1e-4)

    facts = popsr.analysis.analyze(program.ir)
    parts = "{0,2,4,6}{1,3,5,7}"
    found = {key: str(facts.partition(t)) for key, t in program.whole.to_dict().items()}
    everywhere = str(facts.partition(program.state.wide.step))
    assert found == {"wide": parts, "wide_bias": parts, "back": parts, "back_bias": everywhere}
    assert everywhere == "{0,1,2,3,4,5,6,7}"


# Pipelines


@pytest.mark.parametrize("recompute", [False, True], ids=["stashed", "recomputed"])
def test_pipeline(programs: dict[str, Any], recompute: bool) -> None:
    module = programs["pipelined"]
    opts = module.Options(recompute=recompute)
    program = module.Program(opts)
    rng = np.random.default_rng(0)
    weights = []
    for rows, columns in zip(opts.sizes[:-1], opts.sizes[1:], strict=True):
        for _ in range(2):  # one draw tries the function, one is for the first variable
            drawn = module.normal(rng, rows, columns)
        weights.append((drawn.astype(np.float32), np.zeros(columns)))
    x, labels = module.samples(opts, 6)
    losses = program.train(x, labels, check=True)
    twin = Dense(weights, "tanh")
    for a, b, loss in zip(x, labels, losses, strict=True):
        each, grads = twin.step(a.reshape(-1, opts.sizes[0]), b.reshape(-1))
        twin.descend(grads, opts.learning_rate)
        assert_close(loss, each.reshape(b.shape).mean(-1))
    for found, (w, bias) in zip(program.trained, twin.weights, strict=True):
        assert_close(found["weight"], w)
        assert_close(found["bias"], bias)
    facts = popsr.analysis.analyze(program.ir)
    for stage in program.layers:
        assert {str(facts.partition(t)) for t in stage.variables.tensors} == {"{0,1}"}


# Phased execution


class Residual:
    """A table, layers ``x + tanh(x @ wide) @ back``, and a head."""

    def __init__(self, weights: dict[str, Array], layers: int) -> None:
        self.weights = {key: value.astype(np.float64) for key, value in weights.items()}
        self.layers = layers

    def step(self, tokens: Array, labels: Array, rate: float) -> Array:
        """Losses of all samples; weights are updated by gradients of their mean."""
        w, grads = self.weights, {}
        x, kept = w["embedding0.table"][tokens], []
        for i in range(self.layers):
            hidden = np.tanh(x @ w[f"layer{i}.wide"])
            kept.append((x, hidden))
            x = x + hidden @ w[f"layer{i}.back"]
        losses, d = cross_entropy(x @ w["head0.weight"], labels)
        grads["head0.weight"] = x.T @ d
        d = d @ w["head0.weight"].T
        for i in reversed(range(self.layers)):
            x, hidden = kept[i]
            grads[f"layer{i}.back"] = hidden.T @ d
            inner = d @ w[f"layer{i}.back"].T * (1 - hidden * hidden)
            grads[f"layer{i}.wide"] = x.T @ inner
            d = d + inner @ w[f"layer{i}.wide"].T
        grads["embedding0.table"] = np.zeros_like(w["embedding0.table"])
        np.add.at(grads["embedding0.table"], tokens, d)
        for key, grad in grads.items():
            w[key] -= rate * grad
        return losses


@pytest.mark.parametrize(
    "changes",
    [{}, {"recompute": False, "io_mode": "compute"}, {"data_parallel": 1, "io_mode": "io_overlapped"}],
    ids=["recomputed", "stored", "one-replica"],
)
def test_phases(programs: dict[str, Any], changes: dict[str, Any]) -> None:
    module = programs["phased"]
    opts = module.Options(**changes)
    program = module.Program(opts)
    tokens, labels = module.samples(opts, 6)
    variables = [t for p in program.phases.values() for v in p.variables for t in v.tensors]
    with popsr.Session(program.ir) as session:
        before = {t.name: a for t, a in session.get_tensors_data(variables).items()}
    losses = program.train(tokens, labels, check=True)
    twin = Residual(before, opts.layers)
    for a, b, loss in zip(tokens, labels, losses, strict=True):
        each = twin.step(a.ravel(), b.ravel(), opts.learning_rate)
        assert_close(loss.reshape(b.shape[:-1]), each.reshape(b.shape).mean(-1))
    assert program.trained.keys() == twin.weights.keys()
    for key, expected in twin.weights.items():
        assert_close(program.trained[key], expected)


# GPT-2


def test_gpt2_trains_in_bfloat16_with_stochastic_rounding(programs: dict[str, Any]) -> None:
    module = programs["gpt2"]
    program = module.build(module.Config(), np.random.default_rng(0))
    facts = popsr.analysis.analyze(program.ir)
    assert {str(facts.partition(t)) for t in program.variables.tensors} == {"{0,1,2,3}"}
    assert {str(facts.partition(t)) for t in program.gradients.accum.tensors} == {"{0}{1}{2}{3}"}
    losses = module.train(program, 12, check=True, strict=True)
    assert losses[0] > np.log(module.Config.vocab) - 0.2
    assert losses[-1] < losses[0] / 2
    again = module.build(module.Config(), np.random.default_rng(0))
    assert module.train(again, 12) == losses  # the same bits, with equal values stored and computed once


def torch_losses(torch: Any, module: Any, weights: dict[str, Array], steps: int) -> list[float]:
    """Mean losses of the same model without dropout."""
    c = module.Config
    p = {key: torch.tensor(value, requires_grad=True) for key, value in weights.items()}
    functional = torch.nn.functional

    def linear(x: Any, name: str) -> Any:
        return x @ p[f"{name}.weight"] + p[f"{name}.bias"]

    def norm(x: Any, name: str) -> Any:
        return functional.layer_norm(x, (c.hidden,), p[f"{name}.weight"], p[f"{name}.bias"])

    def forward(tokens: Any) -> Any:
        x = p["table"][tokens] + p["places"]
        for i in range(c.layers):
            name, heads = f"layer{i}", (len(tokens), c.sequence, c.heads, -1)
            qkv = linear(norm(x, f"{name}.norm1"), f"{name}.attention.qkv").split(c.hidden, -1)
            q, k, v = (t.reshape(heads).transpose(1, 2) for t in qkv)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            mixed = mixed.transpose(1, 2).reshape(x.shape)
            x = x + linear(mixed, f"{name}.attention.output")
            wide = linear(norm(x, f"{name}.norm2"), f"{name}.feed_forward.wide")
            x = x + linear(functional.gelu(wide, approximate="tanh"), f"{name}.feed_forward.back")
        return norm(x, "norm") @ p["table"].T

    rng, losses = np.random.default_rng(c.seed), []
    for _ in range(steps):
        tokens, labels = (torch.tensor(a.reshape(-1, c.sequence)).long() for a in module.batch(c(), rng))
        loss = functional.cross_entropy(forward(tokens).flatten(0, 1), labels.flatten())
        losses.append(loss.item())
        for t, grad in zip(p.values(), torch.autograd.grad(loss, list(p.values())), strict=True):
            t.data -= c.learning_rate * grad
    return losses


def test_gpt2_without_dropout_is_torchs(programs: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    module = programs["gpt2"]
    config = module.Config(dropout=0.0, dtype=popsr.float32)
    program = module.build(config, np.random.default_rng(0))
    expected = torch_losses(torch, module, initial(program), 8)
    assert_close(module.train(program, 8), expected, 1e-4)
