"""Imported first: refuses interpreters in which the compiled core cannot run."""

from __future__ import annotations

from popsr.errors import InterpreterError

__all__: list[str] = []


def _is_main() -> bool:
    """True in the process's main interpreter: a subinterpreter that imports the core would never return."""
    try:
        from ctypes import PYFUNCTYPE, c_void_p, pythonapi
    except (
        ImportError
    ):  # a Python without it; one in a subinterpreter of Python 3.12 cannot import NumPy either
        return True
    current, main = (
        PYFUNCTYPE(c_void_p)((f"PyInterpreterState_{which}", pythonapi))() for which in ("Get", "Main")
    )
    return bool(current == main)


if not _is_main():
    raise InterpreterError(
        "import popsr: not possible in a subinterpreter, got one, expected the main interpreter of a process"
    )
