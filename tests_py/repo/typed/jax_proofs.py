"""Types of proofs of steps of jax."""

from typing import assert_type

import jax.numpy as jnp
from jax import Array

import popsr
from popsr.bridge import Proof
from popsr.testing import assert_in_step, assert_same_training


def step(w: Array, x: Array) -> Array:
    return w * x


w = jnp.zeros(3)
specs = (None, None)
proof = popsr.prove(step, w, w, mesh={"data": 2}, in_specs=specs, out_specs=None, check_vma=False)
assert_type(proof, Proof)
assert_type(proof.ok, bool)
popsr.prove(step, w, w, replicas=2, axis_name="data", in_axes=(None, 0), stochastic_rounding=True)
assert_type(assert_in_step(step, w, w, mesh={"data": 2}, in_specs=specs, out_specs=None, allow=["L6"]), Proof)
popsr.prove(step, w, w, mesh={"data": 2}, in_spec=specs)  # E: call-overload: No overload variant
popsr.prove(step, w, w, mesh={"data": 2}, check_vma="yes")  # E: call-overload: No overload variant
popsr.prove(step, w, w, axis_name="data", groups={})  # E: call-overload: No overload variant
assert_in_step(step, w, w, mesh={"data": 2}, allow=6)  # E: call-overload: No overload variant
popsr.prove(popsr.Ir(), replicas=2)  # E: call-overload: No overload variant
assert_type(popsr.prove(popsr.Ir(), stochastic_rounding=True), Proof)
popsr.prove(step, w, w, replicas=2, axis_name="data", in_axes=(None, 0), like="one device", exact=False)
assert_type(
    assert_same_training(step, w, w, mesh={"data": 2}, in_specs=specs, out_specs=None, like=step), Proof
)
popsr.prove(step, w, w, mesh={"data": 2}, exact="no")  # E: call-overload: No overload variant
