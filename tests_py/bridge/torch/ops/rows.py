"""Calls of each ATen overload that has a rule: small operands with the special cases of the op."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")


def floats(*shape: int, seed: int = 0, kind: Any = None) -> Any:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))
    return made if kind is None else made.to(kind)


def ints(*shape: int, low: int = -5, high: int = 6, kind: Any = None) -> Any:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(low, high, shape, generator=generator).to(torch.int64 if kind is None else kind)


def bools(*shape: int) -> Any:
    return ints(*shape) > 0


def positive(*shape: int) -> Any:
    return floats(*shape).abs() + 0.1


SPECIAL = torch.tensor([0.0, -0.0, 1.5, -2.5, 0.5, 2.5, float("inf"), -float("inf"), float("nan")])
HALF = torch.bfloat16
_A, _B, _I, _M = floats(2, 3), floats(2, 3, seed=1), ints(2, 3), bools(2, 3)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
_EDGES = [448.0, 464.0, 464.1, 480.0, 240.0, 248.1, 57344.0, 61439.0, 61440.0, 1e9, 2.0**-10, 2.0**-17, 3e-8]
_WIDE = torch.tensor([*_EDGES, *(-each for each in _EDGES)])
_C = dict[str, Any]


def call(*args: Any, **options: Any) -> tuple[tuple[Any, ...], _C]:
    return args, options


_PAIRS = [
    call(_A, _B),
    call(_A, floats(3)),
    call(_A, torch.tensor(2.0)),
    call(_I, _A),
    call(_A.to(HALF), _B.to(HALF)),
]
_COMPARED = [call(_I, ints(3)), call(SPECIAL, SPECIAL.flip(0)), call(_M, bools(3)), call(_I, _A.round())]
_DIVISORS = ints(2, 3).where(ints(2, 3) != 0, torch.tensor(3))

ARITHMETIC: dict[str, list[Any]] = {
    "add.Tensor": [*_PAIRS, call(_A, _B, alpha=2), call(_I, 3), call(_M, bools(3)), call(_I, 1.5)],
    "add.Scalar": [call(_A, 2), call(_I, 2, 3)],
    "sub.Tensor": [*_PAIRS, call(_A, _B, alpha=0.5)],
    "sub.Scalar": [call(_A, 2)],
    "mul.Tensor": [*_PAIRS, call(_M, bools(3)), call(_A.to(HALF), 0.1)],
    "mul.Scalar": [call(_A, 2)],
    "div.Tensor": [*_PAIRS, call(_I, _DIVISORS), call(SPECIAL, torch.tensor(0.0))],
    "div.Scalar": [call(_A, 3), call(_I, 3)],
    "div.Tensor_mode": [
        call(_I, _DIVISORS, rounding_mode="floor"),
        call(_I, _DIVISORS, rounding_mode="trunc"),
        call(_A, _B, rounding_mode="floor"),
        call(_A, _B, rounding_mode="trunc"),
        call(_A, _B, rounding_mode=None),
    ],
    "div.Scalar_mode": [call(_I, 2, rounding_mode="floor"), call(_I, 2, rounding_mode="trunc")],
    "fmod.Tensor": [call(_A, _B), call(_I, _DIVISORS)],
    "fmod.Scalar": [call(_A, 0.3), call(_I, 3)],
    "remainder.Tensor": [call(_A, _B), call(_I, _DIVISORS)],
    "remainder.Scalar": [call(_A, 0.3), call(_I, 3)],
    "remainder.Scalar_Tensor": [call(7, _DIVISORS)],
    "pow.Tensor_Tensor": [call(positive(2, 3), _B)],
    "pow.Tensor_Scalar": [
        *(call(positive(4), e) for e in (0.5, 1, 2, 3, -0.5, -1, -2, 1.7)),
        call(_I, 3),
        call(_I, 0),
    ],
    "pow.Scalar": [call(2.5, _A), call(2, _A)],
    "lerp.Scalar": [call(_A, _B, 0.3), call(_A, _B, 0.8)],
    "lerp.Tensor": [call(_A, _B, torch.tensor(0.3)), call(_A, _B, floats(2, 3, seed=2).abs())],
    "maximum.default": [call(SPECIAL, SPECIAL.flip(0)), call(_I, ints(3)), call(_M, bools(3))],
    "minimum.default": [call(SPECIAL, SPECIAL.flip(0)), call(_I, ints(3)), call(_M, bools(3))],
    "clamp.default": [call(_A, -0.5, 0.5), call(_A, None, 0.1), call(_I, 1), call(SPECIAL, -1, 1)],
    "clamp.Tensor": [call(_A, _B), call(_A, None, _B), call(_A, torch.tensor(-0.5), torch.tensor(0.5))],
    "clamp_min.default": [call(_A, 0.2)],
    "clamp_min.Tensor": [call(_A, _B)],
    "clamp_max.default": [call(_A, 0.2)],
    "clamp_max.Tensor": [call(_A, _B)],
}

COMPARISONS: dict[str, list[Any]] = {
    **{f"{name}.Tensor": _COMPARED for name in ("eq", "ne", "gt", "lt", "ge", "le")},
    **{
        f"{name}.Scalar": [call(_I, 1), call(SPECIAL, 1.5), call(_I, 0.5)]
        for name in ("eq", "ne", "gt", "lt", "ge", "le")
    },
    "logical_and.default": [call(_M, bools(3)), call(_A, _I)],
    "logical_or.default": [call(_M, bools(3)), call(_A, _I)],
    "logical_xor.default": [call(_M, bools(3)), call(_A, _I)],
    "logical_not.default": [call(_M), call(_I), call(SPECIAL)],
    "bitwise_and.Tensor": [call(_M, bools(3)), call(_I, ints(3))],
    "bitwise_and.Scalar": [call(_M, True), call(_I, 6)],
    "bitwise_or.Tensor": [call(_M, bools(3)), call(_I, ints(3))],
    "bitwise_or.Scalar": [call(_M, False), call(_I, 6)],
    "bitwise_xor.Tensor": [call(_M, bools(3)), call(_I, ints(3))],
    "bitwise_xor.Scalar": [call(_M, True), call(_I, 6)],
    "bitwise_not.default": [call(_M), call(_I), call(ints(3, low=0, kind=torch.uint8))],
    "bitwise_left_shift.Tensor": [call(_I, ints(3, low=0))],
    "bitwise_left_shift.Tensor_Scalar": [call(_I, 3)],
    "bitwise_right_shift.Tensor": [call(_I * 100, ints(3, low=0))],
    "bitwise_right_shift.Tensor_Scalar": [call(_I * 100, 3)],
    "where.self": [
        call(_M, _A, _B),
        call(bools(3), _A, torch.tensor(0.0)),
        call(_M, _I, _A),
        call(_M, _M, bools(3)),
    ],
    "where.ScalarOther": [call(_M, _A, 2.0)],
    "where.ScalarSelf": [call(_M, 2.0, _A)],
    "where.Scalar": [call(_M, 1.0, 2.0)],
    "isnan.default": [call(SPECIAL), call(_I)],
    "isinf.default": [call(SPECIAL), call(_I)],
    "masked_fill.Scalar": [call(_A, _M, -1.0), call(_A, bools(3), 0)],
    "masked_fill.Tensor": [call(_A, _M, torch.tensor(7.0))],
}

_NEAR = floats(9)
FUNCTIONS: dict[str, list[Any]] = {
    **{f"{n}.default": [call(_NEAR), call(_I)] for n in ("exp", "sin", "cos", "tanh", "sigmoid", "erf")},
    **{
        f"{n}.default": [call(positive(5)), call(_I.abs() + 1)]
        for n in ("log", "log2", "log10", "sqrt", "rsqrt", "reciprocal")
    },
    **{
        f"{n}.default": [call(SPECIAL)]
        for n in ("neg", "floor", "ceil", "abs", "sign", "trunc", "round", "relu")
    },
    **{f"{n}.default": [call(_NEAR), call(_I)] for n in ("tan", "atan", "asinh", "expm1", "erfc", "exp2")},
    **{f"{n}.default": [call(_NEAR)] for n in ("sinh", "cosh")},
    **{f"{n}.default": [call(_NEAR / 4)] for n in ("asin", "acos", "atanh", "erfinv")},
    "acosh.default": [call(positive(5) + 1)],
    "log1p.default": [call(positive(5)), call(_NEAR * 1e-5)],
    "atan2.default": [call(_A, _B)],
    "copysign.Tensor": [call(_A, _B), call(_A, SPECIAL[:3])],
    "copysign.Scalar": [call(_A, -1.0)],
    "silu.default": [call(_NEAR)],
    "gelu.default": [call(_NEAR), call(_NEAR, approximate="tanh")],
    "elu.default": [call(_NEAR), call(_NEAR, 0.5, 1.3, 0.7)],
    "hardtanh.default": [call(_NEAR), call(_NEAR, -0.2, 0.3)],
    "leaky_relu.default": [call(_NEAR), call(_NEAR, 0.2)],
    "_to_copy.default": [
        call(_A),
        call(_A * 3, dtype=torch.int32),
        call(_A, dtype=HALF),
        call(SPECIAL, dtype=torch.bool),
        call(_M, dtype=torch.float32),
        *[call(each, dtype=kind) for each in (_A * 7, SPECIAL, _WIDE, _I) for kind in FLOAT8],
        *[call(_WIDE.to(kind), dtype=to) for kind in FLOAT8 for to in (torch.float32, HALF, torch.bool)],
    ],
    **{
        f"{n}.default": [call(_A)]
        for n in (
            "clone",
            "alias",
            "alias_copy",
            "detach",
            "detach_copy",
            "lift_fresh_copy",
            "lift_fresh",
            "lift",
        )
    },
    "copy.default": [call(_A, floats(3)), call(_A, _I)],
    "fill.Scalar": [call(_A, 2)],
    "fill.Tensor": [call(_A, torch.tensor(2.0))],
}
for _name in ("neg", "abs", "sign"):
    FUNCTIONS[f"{_name}.default"].append(call(_I))

_T = floats(2, 3, 4)
SHAPES: dict[str, list[Any]] = {
    **{f"{n}.default": [call(_T, [4, 6]), call(_T, [-1])] for n in ("view", "view_copy", "_unsafe_view")},
    "reshape.default": [call(_T, [6, 4])],
    "_reshape_copy.default": [call(_T, [6, 4])],
    "unsqueeze.default": [call(_T, 1), call(_T, -1)],
    "unsqueeze_copy.default": [call(_T, 1)],
    "squeeze.default": [call(floats(1, 3, 1))],
    "squeeze.dim": [call(floats(1, 3, 1), 0), call(_A, 0)],
    "squeeze.dims": [call(floats(1, 3, 1), [0, 2])],
    "squeeze_copy.dims": [call(floats(1, 3, 1), [0])],
    "permute.default": [call(_T, [2, 0, 1]), call(_T, [-1, 0, 1])],
    "permute_copy.default": [call(_T, [1, 0, 2])],
    "t.default": [call(_A), call(floats(3))],
    "t_copy.default": [call(_A)],
    "transpose.int": [call(_T, 0, -1), call(_T, 1, 2)],
    "transpose_copy.int": [call(_T, 0, 1)],
    "expand.default": [call(floats(3, 1), [2, 3, 4]), call(floats(3), [2, -1]), call(bools(3, 1), [3, 2])],
    "expand_copy.default": [call(floats(3, 1), [3, 4])],
    "repeat.default": [call(_A, [2, 1]), call(_A, [2, 1, 3])],
    "cat.default": [call([_A, _B]), call([_A, _B], 1), call([_A, torch.empty(0), _I], -1), call([_M, _M])],
    "stack.default": [call([_A, _B]), call([_A, _B], -1)],
    "split_with_sizes.default": [call(_T, [1, 3], 2), call(_A, [1, 1])],
    "split_with_sizes_copy.default": [call(_T, [1, 3], 2)],
    "split.Tensor": [call(_T, 3, 2), call(_A, 1)],
    "split_copy.Tensor": [call(_T, 3, -1)],
    "unbind.int": [call(_T, 1)],
    "unbind_copy.int": [call(_T)],
    "slice.Tensor": [
        call(_T, 1, 1, 3),
        call(_T, 2, 0, 9, 2),
        call(_T, -1, -3, -1),
        call(_T, 0, 2, 2),
        call(_T),
    ],
    "slice_copy.Tensor": [call(_T, 1, 1, 3)],
    "select.int": [call(_T, 1, 2), call(_T, -1, -1), call(floats(3), 0, 1)],
    "select_copy.int": [call(_T, 1, 2)],
    "slice_scatter.default": [call(_T, floats(2, 2, 4), 1, 1, 3), call(_T, floats(2, 3, 2), 2, 0, 4, 2)],
    "select_scatter.default": [call(_T, floats(2, 4), 1, -1)],
    "diagonal_scatter.default": [call(_T, floats(4, 2)), call(_T, floats(2, 3), 1, 1, 2)],
    "as_strided_scatter.default": [call(_T, floats(2, 2), [2, 2], [4, 1], 3)],
    "flip.default": [call(_T, [0, 2]), call(_T, [-1])],
    "diagonal.default": [call(_T), call(_T, 1, 1, 2), call(_T, -1, 2, 0)],
    "diagonal_copy.default": [call(_T)],
    "as_strided.default": [call(_T, [2, 2], [4, 1]), call(_T, [3], [2], 5)],
    "as_strided_copy.default": [call(_T, [2, 2], [4, 1])],
    "constant_pad_nd.default": [
        call(_A, [1, 2]),
        call(_T, [0, 1, 2, 0], -1.0),
        call(_A, [-1, 1]),
        call(_M, [1, 0], 1),
    ],
    "full.default": [call([2, 3], 1.5), call([2], 3, dtype=torch.int32), call([], True)],
    "full_like.default": [call(_A, 2)],
    "new_full.default": [call(_A, [2], 3.0)],
    **{f"{n}.default": [call([2, 3]), call([2], dtype=torch.int32)] for n in ("zeros", "ones")},
    **{f"{n}.default": [call(_A), call(_I)] for n in ("zeros_like", "ones_like")},
    **{f"{n}.default": [call(_A, [2])] for n in ("new_zeros", "new_ones")},
    "scalar_tensor.default": [call(1.5), call(2, dtype=torch.int64)],
    "arange.start_step": [call(1, 9, 2), call(0, 1, 0.25)],
    "arange.start": [call(1, 5)],
    "arange.default": [call(5), call(5, dtype=torch.float32)],
    "eye.m": [call(3, 4)],
    "eye.default": [call(3)],
    **{
        name: [
            call(_A, torch.float32),
            call(_A, torch.int32),
            call(_A, torch.uint8),
            call(_I.int(), torch.float32),
        ]
        + [call(floats(2, 4).bfloat16(), to) for to in (torch.int16, torch.int32, torch.uint8, torch.float32)]
        for name in ("view.dtype", "view_copy.dtype")
    },
}
