"""Checkpoints that Orbax writes on four devices of one host, and the arrays in them.

``python orbax_job.py FOLDER``: a folder by each form; ``a`` and ``b`` by CheckpointManager, ``b`` with one other bit
at step 2; ``arrays`` with the saved bytes by name.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp

FORMS = {
    "database": {"use_ocdbt": True},
    "database3": {"use_ocdbt": True, "use_zarr3": True},
    "folders": {"use_ocdbt": False},
    "folders3": {"use_ocdbt": False, "use_zarr3": True},
}


def state_of(step: int) -> dict[str, Any]:
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
    cut = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x", "y"))
    copied = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "y"))
    numbers = np.random.default_rng(step)
    bits = numbers.integers(0, 1 << 16, (3, 4), np.uint16)  # NaNs and subnormal numbers too
    return {
        "params": {
            "w": jnp.asarray(bits.view(ml_dtypes.bfloat16)),
            "cut": jax.device_put(numbers.standard_normal((8, 6)).astype(np.float32), cut),
            "copied": jax.device_put(numbers.standard_normal((2, 6)).astype(np.float16), copied),
            "layers": [jnp.zeros(5), jnp.full(2, -step, jnp.int32)],
        },
        "large": np.arange(200_000, dtype=np.float64) * step,
        "column": np.asfortranarray(numbers.standard_normal((5, 7))),
        "f8": jnp.arange(4).astype(jnp.float8_e4m3fn),
        "i4": jnp.arange(-4, 4).astype(jnp.int4),
        "mask": np.array([True, False, True]),
        "u64": np.array([2**63, 1], np.uint64),
        "step": step,
        "rate": 0.1,
        "one": jnp.float32(3),
        "nothing": None,
        "empty": {},
    }


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found: dict[str, Any] = {}
    for key, each in items:
        if isinstance(each, (dict, list)):
            found |= flat(each, f"{prefix}{key}.")
        elif each is not None:
            found[f"{prefix}{key}"] = np.asarray(each)
    return found


def main(folder: Path) -> None:
    state = state_of(1)
    arrays = flat(state)
    facts = {name: (str(each.dtype), list(each.shape), each.tobytes().hex()) for name, each in arrays.items()}
    (folder / "arrays").write_text(json.dumps(facts))
    with ocp.StandardCheckpointer() as saver:
        saver.save(folder / "standard", state)
    for name, options in FORMS.items():
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options)) as checkpointer:  # type: ignore[arg-type]
            checkpointer.save(folder / name, state | {"text": "hello"})
    for job in ("a", "b"):
        with ocp.CheckpointManager(folder / job) as manager:
            for step in (1, 2):
                state = state_of(step)
                if job == "b" and step == 2:
                    cut = np.array(state["params"]["cut"])
                    cut.view(np.uint32)[5, 1] ^= 1 << 22
                    state["params"]["cut"] = jax.device_put(cut, state["params"]["cut"].sharding)
                manager.save(step, args=ocp.args.StandardSave(state))
    with ocp.CheckpointManager(folder / "items") as manager:
        save = ocp.args.Composite(
            model=ocp.args.StandardSave({"w": np.ones(3)}),
            optimizer=ocp.args.StandardSave({"w": np.zeros(3)}),
            settings=ocp.args.JsonSave({"rate": 0.1}),
        )
        manager.save(10, args=save)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
