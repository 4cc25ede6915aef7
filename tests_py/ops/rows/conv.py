"""Rows of the table of ops for convolutions, and their oracles: direct sums over every element of the kernel."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tests_py.ops.rows.inputs import Case, Draw, Row, normal, small, together
from tests_py.support.helpers import FLOAT8, FLOATS, Array, np_dtype
from tests_py.support.oracles.float8 import from_float8, to_float8

HINTS = ("available_memory_proportions", "partials_types", "enable_conv_dithering")
_BY_RANK = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1)}


def pads(
    extents: tuple[int, ...], kernel: tuple[int, ...], attrs: dict[str, Any]
) -> tuple[list[int], list[int]]:
    """Padding in front and at the end of each spatial axis of ``conv``."""
    rank = len(extents)
    kind = attrs.get("pad_type", "not_set")
    if kind == "not_set":
        padding = list(attrs.get("padding", (0,) * 2 * rank))
        return padding[:rank], padding[rank:]
    begin, end = [0] * rank, [0] * rank
    for d, (n, k) in enumerate(zip(extents, kernel, strict=True)):
        stride, dilation = (attrs.get(name, (1,) * rank)[d] for name in ("stride", "dilation"))
        total = max(0, (-(-n // stride) - 1) * stride + (k - 1) * dilation + 1 - n)
        if kind != "valid":
            begin[d] = total // 2 if kind == "same_upper" else total - total // 2
            end[d] = total - begin[d]
    return begin, end


def conv(t: Array, weight: Array, **attrs: Any) -> Array:
    """By definition: for each element of the kernel, the positions that it meets."""
    extents, kernel = t.shape[2:], weight.shape[2:]
    rank, groups = len(extents), attrs.get("groups", 1)
    stride, dilation = (tuple(attrs.get(name, (1,) * rank)) for name in ("stride", "dilation"))
    begin, end = pads(extents, kernel, attrs)
    padded = np.pad(t, [(0, 0), (0, 0), *zip(begin, end, strict=True)])
    out = [
        (p - (k - 1) * d - 1) // s + 1
        for p, k, s, d in zip(padded.shape[2:], kernel, stride, dilation, strict=True)
    ]
    result = np.zeros((t.shape[0], weight.shape[0], *out), t.dtype)
    for x, w, y in _grouped(padded, weight, result, groups):
        for at in itertools.product(*map(range, kernel)):
            window = tuple(
                slice(a * d, a * d + (n - 1) * s + 1, s)
                for a, d, s, n in zip(at, dilation, stride, out, strict=True)
            )
            y += np.einsum("nc...,oc->no...", x[(..., *window)], w[(..., *at)])
    return result


def _grouped(t: Array, weight: Array, result: Array, groups: int) -> Any:
    """Views of each group; the weight is cut along its first axis."""
    return zip(np.split(t, groups, 1), np.split(weight, groups, 0), np.split(result, groups, 1), strict=True)


def conv_transpose(t: Array, weight: Array, **attrs: Any) -> Array:
    """By definition: every position of t is added to those that it meets, then padding is cut off."""
    extents, kernel = t.shape[2:], weight.shape[2:]
    rank, groups = len(extents), attrs.get("groups", 1)
    stride, dilation = (tuple(attrs.get(name, (1,) * rank)) for name in ("stride", "dilation"))
    extra = tuple(attrs.get("output_padding", ())) or (0,) * rank
    full = [
        s * (n - 1) + e + (k - 1) * d + 1
        for s, n, e, k, d in zip(stride, extents, extra, kernel, dilation, strict=True)
    ]
    begin, out = _cropped(extents, full, stride, attrs)
    room = [max(f, b + o) for f, b, o in zip(full, begin, out, strict=True)]
    result = np.zeros((t.shape[0], weight.shape[1] * groups, *room), t.dtype)
    for x, w, y in _grouped(t, weight, result, groups):
        for at in itertools.product(*map(range, kernel)):
            window = tuple(
                slice(a * d, a * d + (n - 1) * s + 1, s)
                for a, d, s, n in zip(at, dilation, stride, extents, strict=True)
            )
            y[(..., *window)] += np.einsum("nc...,co->no...", x, w[(..., *at)])
    kept: tuple[Any, ...] = (..., *(slice(b, b + o) for b, o in zip(begin, out, strict=True)))
    return result[kept]


def _cropped(
    extents: tuple[int, ...], full: list[int], stride: tuple[int, ...], attrs: dict[str, Any]
) -> tuple[list[int], list[int]]:
    """Elements cut off in front, and the extents of the result."""
    rank, kind = len(extents), attrs.get("pad_type", "not_set")
    out = list(attrs.get("output_shape", ()))
    if not out and kind in ("not_set", "valid"):
        padding = list(attrs.get("padding", (0,) * 2 * rank)) if kind == "not_set" else [0] * 2 * rank
        begin, end = padding[:rank], padding[rank:]
        return begin, [f - b - e for f, b, e in zip(full, begin, end, strict=True)]
    out = out or [n * s for n, s in zip(extents, stride, strict=True)]
    total = [max(0, f - o) for f, o in zip(full, out, strict=True)]
    return [x // 2 if kind == "same_upper" else x - x // 2 for x in total], out


def _bound(oracle: Any) -> Any:
    """A chain of n steps is off by at most n unit roundoffs of the sum of magnitudes."""

    def bound(t: Array, weight: Array, u: Any, **attrs: Any) -> Array:
        # An output meets at most all input channels and elements of the kernel.
        steps = max(1, t.shape[1]) * int(np.prod(weight.shape[2:]))
        return steps * u * oracle(np.abs(t), np.abs(weight), **attrs)

    return bound


def _infinite(t: tuple[int, ...], weight: tuple[int, ...]) -> Draw:
    def draw(rng: np.random.Generator, name: str) -> list[Array]:
        arrays = [rng.integers(1, 4, shape).astype(np_dtype(name)) for shape in (t, weight)]
        arrays[0].flat[7], arrays[0].flat[-1], arrays[1].flat[0] = np.inf, np.nan, -0.0
        return arrays

    return draw


Shapes = tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]

CONVS: tuple[Shapes, ...] = (
    ("", (2, 3, 6, 5), (4, 3, 3, 2), {}),
    ("padded", (2, 3, 6, 5), (4, 3, 3, 3), {"padding": (1, 2, 0, 1)}),
    ("stride", (1, 2, 9, 8), (3, 2, 3, 3), {"stride": (2, 3), "padding": (1, 1, 1, 1)}),
    ("dilation", (1, 2, 9, 8), (3, 2, 3, 2), {"dilation": (2, 3), "padding": (2, 0, 1, 3)}),
    (
        "stride-dilation",
        (2, 2, 11, 9),
        (3, 2, 3, 3),
        {"stride": (2, 4), "dilation": (3, 2), "padding": (2, 1, 2, 1)},
    ),
    ("groups", (2, 6, 5, 5), (4, 3, 2, 3), {"groups": 2, "padding": (0, 1, 1, 0)}),
    ("depthwise", (2, 4, 5, 6), (8, 1, 3, 3), {"groups": 4, "padding": (1, 1, 1, 1)}),
    ("one", (2, 5, 4, 3), (6, 5, 1, 1), {}),
    ("one-stride", (2, 5, 5, 7), (6, 5, 1, 1), {"stride": (2, 3)}),
    ("skips", (1, 2, 9, 9), (2, 2, 2, 2), {"stride": (4, 4)}),
    ("1d", (2, 3, 11), (4, 3, 4), {"stride": (2,), "padding": (3, 1), "dilation": (2,)}),
    ("1d-defaults", (2, 3, 11), (4, 3, 4), {}),
    ("3d", (1, 2, 5, 4, 6), (3, 2, 2, 3, 2), {"stride": (2, 1, 3), "padding": (1, 0, 2, 0, 1, 1)}),
    ("3d-defaults", (1, 2, 3, 4, 5), (3, 2, 2, 1, 2), {}),
    ("3d-flat", (1, 2, 3, 5, 4), (3, 2, 3, 2, 2), {"padding": (0, 1, 0, 0, 1, 1)}),
    ("same-upper", (1, 2, 6, 7), (3, 2, 4, 3), {"pad_type": "same_upper", "stride": (1, 2)}),
    ("same-lower", (1, 2, 6, 7), (3, 2, 4, 2), {"pad_type": "same_lower", "dilation": (1, 2)}),
    ("same-skips", (1, 2, 6, 7), (3, 2, 1, 2), {"pad_type": "same_upper", "stride": (4, 3)}),
    ("valid", (1, 2, 6, 7), (3, 2, 4, 3), {"pad_type": "valid", "padding": (9, 9, 9, 9)}),
    ("far-padding", (1, 2, 2, 2), (3, 2, 2, 2), {"padding": (4, 5, 3, 6)}),
    ("all", (2, 3, 4, 5), (6, 3, 4, 5), {}),
)
LARGE: tuple[Shapes, ...] = (
    ("wide", (1, 3, 5, 700), (7, 3, 3, 3), {"padding": (1, 1, 1, 1)}),
    ("tiles", (2, 20, 33, 30), (26, 20, 3, 3), {"padding": (1, 1, 1, 1)}),
    ("tiles-stride", (2, 20, 33, 30), (26, 20, 3, 3), {"padding": (1, 1, 1, 1), "stride": (2, 2)}),
    ("long-chain", (1, 530, 4, 3), (5, 530, 3, 3), {"padding": (1, 1, 1, 1)}),
    ("long-1d", (1, 2, 5000), (3, 2, 7), {"padding": (3, 3)}),
    ("deep", (1, 3, 40, 6, 5), (14, 3, 3, 3, 3), {"padding": (1, 1, 1, 1, 1, 1)}),
)
NOTHING: tuple[Shapes, ...] = (
    ("no-samples", (0, 3, 6, 5), (4, 3, 3, 2), {}),
    ("no-channels", (2, 0, 6, 5), (4, 0, 3, 2), {}),
    ("no-outputs", (2, 3, 6, 5), (0, 3, 3, 2), {}),
)
TRANSPOSED: tuple[Shapes, ...] = (
    ("", (2, 3, 4, 5), (3, 4, 3, 2), {}),
    ("cropped", (2, 3, 4, 5), (3, 4, 3, 3), {"padding": (1, 2, 0, 1)}),
    ("stride", (1, 2, 4, 3), (2, 3, 3, 3), {"stride": (2, 3), "padding": (1, 0, 0, 1)}),
    ("dilation", (1, 2, 5, 4), (2, 3, 3, 2), {"dilation": (2, 3), "padding": (2, 1, 1, 0)}),
    (
        "stride-dilation",
        (2, 2, 5, 4),
        (2, 3, 3, 3),
        {"stride": (2, 4), "dilation": (3, 2), "padding": (2, 1, 2, 1)},
    ),
    ("groups", (2, 6, 3, 4), (6, 2, 2, 3), {"groups": 2, "padding": (0, 1, 1, 0)}),
    ("depthwise", (2, 4, 5, 6), (4, 2, 3, 3), {"groups": 4, "stride": (2, 2)}),
    ("one", (2, 5, 4, 3), (5, 6, 1, 1), {}),
    ("gaps", (1, 2, 3, 3), (2, 2, 2, 2), {"stride": (4, 3)}),
    ("1d", (2, 3, 7), (3, 4, 4), {"stride": (2,), "padding": (3, 1), "dilation": (2,)}),
    ("1d-defaults", (2, 3, 7), (3, 4, 4), {}),
    ("3d", (1, 2, 3, 2, 4), (2, 3, 2, 3, 2), {"stride": (2, 1, 3), "padding": (1, 0, 2, 0, 1, 1)}),
    ("3d-defaults", (1, 2, 3, 2, 4), (2, 3, 2, 1, 2), {}),
    ("3d-flat", (1, 2, 1, 3, 4), (2, 3, 2, 2, 3), {"stride": (2, 2, 2)}),
    ("output-padding", (1, 2, 4, 3), (2, 3, 3, 3), {"stride": (2, 3), "output_padding": (1, 2)}),
    ("output-shape", (1, 2, 4, 3), (2, 3, 3, 3), {"stride": (2, 3), "output_shape": (8, 7)}),
    (
        "output-shape-upper",
        (1, 2, 4, 3),
        (2, 3, 3, 3),
        {"stride": (2, 3), "output_shape": (8, 6), "pad_type": "same_upper"},
    ),
    ("same-upper", (1, 2, 4, 3), (2, 3, 3, 4), {"stride": (2, 1), "pad_type": "same_upper"}),
    ("same-lower", (1, 2, 4, 3), (2, 3, 3, 4), {"stride": (2, 1), "pad_type": "same_lower"}),
    ("same-gaps", (1, 2, 4, 3), (2, 3, 1, 2), {"stride": (3, 4), "pad_type": "same_upper"}),
    ("valid", (1, 2, 4, 3), (2, 3, 3, 4), {"stride": (2, 1), "pad_type": "valid", "padding": (1, 1, 1, 1)}),
    ("all-cut", (1, 2, 2, 3), (2, 3, 2, 2), {"padding": (1, 0, 2, 1)}),
)
LARGE_TRANSPOSED: tuple[Shapes, ...] = (
    ("tiles", (2, 20, 33, 30), (20, 26, 3, 3), {"padding": (1, 1, 1, 1)}),
    ("tiles-stride", (2, 20, 17, 15), (20, 26, 3, 3), {"padding": (1, 1, 1, 1), "stride": (2, 2)}),
    ("long-chain", (1, 530, 3, 4), (530, 5, 3, 3), {"padding": (1, 1, 1, 1)}),
    ("deep", (1, 3, 40, 6, 5), (3, 14, 3, 3, 3), {"padding": (1, 1, 1, 1, 1, 1), "stride": (1, 2, 2)}),
)


def _row(
    oracle: Any, small_ones: tuple[Shapes, ...], large: tuple[Shapes, ...], nothing: Any, grad: Any
) -> Row:
    bound = _bound(oracle)
    smooth = grad == "finite"
    options = {"output_padding": (), "output_shape": ()} if oracle is conv_transpose else {}
    cases = [
        Case(normal(t, w), oracle, attrs, label, FLOATS, bound=bound, smooth=smooth and label != "all-cut")
        for label, t, w, attrs in small_ones
    ]
    cases += [
        Case(normal(t, w), oracle, attrs, label, ("float32", "bfloat16"), bound=bound)
        for label, t, w, attrs in large
    ]
    cases += [Case(normal(t, w), oracle, attrs, label) for label, t, w, attrs in nothing]
    t, w = small_ones[1][1:3]
    cases.append(Case(small(t, w), oracle, small_ones[1][3], "exact"))
    cases.append(Case(_infinite(t, w), oracle, {}, "special"))
    hints = {"available_memory_proportions": [0.5], "partials_types": ["half"], "enable_conv_dithering": [1]}
    cases.append(Case(small(t, w), lambda a, b, **_: oracle(a, b), hints, "hints"))
    return Row(tuple(cases), grad, python_only=HINTS, defaults={**_BY_RANK, **options})


def _scaled(oracle: Any, shapes: tuple[Shapes, ...], **defaults: Any) -> Row:
    """Float8 operands whose sums are exact in float32, and scales that keep the result or leave float16."""

    def quarters(*extents: tuple[int, ...]) -> Draw:
        return lambda rng, name: [to_float8(rng.integers(-6, 7, s) / 4, name) for s in extents]

    def exact(t: Array, weight: Array, log2_scale: Array, **attrs: Any) -> Array:
        result = oracle(from_float8(t).astype(np.float64), from_float8(weight).astype(np.float64), **attrs)
        return np.ldexp(result, int(log2_scale))

    cases = [
        Case(
            together(
                quarters(t),
                (quarters(w), FLOAT8[i % 2]),
                (lambda rng, name, s=scale: [np.array(s, np.int32)], "int32"),  # type: ignore[misc]
            ),
            exact,
            attrs,
            f"{label}-{scale}" if label else str(scale),
            FLOAT8,
        )
        for i, (label, t, w, attrs) in enumerate(shapes)
        for scale in (0, -19, 14)
    ]
    return Row(tuple(cases), "throws", python_only=HINTS[:1] + HINTS[2:], defaults={**_BY_RANK, **defaults})


def conv_rows() -> dict[str, Row]:
    """conv and conv_transpose."""
    empty_transposed = [(label, t, (w[1], w[0], *w[2:]), attrs) for label, t, w, attrs in NOTHING]
    return {
        "conv": _row(conv, CONVS, LARGE, NOTHING, "finite"),
        "conv_transpose": _row(conv_transpose, TRANSPOSED, LARGE_TRANSPOSED, empty_transposed, "finite"),
        "conv_pow2scaled": _scaled(conv, CONVS[:8]),
        "conv_transpose_pow2scaled": _scaled(
            conv_transpose, TRANSPOSED[:8], output_padding=(), output_shape=()
        ),
    }
