"""JAX plays eight devices on this machine; it reads that when it makes its first array."""

import importlib.util
import os

import pytest

from tests_py.bridge.jax.older import add_newer_names

FLAG = "--xla_force_host_platform_device_count"

if FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}=8".strip()

if importlib.util.find_spec("jax") is not None:
    import jax

    add_newer_names(jax)


@pytest.fixture(scope="session", autouse=True)
def eight_devices() -> None:
    jax = pytest.importorskip("jax")
    if len(jax.devices()) < 8:
        pytest.skip(
            f"JAX has {len(jax.devices())} devices, started by a test before: run this folder by itself"
        )
