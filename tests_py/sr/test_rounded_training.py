"""A thousand steps with stochastic rounding: replicas that must stay equal do, although each keeps its own weights."""

from __future__ import annotations

import numpy as np

import popsr
from popsr import ops
from popsr.ops import collectives, var_updates
from tests_py.support.helpers import Array, bits, np_dtype

STEPS = 1000
# Replicas 0, 1 and 2, 3 share a sample; 0, 2 and 1, 3 hold the same part of the weights.
TENSOR_PARALLEL, DATA_PARALLEL = ((0, 1), (2, 3)), ((0, 2), (1, 3))


class Layer:
    """A column-parallel product and its row-parallel partner in bfloat16, trained towards the input."""

    def __init__(self) -> None:
        bf16 = np_dtype("bfloat16")
        rng = np.random.default_rng(0)
        self.ir = popsr.Ir(replication=4)
        self.ir.options.enable_stochastic_rounding = True
        with self.ir.main_graph, popsr.in_sequence():
            self.samples = popsr.h2d_stream((8, 16), popsr.bfloat16)
            tensor, data = self.ir.replica_grouping(1, 2), self.ir.replica_grouping(2, 2)
            descent = popsr.constant(-(2.0**-8), popsr.bfloat16)
            up, down = (
                popsr.variable(
                    (rng.standard_normal((2, *shape)) / 4).astype(bf16),
                    replica_grouping=data,
                    retrieval_mode="all_replicas",
                )
                for shape in ((16, 12), (12, 16))
            )
            loaded = ops.host_load(self.samples)
            x = collectives.replicated_broadcast(loaded, group=tensor)
            # Equal numbers, but nobody proves it: rounded with numbers of each replica's own.
            self.own = ops.mul(loaded, popsr.constant(np.full((8, 16), 1 + 2**-7, bf16)))
            hidden = ops.tanh(x @ up)
            self.shared = collectives.replicated_all_reduce(hidden @ down, "add", tensor)
            error = self.shared - x
            for weight, gradient in ((up, x.T @ (error @ down.T)), (down, hidden.T @ error)):
                mean = collectives.replicated_all_reduce(gradient, "mean", data)
                var_updates.accumulate_(weight, mean * descent)
            self.weights = (up, down)
            self.outputs = []
            for tensor_out in (self.own, self.shared, error):
                self.outputs.append(popsr.d2h_stream(tensor_out.shape, popsr.bfloat16))
                ops.host_store(self.outputs[-1], tensor_out)


def equal(rows: Array, r: int, s: int) -> bool:
    return np.array_equal(bits(rows[r]), bits(rows[s]))


def chance_to_agree(samples: Array) -> float:
    """Of two independent roundings of samples * (1 + 2^-7) to bfloat16, which is the upper half of float32."""
    exact = samples.astype(np.float32) * np.float32(1 + 2**-7)
    away = (exact.view(np.uint32) & 0xFFFF) / 65536
    return float(np.mean(away**2 + (1 - away) ** 2))


def test_weights_stay_equal_and_activations_round_independently() -> None:
    layer = Layer()
    rng = np.random.default_rng(1)
    agree, chance, losses = [], [], []
    with popsr.Session(layer.ir, seed=7, dedup=False) as session:
        for _ in range(STEPS):
            pair = rng.standard_normal((2, 8, 16)).astype(np_dtype("bfloat16"))
            own, shared, error = session.run({layer.samples: np.repeat(pair, 2, axis=0)}).values()
            assert all(equal(shared, a, b) for a, b in TENSOR_PARALLEL)
            assert not equal(shared, 0, 2)
            agree.append(np.mean(bits(own[0]) == bits(own[1])))
            chance.append(chance_to_agree(pair[0]))
            losses.append(np.mean(error.astype(np.float32) ** 2))
        weights = session.get_tensors_data(layer.weights)
    for weight in layer.weights:
        assert all(equal(weights[weight], a, b) for a, b in DATA_PARALLEL)
        assert not equal(weights[weight], 0, 1)
    assert np.mean(losses[-50:]) < 0.7 * np.mean(losses[:50])
    # 128,000 pairs: five standard deviations are less than 0.007.
    assert abs(np.mean(agree) - np.mean(chance)) < 0.007
