"""Layers of ``popsr.addons``: values and gradients beside NumPy and torch, initial values, replicas."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, fp8_utils
from popsr.addons import layers
from tests_py.support.helpers import Array, Streams, assert_same_bits, dtype, np_dtype, rows
from tests_py.support.unchecked import unchecked

RNG = np.random.default_rng(17)


class Run:
    """One run of a layer: its result, its variables, and gradients where seeds are given."""

    def __init__(
        self,
        layer: addons.Module,
        x: Array,
        weights: Callable[[addons.NamedTensors], Mapping[Any, Array]] | None = None,
        *,
        replication: int = 1,
        seed: Array | None = None,
    ) -> None:
        ir = popsr.Ir(replication=replication)
        io = Streams()
        with ir.main_graph, popsr.in_sequence():
            t = io.feed(x, replicated=replication > 1)
            factories, graph = layer.create_graph(t)
            info = None
            if seed is not None:
                given = [graph.graph.outputs[0]]
                wanted = [i for i in graph.graph.inputs if i.dtype != popsr.uint16]
                info = graph.autodiff(grads_provided=given, grads_required=wanted)
            variables = factories.init()
            call = graph.bind(variables).call_with_info(t)
            io.fetch(call.outputs[0])
            if info is not None and seed is not None:
                fed = io.feed(seed, replicated=replication > 1)
                for gradient in info.call(fed, args=info.grad_graph_info.inputs_dict(call)):
                    io.fetch(gradient)
        self.partition = popsr.analysis.analyze(ir).partition(call.outputs[0])
        with popsr.Session(ir, check=True) as session:
            if weights is not None:
                session.write_variables_data(weights(variables))
            self.weights = {key: session.get_tensor_data(v).copy() for key, v in variables.to_dict().items()}
            results = [rows(each, replication) for each in io.run(session)]
        self.y, self.gradients = results[0], results[1:]


def filled(variables: addons.NamedTensors) -> dict[Any, Array]:
    """Random data for each variable."""
    return {
        v: RNG.standard_normal(v.shape_on_host).astype(v.dtype.as_ml_dtypes())
        for v in variables.to_dict().values()
        if isinstance(v, popsr.Variable)
    }


# Values


def test_linear() -> None:
    for bias in (True, False):
        x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
        seed = RNG.standard_normal((2, 3, 5)).astype(np.float32)
        got = Run(layers.Linear(5, bias), x, filled, seed=seed)
        w, b = got.weights["weight"], got.weights.get("bias", np.zeros(5))
        assert ("bias" in got.weights) is bias
        np.testing.assert_allclose(got.y[0], x @ w + b, rtol=1e-5, atol=1e-5)
        flat = x.reshape(-1, 4), seed.reshape(-1, 5)
        expect = [seed @ w.T, flat[0].T @ flat[1], flat[1].sum(0)]
        for gradient, each in zip(got.gradients, expect, strict=False):
            np.testing.assert_allclose(gradient[0], each, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_initial_values(name: str) -> None:
    """Normal, cut off at two standard deviations of 0.02, by NumPy's generator; the rest ones and zeros."""
    x = RNG.standard_normal((2, 400)).astype(np_dtype(name))
    weights = Run(layers.Linear(300), x).weights
    w = weights["weight"].view(np_dtype(name)).astype(np.float64)
    assert (w.shape, weights["weight"].dtype) == ((400, 300), dtype(name).as_numpy())
    assert abs(w).max() <= 0.0401
    # The standard deviation of a normal number within two of them is 0.8796 of its own.
    assert abs(w.std() / 0.02 - 0.8796) < 0.01
    assert abs(w.mean()) < 1e-3
    assert not weights["bias"].any()
    norm = Run(layers.GroupNorm(4), x).weights
    assert (norm["weight"].view(np_dtype(name)) == 1).all()
    assert not norm["bias"].any()


def test_initial_values_follow_numpys_seed() -> None:
    draws = []
    for _ in range(2):
        np.random.seed(5)  # noqa: NPY002 - what programs do
        draws.append(Run(layers.Linear(3), np.ones((1, 4), np.float32)).weights["weight"])
    assert_same_bits(*unchecked(draws))


