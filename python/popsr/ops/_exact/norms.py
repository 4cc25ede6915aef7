"""Normalisation of groups of channels, which are dimension 1, and its gradients."""

from __future__ import annotations

from popsr._support.fields import Numbers
from popsr.ops._exact.functions import rsqrt
from popsr.ops._exact.registry import Exact, exact

__all__: list[str] = []


def _rows(op: Exact, t: Numbers) -> tuple[int, int, int, int]:
    """Samples, groups, channels of a group, and elements of a channel."""
    groups = op["num_groups"]
    samples, channels = t.shape[:2]
    return samples, groups, channels // groups, t.size // max(samples * channels, 1)


def _mean(op: Exact, t: Numbers) -> Numbers:
    """Means over the last two axes of four."""
    return (t.sum([2, 3]) / op.number(t.shape[2] * t.shape[3])).reshape((*t.shape[:2], 1, 1))


def _units(op: Exact, t: Numbers) -> tuple[Numbers, Numbers]:
    """Normalised rows [samples, groups, channels, elements], and the inverse of their deviation."""
    rows = t.reshape(_rows(op, t))
    away = rows - _mean(op, rows)
    inverse = rsqrt(_mean(op, away * away) + op.number(op["eps"]))
    return away * inverse, inverse


def _of_channels(op: Exact, t: Numbers, values: Numbers) -> Numbers:
    _, groups, channels, _ = _rows(op, t)
    return values.reshape((1, groups, channels, 1))


@exact("group_norm", "layer_norm")
def group_norm(op: Exact, t: Numbers, weight: Numbers, bias: Numbers) -> Numbers:
    units, _ = _units(op, t)
    return (units * _of_channels(op, t, weight) + _of_channels(op, t, bias)).reshape(t.shape)


@exact("group_norm_grad")
def group_norm_grad(op: Exact, t: Numbers, weight: Numbers, dy: Numbers) -> Numbers:
    units, inverse = _units(op, t)
    slope = dy.reshape(units.shape) * _of_channels(op, t, weight)
    away = slope - _mean(op, slope) - units * _mean(op, slope * units)
    return (away * inverse).reshape(t.shape)


@exact("group_norm_parameter_grads")
def group_norm_parameter_grads(op: Exact, t: Numbers, dy: Numbers) -> list[Numbers]:
    units, _ = _units(op, t)
    slope = dy.reshape(units.shape)
    return [each.sum([0, 3]).reshape((t.shape[1],)) for each in (slope * units, slope)]


@exact("batch_norm_inference")
def batch_norm_inference(
    op: Exact, t: Numbers, scale: Numbers, bias: Numbers, mean: Numbers, var: Numbers
) -> Numbers:
    shape = (1, t.shape[1], *[1] * (t.ndim - 2))
    inverse = rsqrt(var + op.number(op["epsilon"]))
    return (t - mean.reshape(shape)) * inverse.reshape(shape) * scale.reshape(shape) + bias.reshape(shape)
