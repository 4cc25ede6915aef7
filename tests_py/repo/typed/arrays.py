"""Types of `popsr.sr` and of stochastic adders: what goes in comes out."""

from fractions import Fraction
from typing import Any, assert_type

import numpy as np

import popsr
from popsr import sr

F32 = np.ndarray[tuple[Any, ...], np.dtype[np.float32]]
U16 = np.ndarray[tuple[Any, ...], np.dtype[np.uint16]]

key = sr.Key(1).fold_in("w").at(3)
f32, u16 = np.zeros((2, 3), np.float32), np.zeros(3, np.uint16)
f64 = np.zeros(3)

# Results

assert_type(sr.add(f32, f64, key=key), F32)
assert_type(sr.sub(f32, 1.0, key=key, mode="sr_bits=8"), F32)
assert_type(sr.mul(u16, u16, key=key, dtype="bfloat16"), U16)
assert_type(sr.axpy(0.5, f32, f64, key=key, num_threads=2), F32)
assert_type(sr.lerp(f32, f64, 0.5, key=key), F32)
assert_type(sr.fma(f32, f64, 2, key=key, overflow="saturate"), F32)
assert_type(sr.addcmul(f32, f64, f64, 0.5, key=key), F32)
assert_type(sr.addcdiv(f32, f64, f64, key=key, offset=5), F32)
assert_type(sr.add(1.0, 2.0, key=key), np.float64)
assert_type(sr.add(np.float32(1), 2.0, key=key), np.float32)
assert_type(sr.add(f64, f64, key=key, out=f32), np.ndarray[tuple[int, int], np.dtype[np.float32]])
assert_type(sr.cast(f64, np.float32, key=key), F32)
assert_type(sr.cast(f64, np.dtype(np.float32), key=key), F32)
assert_type(sr.cast(f64, popsr.bfloat16, key=key), np.ndarray[tuple[Any, ...], Any])
assert_type(sr.sum(f32, key=key, axis=(0, 1)), F32)
assert_type(sr.uniform_bits(key, 3), np.ndarray[tuple[int], np.dtype[np.uint64]])
assert_type(sr.cast_blocks(f32, "mxfp4", key=key, axis=0, scale="floor", mode="rn"), sr.Blocks)
assert_type(
    sr.cast_blocks(f32, "nvfp4", key=key, tensor_scale=0.5).dequantise("float64"),
    np.ndarray[tuple[Any, ...], Any],
)
lo, hi, chance = sr.bracket(f32, f64)
assert_type(lo, F32)
assert_type(hi, F32)
below: np.float64 = sr.bracket(1.0, 2.0)[0]
exact: Fraction = sr.bracket(1.0, 2.0)[2]

w = np.zeros((2, 3), np.float32)
W = np.ndarray[tuple[int, int], np.dtype[np.float32]]
assert_type(sr.add_(w, f64, key=key, alpha=-1.0), W)
assert_type(sr.sub_(w, f64, key=key), W)
assert_type(sr.mul_(w, 2, key=key), W)
assert_type(sr.axpy_(0.5, f64, w, key=key), W)
assert_type(sr.lerp_(w, f64, f64, key=key), W)
assert_type(sr.fma_(w, f64, f64, key=key), W)
assert_type(sr.addcmul_(w, f64, f64, key=key), W)
assert_type(sr.addcdiv_(w, f64, f64, 2, key=key), W)
assert_type(sr.adamw_(w, f32, w, w, key=key, step=1, lr=0.1, betas=(0.9, 0.99)), W)

adder = popsr.StochasticAdder("bfloat16", seed=1, rng="counter")
assert_type(adder.add(u16, u16), U16)
assert_type(adder.add_biased(u16, u16, out=u16), np.ndarray[tuple[int], np.dtype[np.uint16]])

# Errors

sr.add(f32, f32)  # E: call-overload: No overload variant
sr.add(f32, f32, key=1)  # E: call-overload: No overload variant
sr.add(f32, f32, key=key, moed="rn")  # E: call-overload: Unexpected keyword argument "moed"
sr.add(f32, f32, key=key, mode="nearest")  # E: call-overload: No overload variant
sr.add(f32, f32, key=key, mode="sr_bits=33")  # E: call-overload: No overload variant
sr.add(f32, f32, key=key, overflow="wrap")  # E: call-overload: No overload variant
sr.add([1.0], f32, key=key)  # E: call-overload: No overload variant
sr.add(f32, "1.0", key=key)  # E: call-overload: No overload variant
sr.add(f32, f32, key=key, dtype=16)  # E: call-overload: No overload variant
sr.add_(1.0, f32, key=key)  # E: call-overload: No overload variant
sr.add_(f32, f32, key=key, out=f32)  # E: call-overload: Unexpected keyword argument "out"
sr.cast(f32, key=key)  # E: call-overload: No overload variant
sr.sum(f32, key=key, axes=0)  # E: call-overload: Unexpected keyword argument "axes"
sr.adamw_(w, f32, w, w, key=key)  # E: call-overload: No overload variant
sr.adamw_(w, f32, w, w, key=key, step=1, learning_rate=0.1)  # E: call-overload: Unexpected keyword argument
sr.bracket(f32, None)  # E: call-overload: No overload variant
sr.Key("seed")  # E: arg-type: expected "SupportsIndex"
popsr.StochasticAdder("bfloat16", rng="counted")  # E: arg-type: expected "Literal['value', 'counter']"
adder.add(u16, [1])  # E: call-overload: No overload variant
sr.addd(f32, f32, key=key)  # E: attr-defined: maybe "add"
total: float = sr.add(f32, f32, key=key)  # E: assignment: expression has type "ndarray
