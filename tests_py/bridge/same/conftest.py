"""JAX plays eight devices, as in the room of its importer."""

from tests_py.bridge.jax.conftest import eight_devices

__all__ = ["eight_devices"]
