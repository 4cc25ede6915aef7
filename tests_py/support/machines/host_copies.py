"""A NumPy model of a session's variables: what the host has, what the device has, and when they are copied."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests_py.support.helpers import Array


@dataclass
class ModelVariable:
    """A variable on ``len(assignment)`` replicas; each run adds a row of ``x`` to each replica."""

    assignment: list[int]
    all_replicas: bool
    host: Array  # (rows, *shape)
    drifts: bool
    device: Array = field(init=False)

    def __post_init__(self) -> None:
        if self.keeps_all:
            self.host = self.host[self.assignment]
        self.upload()

    @property
    def keeps_all(self) -> bool:
        return self.all_replicas and len(self.assignment) > len(set(self.assignment))

    @property
    def first(self) -> list[int]:
        return [self.assignment.index(group) for group in range(max(self.assignment) + 1)]

    def upload(self) -> None:
        self.device = self.host.copy() if self.keeps_all else self.host[self.assignment]

    def download(self) -> None:
        self.host = self.device.copy() if self.keeps_all else self.device[self.first]

    def set_groups(self, rows: Array) -> None:
        self.host = rows[self.assignment] if self.keeps_all else rows.copy()

    @property
    def on_host(self) -> Array:
        """As get_tensor_data shows it: a single row comes without its dimension."""
        return self.host if len(self.host) > 1 else self.host[0]


class Model:
    """Variables of a session."""

    def __init__(self, variables: list[ModelVariable]) -> None:
        self.variables = variables
        self.attached = self.stale = False

    def enter(self) -> None:
        self.attached = True
        self.upload()

    def leave(self, download: bool) -> None:
        if download:
            self.download()
        self.attached = False

    def run(self, x: Array) -> None:
        for variable in self.variables:
            if variable.drifts:
                variable.device = variable.device + x
        self.stale = True

    def upload(self) -> None:
        for variable in self.variables:
            variable.upload()
        self.stale = False

    def download(self) -> None:
        for variable in self.variables:
            variable.download()
        self.stale = False

    def refresh(self) -> None:
        if self.attached and self.stale:
            self.download()

    def write(self, index: int, rows: Array) -> None:
        self.refresh()
        self.variables[index].set_groups(rows)
        if self.attached:
            self.variables[index].upload()
