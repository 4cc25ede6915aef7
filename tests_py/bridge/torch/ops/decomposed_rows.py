"""Calls of the ops of ATen's core set that have no rule, as torch decomposes them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests_py.bridge.torch.ops.rows import call, floats, ints  # noqa: E402

_T = floats(2, 4, 3)
_IMAGE = floats(2, 4, 4, 6)
_NORM = torch.ops.aten.native_layer_norm(_T, [3], floats(3), floats(3), 1e-5)
_GROUPS = torch.ops.aten.native_group_norm(_IMAGE, floats(4), floats(4), 2, 4, 24, 2, 1e-5)

DECOMPOSED: dict[str, list[Any]] = {
    "_native_batch_norm_legit.default": [
        call(_IMAGE, floats(4), floats(4), floats(4), floats(4).abs(), True, 0.1, 1e-5)
    ],
    "_native_batch_norm_legit.no_stats": [call(_IMAGE, floats(4), None, True, 0.1, 1e-5)],
    "_native_batch_norm_legit_no_training.default": [
        call(_IMAGE, floats(4), floats(4), floats(4), floats(4).abs() + 0.1, 0.1, 1e-5)
    ],
    "adaptive_avg_pool1d.default": [call(_T, [2])],
    "col2im.default": [call(floats(2, 8, 12), [4, 5], [2, 2], [1, 1], [0, 0], [1, 1])],
    "embedding_dense_backward.default": [call(floats(5, 3), ints(5, low=0, high=4), 4, 1, False)],
    "grid_sampler_2d.default": [call(_IMAGE, floats(2, 3, 3, 2).tanh(), 0, 0, False)],
    "native_group_norm.default": [call(_IMAGE, floats(4), floats(4), 2, 4, 24, 2, 1e-5)],
    "native_group_norm_backward.default": [
        call(floats(2, 4, 4, 6), _IMAGE, *_GROUPS[1:], floats(4), 2, 4, 24, 2, [True, True, True])
    ],
    "native_layer_norm_backward.default": [
        call(floats(2, 4, 3), _T, [3], *_NORM[1:], floats(3), floats(3), [True, True, True])
    ],
    "reflection_pad1d.default": [call(_T, [1, 2])],
    "reflection_pad2d.default": [call(_IMAGE, [1, 2, 0, 3])],
    "reflection_pad3d.default": [call(floats(1, 2, 3, 4, 3), [1, 1, 2, 0, 1, 1])],
    "replication_pad2d.default": [call(_IMAGE, [1, 2, 0, 3])],
    "replication_pad3d.default": [call(floats(1, 2, 3, 4, 3), [1, 1, 2, 0, 1, 1])],
    "upsample_bilinear2d.vec": [call(_IMAGE, [6, 9], False, None), call(_IMAGE, None, True, [2.0, 2.0])],
    "upsample_nearest2d.vec": [call(_IMAGE, [6, 9], None), call(_IMAGE, None, [2.0, 1.5])],
}
