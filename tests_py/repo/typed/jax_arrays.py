"""Types of jax's arrays."""

from typing import assert_type

import jax
import jax.numpy as jnp

from popsr import sr

key = sr.Key(1)
a = jnp.zeros(3, jnp.bfloat16)

assert_type(sr.add(a, 1.0, key=key), jax.Array)
assert_type(sr.cast(a, jnp.float16, key=key), jax.Array)
assert_type(sr.sum(a, key=key), jax.Array)
sr.add_(a, a, key=key)  # E: call-overload: No overload variant
