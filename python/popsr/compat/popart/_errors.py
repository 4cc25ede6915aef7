"""PopART's exceptions. ``except popart.popart_exception`` catches every error of popsr."""

from popsr.errors import Error
from popsr.errors import Error as popart_exception  # noqa: N813
from popsr.errors import Error as popart_runtime_error  # noqa: N813
from popsr.errors import Error as poplar_application_runtime_error  # noqa: N813
from popsr.errors import Error as poplar_exception  # noqa: N813
from popsr.errors import Error as poplar_runtime_error  # noqa: N813
from popsr.errors import InternalError as popart_internal_exception  # noqa: N813

__all__ = [
    "popart_exception",
    "popart_internal_exception",
    "popart_runtime_error",
    "poplar_application_runtime_error",
    "poplar_exception",
    "poplar_recoverable_runtime_error",
    "poplar_runtime_error",
]


class poplar_recoverable_runtime_error(Error, RuntimeError):  # noqa: N801
    """A fault of a device after which a program can go on. Nothing raises it: a simulator repeats what it does."""
