"""Random steps beside JAX on four and eight devices: no claim that the bits of its buffers break.

``nice -n 19 python -m tests_py.bridge.jax.sweep --seed 7 --programs 20000`` prints counts, and the reasons of values
that are equal and not proved.
"""

from tests_py.bridge.jax import conftest  # noqa: F401  # sets the number of devices before JAX starts
from tests_py.bridge.jax.sweep.judge import main

if __name__ == "__main__":
    main()
