"""JAX plays eight devices here too."""

from tests_py.bridge.jax.conftest import eight_devices as eight_devices