def test_groups_of_replicas_have_weights_of_their_own() -> None:
    """Row g of the host data goes to group g; columns of a product on each."""
    ir = popsr.Ir(replication=4)
    group = ir.replica_grouping(2, 2)
    x = np.broadcast_to(RNG.standard_normal((3, 4)).astype(np.float32), (4, 3, 4))
    got = Run(layers.Linear(5, replica_grouping=group), x, replication=4)
    assert got.weights["weight"].shape == (2, 4, 5)
    assert not np.array_equal(got.weights["weight"][0], got.weights["weight"][1])
    for r in range(4):
        expect = x[r] @ got.weights["weight"][group.assignment[r]]
        np.testing.assert_allclose(got.y[r], expect, rtol=1e-5, atol=1e-6)


def normed(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def test_norms() -> None:
    x = RNG.standard_normal((3, 8)).astype(np.float64)
    got = Run(layers.LayerNorm(), x, filled)
    expect = normed(x, (1,), 1e-5) * got.weights["weight"] + got.weights["bias"]
    np.testing.assert_allclose(got.y[0], expect, rtol=1e-10)
    x = RNG.standard_normal((2, 6, 3, 4)).astype(np.float64)
    got = Run(layers.GroupNorm(2, eps=1e-2), x, filled)
    w, b = (got.weights[key][:, None, None] for key in ("weight", "bias"))
    expect = normed(x.reshape(2, 2, 3, 3, 4), (2, 3, 4), 1e-2).reshape(x.shape) * w + b
    np.testing.assert_allclose(got.y[0], expect, rtol=1e-10)


def test_a_norm_of_shared_out_columns() -> None:
    """Variables have a row for each rank; the result equals the whole rows'."""
    ir = popsr.Ir(replication=4)
    group = ir.replica_grouping(1, 2)
    x = RNG.standard_normal((4, 3, 5))
    got = Run(layers.LayerNormDistributed(group), x, filled, replication=4)
    assert got.weights["weight"].shape == (2, 5)
    w, b = (np.concatenate(got.weights[key]) for key in ("weight", "bias"))
    for members in ((0, 1), (2, 3)):
        whole = normed(np.concatenate([x[r] for r in members], -1), (1,), 1e-5) * w + b
        for r, part in zip(members, np.split(whole, 2, -1), strict=True):
            np.testing.assert_allclose(got.y[r], part, rtol=1e-10, atol=1e-12)


# Embeddings


def test_embedding() -> None:
    indices = np.array([[0, 6], [7, -1]], np.int32)  # 7 and -1 are not rows
    got = Run(layers.Embedding(popsr.float16, 7, 3), indices)
    table = np.concatenate([got.weights["weight"], np.zeros((1, 3), np.float16)])
    assert_same_bits(got.y[0], table[[[0, 6], [7, 7]]])


def test_embedding_whose_rows_are_shared_out() -> None:
    """The sum over parts of the shifted indices is the whole table's."""
    vocab, parts = 40, 2
    size = layers.Embedding.get_vocab_shard_size(vocab, parts)
    offsets = layers.Embedding.get_offsets(vocab, parts)
    assert (size, offsets.tolist(), offsets.dtype) == (32, [0, 32], np.int32)
    group = popsr.Ir(replication=4).replica_grouping(1, 2)
    indices = RNG.integers(0, vocab, (6,)).astype(np.int32)
    x = np.stack([indices - offsets[part] for part in group.assignment])
    got = Run(layers.Embedding(popsr.float32, vocab, 3, replica_grouping=group), x, replication=4)
    assert got.weights["weight"].shape == (2, 32, 3)
    table = np.concatenate(got.weights["weight"])
    for pair in ((0, 2), (1, 3)):
        assert_same_bits(got.y[pair[0]] + got.y[pair[1]], table[indices])
    assert got.partition.blocks == ((0,), (1,), (2,), (3,))  # indices are fed to each replica


def test_embedding_whose_columns_are_shared_out() -> None:
    group = popsr.Ir(replication=2).replica_grouping(1, 1)
    indices = np.broadcast_to(np.array([3, 0, 9], np.int32), (2, 3))
    got = Run(layers.Embedding(popsr.float32, 10, 6, 1, group), indices, replication=2)
    assert got.weights["weight"].shape == (2, 10, 3)
    for r in range(2):
        assert_same_bits(got.y[r], got.weights["weight"][r][indices[r]])


@pytest.mark.parametrize(
    ("vocab", "parts", "size"), [(10, 1, 10), (32, 2, 16), (33, 2, 32), (64, 4, 16), (5, 8, 16)]
)
def test_parts_of_a_vocabulary(vocab: int, parts: int, size: int) -> None:
    assert layers.Embedding.get_vocab_shard_size(vocab, parts) == size
    assert layers.Embedding.get_offsets(vocab, parts).tolist() == [size * k for k in range(parts)]


# Layers of torch


def _torch_layers(torch: Any) -> dict[str, tuple[addons.Module, Any, tuple[int, ...]]]:
    nn = torch.nn
    return {
        "linear": (layers.Linear(5), nn.Linear(4, 5), (3, 4)),
        "linear without bias": (layers.Linear(5, False), nn.Linear(4, 5, bias=False), (3, 4)),
        "layer norm": (layers.LayerNorm(), nn.LayerNorm(6), (3, 6)),
        "layer norm of the last axis": (
            layers.LayerNorm(normalized_shape=6),
            nn.LayerNorm(6),
            (2, 3, 5, 6),
        ),
        "layer norm of images": (
            layers.LayerNorm(normalized_shape=(3, 5, 6)),
            nn.LayerNorm((3, 5, 6)),
            (2, 3, 5, 6),
        ),
        "layer norm of all axes": (layers.LayerNorm(normalized_shape=(3, 6)), nn.LayerNorm((3, 6)), (3, 6)),
        "group norm": (layers.GroupNorm(3), nn.GroupNorm(3, 6), (2, 6, 4, 4)),
        "conv": (
            layers.Conv2D(6, (3, 2), (2, 1), (1, 2, 1, 2), (1, 2), 2),
            nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 2), (1, 2), 2),
            (2, 4, 9, 8),
        ),
        "conv without bias": (layers.Conv2D(6, 3, bias=False), nn.Conv2d(4, 6, 3, bias=False), (2, 4, 5, 5)),
        "conv, same": (
            layers.Conv2D(6, 3, paddings="same_upper"),
            nn.Conv2d(4, 6, 3, padding="same"),
            (2, 4, 5, 5),
        ),
    }


