"""Docstrings of public functions: their examples run and print what is shown, ops and popsr.sr have one each."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import _core, ops, sr
from popsr.testing import evaluate
from tests_py.support.helpers import python_op

# The names that examples use without an import, as the documentation says.
NAMES = {"np": np, "popsr": popsr, "ops": ops, "sr": sr, "evaluate": evaluate}
OPS = [schema["name"] for schema in _core.op_schemas() if not schema["internal"]]
# They replace modules.
SKIPPED = ("popsr.compat", "popsr.demo", "popsr.popsr_kernels")
BEHIND = ("popsr.sr._torch.", "popsr.sr._portable.of_")


def modules() -> Iterator[str]:
    """Modules of the package, without those behind ``popsr.sr.torch`` and ``popsr.sr.jax``, imported with these."""
    yield "popsr"
    for module in pkgutil.walk_packages(popsr.__path__, "popsr."):
        if not module.name.startswith((*SKIPPED, *BEHIND)) and not module.name.endswith("__main__"):
            yield module.name


def functions(module: str) -> Iterator[Callable[..., Any]]:
    """Functions, methods and classes that the module defines, with a docstring."""
    for value in vars(importlib.import_module(module)).values():
        if getattr(value, "__module__", None) != module or not callable(value):
            continue
        yield value
        if inspect.isclass(value):
            yield from (m for m in vars(value).values() if inspect.isfunction(m))


def examples() -> Iterator[Any]:
    seen = set()
    for module in modules():
        try:
            importlib.import_module(module)
        except popsr.errors.MissingPackageError as error:
            reason = f"needs {getattr(error.__cause__, 'name', None)}"
            yield pytest.param("", id=module, marks=pytest.mark.skip(reason=reason))
            continue
        for function in functions(module):
            name = f"{module}.{getattr(function, '__qualname__', function)}"
            docstring = inspect.cleandoc(function.__doc__ or "")
            if ">>>" in docstring and name not in seen:
                seen.add(name)
                yield pytest.param(docstring, id=name)


@pytest.mark.parametrize("docstring", list(examples()))
def test_an_example_prints_what_is_shown(docstring: str, request: pytest.FixtureRequest) -> None:
    test = doctest.DocTestParser().get_doctest(docstring, dict(NAMES), request.node.name, None, None)
    wrong: list[str] = []
    assert doctest.DocTestRunner(verbose=False).run(test, out=wrong.append).failed == 0, "".join(wrong)


def has_example(function: Any) -> bool:
    lines = (inspect.getdoc(function) or "").split("\n")
    return "Example:" in lines and ">>>" in "\n".join(lines[lines.index("Example:") :])


@pytest.mark.parametrize("name", OPS)
def test_an_op_has_an_example(name: str) -> None:
    assert has_example(python_op(name))


@pytest.mark.parametrize("name", [name for name in sr.__all__ if inspect.isfunction(getattr(sr, name))])
def test_stochastic_rounding_has_examples(name: str) -> None:
    assert has_example(getattr(sr, name))


# evaluate


def test_results_have_the_form_of_what_the_function_returns() -> None:
    assert evaluate(lambda t: None if t.shape else t, [1.0]) is None
    assert evaluate(ops.split, [1.0, 2.0], splits=2)[1].tolist() == [2.0]
    assert evaluate(ops.add, np.array([1.0], np.float16), np.float16(2.0)).dtype == np.float16
    assert str(evaluate(ops.cast, [1.0], popsr.bfloat16).dtype) == "bfloat16"
    cast = ops.pow2scale_cast_to_fp8
    assert str(evaluate(cast, np.float16(1.0), np.int32(0), popsr.float8_143).dtype) == "float8_e4m3fnuz"


def test_operands_in_tuples_and_keywords_become_tensors() -> None:
    assert evaluate(ops.concat, ([1.0], [2.0])).tolist() == [1.0, 2.0]
    assert evaluate(ops.add, [1.0], rhs=np.array([2.0], np.float32)).tolist() == [3.0]


def test_replicas_have_rows() -> None:
    rows = evaluate(lambda t: t * 2.0, [[1.0], [2.0], [3.0]], replicas=3)
    assert rows.tolist() == [[2.0], [4.0], [6.0]]


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no function": (
        lambda: evaluate(3, [1.0]),  # type: ignore[arg-type]
        popsr.errors.ArgumentTypeError,
        "^evaluate: function cannot be called, got 3",
    ),
    "another result": (
        lambda: evaluate(lambda t: t.shape, [1.0]),
        popsr.errors.ArgumentTypeError,
        r"^evaluate: function returned \(1,\), expected tensors",
    ),
    "no rows": (
        lambda: evaluate(ops.relu, [1.0], replicas=2),
        popsr.errors.ShapeError,
        r"^evaluate: operand has no row for each replica, got shape \(1,\), expected \[2, ...\]",
    ),
    "a number of rows": (
        lambda: evaluate(ops.relu, np.float32(1.0), replicas=2),
        popsr.errors.ShapeError,
        r"got shape \(\), expected \[2, ...\]",
    ),
    "replicas": (
        lambda: evaluate(ops.relu, [1.0], replicas=0),
        popsr.errors.AttributeValueError,
        "^evaluate: replicas: got 0, expected an int from 1",
    ),
    "the op": (lambda: evaluate(ops.relu, [True]), popsr.errors.DTypeError, "^relu: "),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    call, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        call()
