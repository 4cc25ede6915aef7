"""Runs of a step: its session, and data and results by path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from popsr._program.building.gaps import unsupported_ops
from popsr._program.ir import Ir
from popsr._program.streams import HostToDeviceStream
from popsr._program.tensor import Variable
from popsr._session.session import Session
from popsr._support.host.arguments import read_mapping, read_text
from popsr._support.text.nearest import nearest
from popsr._support.text.shown import shown
from popsr.bridge._step.arguments import Argument, Array, Step
from popsr.errors import SessionError, UnknownNameError

__all__ = ["StepRuns"]


class StepRuns:
    """The session of a step, which keeps its states between runs."""

    def __init__(self) -> None:
        """Before the first run."""
        self._session: Session | None = None

    def restart(self, ir: Ir, options: Mapping[str, Any]) -> None:
        """Compile the program, with the initial states."""
        self._session = Session(ir, **options)

    def run(self, step: Step, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """See ``BridgedStep.run``."""
        if step.gaps:
            raise unsupported_ops("run", step.gaps)
        data = self._data(step.arguments, read_mapping("run", "inputs", inputs))
        if self._session is None:
            self.restart(step.ir, {})
        session = self._session
        assert session is not None
        with session:
            stored = session.run(data)
        found = {each.path: each.value(stored[each.stream]) for each in step.results if each.stream}
        for each in step.states:
            if each.path not in found and isinstance(each.source, Variable):
                found[each.path] = session.get_tensor_data(each.source)
        return found

    @staticmethod
    def argument(arguments: Sequence[Argument], path: str) -> Argument:
        """The argument of a path."""
        read_text("argument: path", path)
        for each in arguments:
            if each.path == path:
                return each
        close = nearest(str(path), [each.path for each in arguments])
        raise UnknownNameError(
            f"argument: no argument of that path, got {shown(path)}, expected {close or 'a path of the step'}"
        )

    @staticmethod
    def _data(arguments: Sequence[Argument], given: Mapping[str, Any]) -> dict[HostToDeviceStream, Array]:
        """Rows for each stream."""
        data = {each.path: each for each in arguments if each.role == "data"}
        for path in given:
            if path not in data:
                close = nearest(str(path), data)
                raise UnknownNameError(
                    f"run: inputs of a path that is not data, got {shown(path)}, expected "
                    f"{close or 'one of ' + shown(list(data))}"
                )
        rows: dict[HostToDeviceStream, Array] = {}
        for path, each in data.items():
            if path not in given and each.example is None:
                raise SessionError(
                    f"run: no value for data {shown(path)}, got {shown(list(given))}, expected all data"
                )
            assert isinstance(each.source, HostToDeviceStream)
            rows[each.source] = each.rows(given[path]) if path in given else each.example  # type: ignore[assignment]
        return rows