TORCH_ROWS = [
    "linear",
    "linear without bias",
    "layer norm",
    "layer norm of the last axis",
    "layer norm of images",
    "layer norm of all axes",
    "group norm",
    "conv",
    "conv without bias",
    "conv, same",
]


@pytest.mark.parametrize("row", TORCH_ROWS)
def test_layers_of_torch(row: str) -> None:
    """With the mapped data the layer computes what torch's does, forward and backward."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    layer, twin, shape = _torch_layers(torch)[row]
    for parameter in twin.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(shape, requires_grad=True)
    y = twin(x)
    seed = torch.randn(y.shape)
    y.backward(seed)
    got = Run(
        layer, x.detach().numpy(), lambda v: unchecked(type(layer)).torch_mapping(v, twin), seed=seed.numpy()
    )
    np.testing.assert_allclose(got.y[0], y.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got.gradients[0][0], x.grad.numpy(), rtol=1e-3, atol=1e-4)
    for gradient, parameter in zip(got.gradients[1:], twin.parameters(), strict=True):
        expect = parameter.grad.numpy()
        if row.startswith("linear"):
            expect = expect.T
        np.testing.assert_allclose(gradient[0].reshape(expect.shape), expect, rtol=1e-3, atol=1e-4)


def test_layer_norms_of_torch_on_flat_rows() -> None:
    """Weights of several axes are those of flat rows, and the other way round; other orders of axes are refused."""
    torch = pytest.importorskip("torch")
    x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    flat, images = x.reshape(2, 12), layers.LayerNorm(normalized_shape=(3, 4))
    for shape, layer, data in (((3, 4), layers.LayerNorm(), flat), ((12,), images, x)):
        twin = torch.nn.LayerNorm(shape)
        for parameter in twin.parameters():
            torch.nn.init.normal_(parameter)
        got = Run(layer, data, functools.partial(layers.LayerNorm.torch_mapping, nn_layer=twin))
        expect = twin(torch.tensor(x.reshape(2, *shape))).detach().numpy()
        np.testing.assert_allclose(got.y[0], expect.reshape(data.shape), rtol=1e-4, atol=1e-5)
    with pytest.raises(errors.ShapeError, match=r"data of 'weight' is of another shape, got \(4, 3\)"):
        Run(images, x, lambda v: layers.LayerNorm.torch_mapping(v, torch.nn.LayerNorm((4, 3))))


@pytest.mark.parametrize("bias", [True, False])
def test_layers_make_the_same_graph_again(bias: bool) -> None:
    """Requested values are not overwritten by tensors of the first graph."""
    with popsr.Ir().main_graph:
        for layer, shape in (
            (layers.Conv2D(3, 2, bias=bias), (1, 2, 4, 4)),
            (layers.Linear(3, bias), (2, 4)),
        ):
            for _ in range(2):
                factories, graph = layer.create_graph(popsr.TensorSpec(shape, popsr.float32))
                assert factories.keys_flat() == (["weight", "bias"] if bias else ["weight"])
                assert len(graph.graph.inputs) == 2 + bias
                assert layer.bias is bias


def test_data_of_torch_in_another_dtype() -> None:
    torch = pytest.importorskip("torch")
    twin = torch.nn.Linear(4, 5)
    got = Run(
        layers.Linear(5),
        np.ones((1, 4), np.float16),
        lambda v: layers.Linear.torch_mapping(v, twin, popsr.float16),
    )
    assert_same_bits(got.weights["weight"], twin.weight.detach().numpy().T.astype(np.float16))


# float8


def through_float8(x: Array, name: str, metric: str) -> Array:
    """The nearest float8 at the scale that the metric chooses."""
    wide = x.astype(np.float64)
    if metric == "mse":
        scale = fp8_utils.host_fp8_mse_scale_pb(x, dtype(name))
    elif metric.startswith("manual"):
        scale = 3
    else:
        greatest = {"float8_143": 240.0, "float8_152": 57344.0}[name]
        scale = int(np.clip(np.floor(np.log2(greatest / abs(wide).max())), -31, 31))
    return np.ldexp(np.ldexp(wide, scale).astype(np_dtype(name)).astype(np.float64), -scale)


@pytest.mark.parametrize("name", ["float16", "float32"])
@pytest.mark.parametrize("metric", ["amax", "mse", "manual", "manual_scale"])
def test_linear_of_float8(metric: str, name: str) -> None:
    """Products of the converted operands, rounded to float16; gradients likewise."""
    x = RNG.standard_normal((2, 3, 16)).astype(np_dtype(name))
    seed = (RNG.standard_normal((2, 3, 8)) * 0.01).astype(np_dtype(name))
    got = Run(layers.LinearFP8(8, True, metric, 3), x, seed=seed)
    w = got.weights["weight"]
    x8, w8, g8 = (
        through_float8(each, kind, metric)
        for each, kind in ((x, "float8_143"), (w, "float8_143"), (seed, "float8_152"))
    )
    rows_of = x8.reshape(-1, 16), g8.reshape(-1, 8)
    expect = [x8 @ w8, g8 @ w8.T, rows_of[0].T @ rows_of[1], seed.astype(np.float64).sum((0, 1))]
    for value, each in zip([got.y, *got.gradients], expect, strict=True):
        assert value.dtype == np_dtype(name)
        np.testing.assert_allclose(value[0].astype(np.float64), each, rtol=2e-3, atol=1e-6)


def test_float8_of_tiny_operands() -> None:
    """Both scales together are more than one step can undo: they are reduced."""
    x = np.full((2, 16), 2.0**-24, np.float16)

    def tiny(variables: addons.NamedTensors) -> dict[Any, Array]:
        return {variables.get("weight"): np.full((16, 8), 2.0**-20, np.float16)}

    got = Run(layers.LinearFP8(8, False), x, tiny, seed=np.full((2, 8), 2.0**-24, np.float16))
    assert not got.y.any()  # 2**-40 is not a float16
    x = np.full((2, 16), 2.0**-24, np.float32)

    def small(variables: addons.NamedTensors) -> dict[Any, Array]:
        return {variables.get("weight"): np.full((16, 8), 0.5, np.float32)}

    got = Run(layers.LinearFP8(8, False), x, small)
    np.testing.assert_array_equal(got.y[0], np.full((2, 8), 2.0**-21, np.float32))


def test_a_part_of_another_module() -> None:
    """``call_module`` outlines it with its gradient; calling it inside another build is refused."""

    class Outer(addons.Module):
        def __init__(self, inline: bool) -> None:
            super().__init__()
            self.inner, self.inline = layers.LinearFP8(8), inline

        def build(self, x: popsr.Tensor) -> Any:
            if self.inline:
                return self.inner(x)
            (y,) = self.call_module(self.inner, "inner")(x)
            return y

    x = RNG.standard_normal((3, 16)).astype(np.float16)
    seed = RNG.standard_normal((3, 8)).astype(np.float16)
    np.random.seed(1)  # noqa: NPY002
    direct = Run(layers.LinearFP8(8), x, seed=seed)
    np.random.seed(1)  # noqa: NPY002
    nested = Run(Outer(False), x, seed=seed)
    assert set(nested.weights) == {"inner.weight", "inner.bias"}
    assert_same_bits(direct.y, nested.y)
    for one, other in zip(direct.gradients, nested.gradients, strict=True):
        assert_same_bits(one, other)
    with pytest.raises(errors.GraphError, match="LinearFP8: build_grad of a module inside another graph"):
        Run(Outer(True), x)


# Four bits


@pytest.mark.parametrize(("group_size", "dim"), [(0, -1), (4, 1), (2, 0)])
def test_linear_of_four_bits(group_size: int, dim: int) -> None:
    """The compressed weight is one draw, and the product is that with the decompressed one."""
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    seed = RNG.standard_normal((3, 12)).astype(np.float32)
    got = Run(layers.LinearGQ(12, group_size=group_size, dim=dim), x, seed=seed)
    parts = [got.weights[key] for key in ("weight", "weight_scale", "weight_bias")]
    w = unchecked(addons.ops.group_quantize_decompress_numpy)(*unchecked(parts), dim)
    assert 0 < abs(w).max() <= 0.04
    np.testing.assert_allclose(got.y[0], x @ w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got.gradients[0][0], seed @ w.T, rtol=1e-4, atol=1e-5)
    assert len(got.gradients) == 4


def test_linear_of_four_bits_of_torch() -> None:
    torch = pytest.importorskip("torch")
    twin = torch.nn.Linear(8, 128)
    for name in ("float32", "float16", "bfloat16"):
        x = RNG.standard_normal((3, 8)).astype(np_dtype(name))
        got = Run(
            layers.LinearGQ(128, group_size=64),
            x,
            lambda v: layers.LinearGQ.torch_mapping(v, twin, dtype(name)),  # noqa: B023
        )
        whole = twin.weight.detach().numpy().T
        half = (whole.reshape(8, 2, 64).max(-1) - whole.reshape(8, 2, 64).min(-1)).max() / 30
        expect = x.astype(np.float64) @ whole + twin.bias.detach().numpy()
        assert abs(got.y[0].astype(np.float64) - expect).max() < 8 * half * abs(x.astype(np.float64)).max()


def test_draws_of_groups_belong_together() -> None:
    group = popsr.Ir(replication=2).replica_grouping(1, 1)
    x = np.broadcast_to(np.eye(8, dtype=np.float32), (2, 8, 8))
    got = Run(layers.LinearGQ(8, False, group), x, replication=2)
    for r in range(2):
        parts = [got.weights[key][r] for key in ("weight", "weight_scale", "weight_bias")]
        assert_same_bits(got.y[r], unchecked(addons.ops.group_quantize_decompress_numpy)(*parts, -1))
        assert parts[0].any()
