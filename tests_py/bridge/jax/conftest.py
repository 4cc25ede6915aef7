"""JAX plays eight devices on this machine; it reads that when it makes its first array."""

import importlib.util

import pytest

from tests_py.bridge.jax.older import add_newer_names
from tests_py.support.host_devices import ask_for_host_devices

ask_for_host_devices()

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
