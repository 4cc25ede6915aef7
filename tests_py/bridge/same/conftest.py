"""JAX plays eight devices, as in the room of its importer."""

import tests_py.bridge.jax.conftest  # noqa: F401 - sets what JAX reads when it makes its first array
