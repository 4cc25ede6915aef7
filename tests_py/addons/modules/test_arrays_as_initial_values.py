"""Arrays are not initial values of variables that are made later: as an iterable each row would be one, unasked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors
from popsr.addons.variable_factory import (
    VariableFactory,
    add_replica_sharded_variable_input,
    add_variable_input,
)

ARRAY = np.arange(9, dtype=np.float32).reshape(3, 3)


class Interface:
    """An array of some other package."""

    __array_interface__ = ARRAY.__array_interface__

    def __iter__(self) -> Any:
        return iter(ARRAY)


def _torch() -> Any:
    return pytest.importorskip("torch").zeros(3, 3)


REFUSED: dict[str, Callable[[], Any]] = {
    "array": lambda: ARRAY,
    "row": lambda: ARRAY[0],
    "scalar": lambda: np.float32(1),
    "array without dimensions": lambda: np.zeros(()),
    "memory": lambda: memoryview(b"abc"),
    "bytes": lambda: b"abc",
    "interface": Interface,
    "torch": _torch,
}
CALLS: dict[str, Callable[[Any], Any]] = {
    "factory": lambda data: VariableFactory(data, name="w"),
    "input": lambda data: add_variable_input("w", data),
    "sharded input": lambda data: add_replica_sharded_variable_input("w", data),
    "module": lambda data: addons.Module().add_variable_input("w", data),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", REFUSED)
def test_arrays_are_refused(name: str, call: str) -> None:
    with popsr.Ir().create_empty_graph() as graph:
        with pytest.raises(errors.AttributeValueError) as caught:
            CALLS[call](REFUSED[name]())
        assert str(caught.value).startswith(
            "VariableFactory 'w': data_iter is not a function or iterable but an array,"
        )
        assert str(caught.value).endswith("`lambda: array` for a value, or `iter(array)` for a value a row")
        assert not graph.inputs


ACCEPTED: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "function": (lambda: lambda: ARRAY, (3, 3)),
    "iterator over rows": (lambda: iter(ARRAY), (3,)),
    "list": (lambda: [ARRAY, ARRAY], (3, 3)),
    "generator": (lambda: (ARRAY for _ in range(2)), (3, 3)),
    "list of numbers": (lambda: [1.0, 2.0], ()),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_functions_and_iterables_are_taken(name: str) -> None:
    make, shape = ACCEPTED[name]
    with popsr.Ir().main_graph:
        factory = VariableFactory(make(), popsr.float32, "w")
        assert factory.create_tensor().shape == factory.shape == shape
