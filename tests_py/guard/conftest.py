"""JAX plays eight devices on this machine, as in the tests of steps of JAX."""

from tests_py.support.host_devices import ask_for_host_devices

ask_for_host_devices()
