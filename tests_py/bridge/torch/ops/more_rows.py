"""Calls of overloads with a rule, continued: reductions, indexing, products, convolutions, pools."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests_py.bridge.torch.ops.rows import HALF, bools, call, floats, ints  # noqa: E402

_A, _T, _I, _M = floats(2, 3), floats(2, 3, 4), ints(2, 3), bools(2, 3)

_NARROW = (floats(16, 16).to(torch.float8_e4m3fn), floats(16, 16, seed=1).to(torch.float8_e4m3fn).t())

REDUCTIONS: dict[str, list[Any]] = {
    "sum.default": [call(_T), call(_M), call(ints(3, kind=torch.int32))],
    "sum.dim_IntList": [call(_T, [1]), call(_T, [0, -1], True), call(_T, []), call(_T, None), call(_M, [0])],
    "mean.default": [call(_T)],
    "mean.dim": [call(_T, [1]), call(_T, [0, 2], True), call(_T.to(HALF), [1], dtype=torch.float32)],
    "prod.default": [call(_A), call(_I)],
    "prod.dim_int": [call(_A, 1), call(_I, 0, True)],
    "amax.default": [call(_T, [1]), call(_T, [0, 2], True), call(_M, [0])],
    "amin.default": [call(_T, [1]), call(_T), call(_I, [1])],
    "max.default": [call(_T)],
    "min.default": [call(_T)],
    "any.default": [call(_M), call(_A)],
    "any.dim": [call(_M, 1), call(_I, 0, True)],
    "any.dims": [call(_M, [0, 1])],
    "all.default": [call(_M)],
    "all.dim": [call(_M, 1)],
    "all.dims": [call(_M, [0])],
    "var.correction": [call(_T, [1]), call(_T, [0, 2], correction=0, keepdim=True), call(_T)],
    "var.dim": [call(_T, [1]), call(_T, [1], False)],
    "var_mean.correction": [call(_T, [1]), call(_T, [0, 2], correction=0, keepdim=True)],
    "var_mean.dim": [call(_T, [1], False)],
    "argmax.default": [call(_T), call(_T, 1), call(_I, -1, True)],
    "argmin.default": [call(_T), call(_T, 1), call(_I, -1, True)],
    "max.dim": [call(_T, 1), call(_I, -1, True)],
    "min.dim": [call(_T, 1), call(_I, -1, True)],
    "cumsum.default": [call(_T, 1), call(_I, -1), call(_M, 0)],
    "cumprod.default": [call(_T, 1), call(_I, -1)],
    "_softmax.default": [call(_T, -1, False), call(_T, 0, False)],
    "_log_softmax.default": [call(_T, -1, False), call(_T, 1, False)],
    "logsumexp.default": [call(_T, [1]), call(_T, [0, 2], True)],
    "topk.default": [call(_T, 2), call(_T, 2, 1, False)],
    "sort.default": [call(_T), call(_T, 1, True), call(_I, 0)],
    "sort.stable": [
        call(_T, stable=True),
        call(ints(9), stable=True),
        call(ints(9), stable=True, descending=True),
    ],
    "linalg_vector_norm.default": [call(_T), call(_T, 1, [1], True), call(_T, float("inf"), [0, 2])],
}

_ROWS, _PLACES = ints(5, low=0, high=4), ints(2, 3, low=-4, high=4)
INDEXING: dict[str, list[Any]] = {
    "embedding.default": [call(floats(4, 3), _ROWS), call(floats(4, 3), ints(2, 2, low=0, high=4), 1)],
    "index_select.default": [call(_T, 2, _ROWS), call(floats(4), 0, torch.tensor(2))],
    "gather.default": [call(_T, 2, ints(2, 3, 5, low=0, high=4)), call(_T, 1, ints(2, 2, 3, low=0, high=3))],
    "scatter.src": [call(_T, 2, torch.tensor([[[0, 3], [1, 2]]]), floats(2, 3, 4, seed=1))],
    "scatter.value": [call(_T, 2, ints(2, 3, 1, low=0, high=4), 5.0)],
    "scatter_add.default": [
        call(_T, 1, ints(2, 5, 4, low=0, high=3), floats(2, 5, 4)),
        call(_I, 1, _I.abs() % 3, _I),
    ],
    "scatter_reduce.two": [
        call(_T, 1, ints(2, 5, 4, low=0, high=3), floats(2, 5, 4), reduce)
        for reduce in ("sum", "amax", "amin")
    ],
    "index.Tensor": [
        call(_T, [ints(5, low=-2, high=2)]),
        call(_T, [None, ints(2, 2, low=0, high=3)]),
        call(_T, [ints(5, low=0, high=2), ints(5, low=0, high=3)]),
        call(_T, [ints(2, 1, low=0, high=2), None, ints(3, low=0, high=4)]),
        call(_T, [None, ints(2, 1, low=0, high=3), ints(3, low=0, high=4)]),
    ],
    "_unsafe_index.Tensor": [call(_T, [None, None, _ROWS])],
    "index_put.default": [
        call(_T, [torch.tensor([1, 0])], floats(3, 4)),
        call(_T, [None, torch.tensor([2, 0])], torch.tensor(1.0)),
        call(_T, [ints(5, low=0, high=2), ints(5, low=0, high=3)], floats(5, 4), True),
        call(_A, [_M], torch.tensor(9.0)),
    ],
    "masked_scatter.default": [call(_T, bools(2, 3, 4), floats(30)), call(_T, bools(4), floats(5, 6))],
    "_unsafe_index_put.default": [call(_T, [None, None, _ROWS], floats(2, 3, 5), True)],
}

_WORDS, _OFFSETS, _WEIGHTS = torch.tensor([0, 3, 2, 1, 1, 3]), torch.tensor([0, 2, 2, 5]), floats(4, 3)
_ENDS = torch.tensor([0, 2, 2, 6])


def _bag(mode: int, grad: Any, padding: int = -1, each: Any = None) -> Any:
    """A backward pass, with what the forward pass leaves for it."""
    made = torch.ops.aten._embedding_bag(
        _WEIGHTS, _WORDS, _OFFSETS, False, mode, False, each, padding_idx=padding
    )
    return call(grad, _WORDS, _OFFSETS, *made[1:], 4, False, mode, False, each, padding)


BAGS: dict[str, list[Any]] = {
    "_embedding_bag.default": [
        *(call(_WEIGHTS, _WORDS, _OFFSETS, False, mode) for mode in (0, 1, 2)),
        *(call(_WEIGHTS, _WORDS, _OFFSETS, False, mode, padding_idx=3) for mode in (0, 1, 2)),
        *(call(_WEIGHTS, _WORDS, _ENDS, False, mode, False, None, True) for mode in (0, 1, 2)),
        call(_WEIGHTS, _WORDS, _OFFSETS, False, 0, False, floats(6)),
    ],
    "_embedding_bag_forward_only.default": [call(_WEIGHTS, _WORDS, _OFFSETS, False, 1)],
    "_embedding_bag_backward.default": [
        *(_bag(mode, floats(4, 3)) for mode in (0, 1, 2)),
        *(_bag(mode, floats(4, 3), 3) for mode in (0, 1, 2)),
        _bag(0, floats(4, 3), each=floats(6)),
    ],
    "_embedding_bag_per_sample_weights_backward.default": [
        call(floats(4, 3), _WEIGHTS, _WORDS, _OFFSETS, torch.tensor([0, 0, 2, 2, 2, 3]), 0, 2)
    ],
    "_pdist_forward.default": [call(floats(5, 3), p) for p in (2.0, 1.0, float("inf"))],
    "_pdist_backward.default": [
        call(floats(10), floats(5, 3), p, torch.ops.aten._pdist_forward(floats(5, 3), p)) for p in (2.0, 1.0)
    ],
}

PRODUCTS: dict[str, list[Any]] = {
    "mm.default": [call(_A, floats(3, 4))],
    "_scaled_mm.default": [
        call(*_NARROW, torch.tensor(2.0), torch.tensor(0.5), out_dtype=torch.bfloat16),
        call(*_NARROW, floats(16, 1), floats(1, 16), out_dtype=torch.bfloat16),
    ],
    "bmm.default": [call(_T, floats(2, 4, 5))],
    "matmul.default": [call(_T, floats(4, 5))],
    "mv.default": [call(_A, floats(3))],
    "dot.default": [call(floats(3), floats(3, seed=1))],
    "addmm.default": [
        call(floats(4), _A, floats(3, 4)),
        call(floats(2, 4), _A, floats(3, 4), beta=0.5, alpha=2),
    ],
    "baddbmm.default": [call(floats(2, 3, 5), _T, floats(2, 4, 5), beta=0)],
    "_cdist_forward.default": [call(_T, floats(2, 5, 4), 2.0, None), call(_A, floats(4, 3), 1.0, None)],
    "addmv.default": [call(floats(2), _A, floats(3))],
}

_IMAGE, _KERNEL = floats(2, 4, 7, 6), floats(6, 2, 3, 2)
NETWORKS: dict[str, list[Any]] = {
    "convolution.default": [
        call(_IMAGE, _KERNEL, floats(6), [2, 1], [1, 0], [1, 2], False, [0, 0], 2),
        call(_IMAGE, floats(4, 3, 3, 2), None, [2, 1], [1, 0], [1, 1], True, [1, 0], 1),
        call(floats(2, 4, 9), floats(6, 4, 3), floats(6), [2], [1], [1], False, [0], 1),
    ],
    "convolution_backward.default": [
        call(floats(2, 6, 4, 4), _IMAGE, _KERNEL, [6], [2, 1], [1, 0], [1, 2], False, [0, 0], 2, [True] * 3),
        call(
            floats(2, 6, 5),
            floats(2, 4, 9),
            floats(6, 4, 3),
            [6],
            [2],
            [1],
            [1],
            False,
            [0],
            1,
            [True, True, False],
        ),
        call(
            floats(2, 3, 14, 7),
            _IMAGE,
            floats(4, 3, 3, 2),
            [3],
            [2, 1],
            [1, 0],
            [1, 1],
            True,
            [1, 0],
            1,
            [True] * 3,
        ),
    ],
    "native_layer_norm.default": [
        call(_T, [4], floats(4), floats(4, seed=1), 1e-5),
        call(_T, [3, 4], None, None, 1e-5),
    ],
    "max_pool2d_with_indices.default": [
        call(_IMAGE, [3, 3], [2, 2], [1, 1]),
        call(_IMAGE, [2, 2]),
        call(_IMAGE, [3, 2], [2, 2], [0, 0], [1, 2], True),
    ],
    "max_pool3d_with_indices.default": [call(floats(1, 2, 4, 5, 4), [2, 2, 2])],
    "avg_pool1d.default": [call(floats(2, 3, 8), [3], [2], [1])],
    "avg_pool2d.default": [
        call(_IMAGE, [3, 3], [2, 2], [1, 1]),
        call(_IMAGE, [3, 2], [2, 2], [1, 1], True, False),
        call(_IMAGE, [2, 2], [2, 2], [0, 0], True, True, 3),
    ],
    "avg_pool3d.default": [call(floats(1, 2, 4, 5, 4), [2, 2, 2])],
    "avg_pool2d_backward.default": [
        call(floats(2, 4, 4, 3), _IMAGE, [3, 3], [2, 2], [1, 1], False, True, None),
        call(floats(2, 4, 4, 3), _IMAGE, [3, 3], [2, 2], [1, 1], False, False, None),
    ],
    "avg_pool3d_backward.default": [
        call(floats(1, 2, 2, 2, 2), floats(1, 2, 4, 5, 4), [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, None)
    ],
    "upsample_bilinear2d_backward.default": [
        call(floats(2, 4, 6, 6), [6, 6], [2, 4, 3, 2], False),
        call(floats(2, 4, 6, 6), [6, 6], [2, 4, 3, 2], True),
        call(floats(2, 4, 6, 9), [6, 9], [2, 4, 3, 6], False, 2.0, 1.5),
    ],
    "upsample_nearest2d_backward.default": [
        call(floats(2, 4, 6, 6), [6, 6], [2, 4, 3, 2]),
        call(floats(2, 4, 6, 9), [6, 9], [2, 4, 3, 6], 2.0, 1.5),
    ],
    "_adaptive_avg_pool2d.default": [call(_IMAGE, [3, 4]), call(_IMAGE, [1, 1])],
    "_adaptive_avg_pool3d.default": [call(floats(1, 2, 4, 5, 4), [2, 3, 1])],
    "_adaptive_avg_pool2d_backward.default": [call(floats(2, 4, 3, 4), _IMAGE)],
}


def _pooled(t: Any, kernel: list[int], step: list[int], pad: list[int]) -> Any:
    values, places = getattr(torch.ops.aten, f"max_pool{len(kernel)}d_with_indices")(t, kernel, step, pad)
    return call(floats(*values.shape), t, kernel, step, pad, [1] * len(kernel), False, places)


NETWORKS["max_pool2d_with_indices_backward.default"] = [_pooled(_IMAGE, [3, 3], [2, 2], [1, 1])]
NETWORKS["max_pool3d_with_indices_backward.default"] = [
    _pooled(floats(1, 2, 4, 5, 4), [2, 2, 2], [2, 2, 2], [0, 0, 0])
]
