"""Options of a session, checked once and handed over as one value, and those of its program that it starts with."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from popsr import _core
from popsr._program.building.gaps import unsupported_ops
from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._session.devices import DeviceInfo
from popsr._session.lints import read_check, read_strict
from popsr._session.synthetic_data import SyntheticData
from popsr._support.extensions import call
from popsr._support.host.arguments import is_a, read_choice, read_flag, read_int
from popsr._support.text.shown import shown
from popsr.analysis._communication import PlanSettings
from popsr.errors import ArgumentTypeError, StateError

if TYPE_CHECKING:
    from popsr._session.ranks.ranks import Ranks

__all__ = ["SessionOptions", "apply_program_options", "check_device", "check_program"]

_logger = logging.getLogger("popsr")


@dataclass(frozen=True)
class SessionOptions:
    """Options of one session, checked.

    Attributes:
        seed: seed of stochastic rounding: the argument, else the program's.
        dedup: store and compute values once per block of equal replicas.
        check: share of executed ops whose claims are compared, from 0 to 1.
        num_threads: threads of the session; 0 for the default.
        errors: codes of lints that are errors, and "labels".
        profile: time each instruction.
        optimise: fuse ops, and share buffers.
        to_host_on_exit: download variables when ``with session:`` ends.
        check_floats: an op with finite operands and another result is an error: an option of the program.
        clamp_scales: scales of float8 out of range are clamped: likewise.
    """

    seed: int
    dedup: bool
    check: float
    num_threads: int
    errors: frozenset[str]
    profile: bool
    optimise: bool
    to_host_on_exit: bool
    check_floats: bool
    clamp_scales: bool

    @classmethod
    def read(
        cls,
        ir: Ir,
        *,
        seed: object,
        dedup: object,
        check: object,
        num_threads: object,
        strict: object,
        profile: object,
        optimise: object,
        weights_to_host_on_exit: object,
    ) -> SessionOptions:
        """Check the arguments of ``Session``, and the options of its program.

        Raises:
            TypeError, ValueError: an argument that cannot be.
            OptionError: options of the program that contradict it.
        """
        seed = ir.options.seed if seed is None else seed
        ir.options._check_for(ir)
        return cls(
            seed=read_int("Session: seed", seed, 0, 2**64 - 1),
            dedup=read_flag("Session: dedup", dedup),
            check=read_check(check),
            num_threads=0 if num_threads is None else read_int("Session: num_threads", num_threads, 1, 4096),
            errors=read_strict(strict),
            profile=read_flag("Session: profile", profile),
            optimise=read_flag("Session: optimise", optimise),
            to_host_on_exit=read_flag("Session: weights_to_host_on_exit", weights_to_host_on_exit),
            check_floats=ir.options.enable_floating_point_checks,
            clamp_scales=not ir.options.throw_if_log2_scale_tensor_not_in_range,
        )

    @property
    def plan_settings(self) -> PlanSettings:
        """The options that decide about messages between ranks."""
        return PlanSettings(self.dedup, self.check, self.check_floats, self.optimise)

    def agreed(self) -> dict[str, object]:
        """The arguments that all ranks must have given alike, by name."""
        return {
            "seed": self.seed,
            "dedup": self.dedup,
            "check": self.check,
            "strict": sorted(self.errors),
            "optimise": self.optimise,
            "weights_to_host_on_exit": self.to_host_on_exit,
        }

    def compile(self, ir: Ir, facts: _core.PartitionAnalysis, ranks: Ranks | None) -> _core.Session:
        """The compiled program.

        Args:
            ir: the program.
            facts: its facts.
            ranks: the other ranks; None without any.
        """
        return _core.Session(
            ir._core,
            facts,
            self.seed,
            self.dedup,
            self.check,
            self.num_threads,
            self.clamp_scales,
            "labels" in self.errors,
            self.check_floats,
            self.profile,
            self.optimise,
            None if ranks is None else ranks.link,
        )


def check_program(ir: Ir) -> None:
    """Refuse what is not an Ir that can run.

    Raises:
        ArgumentTypeError: not an Ir.
        StateError: it has no ops.
        UnsupportedOpsError: it has stand-ins for ops that popsr cannot compute.
    """
    if not is_a(ir, Ir):
        hint = "a graph, expected its Ir: graph.ir" if is_a(ir, Graph) else f"{shown(ir)}, expected an Ir"
        raise ArgumentTypeError(f"Session: ir is not an Ir, got {hint}")
    if ir._core.num_ops == 0:
        raise StateError("Session: the program has no ops, expected at least one")
    if ir._gaps:
        raise unsupported_ops("Session", ir._gaps)


def check_device(device: object) -> None:
    """Refuse what is neither the name of a device nor one of PopART's; all are the simulator.

    Raises:
        ArgumentTypeError, AttributeValueError: it is something else.
    """
    if not isinstance(device, DeviceInfo):
        read_choice("Session", "device_desc", device, ("cpu", "ipu_model", "ipu_hw"))


def apply_program_options(ir: Ir, seed: int) -> SyntheticData | None:
    """Carry out the options of a program that act when a session is made; logs which have no effect.

    Args:
        ir: the program.
        seed: seed of the session.
    Returns:
        The source of synthetic data; None where the caller's data is read.
    """
    options = ir.options
    if not options._values:
        return None
    call("_tools", "Session.write_dot_checks", ir)
    idle = options._without_effect()
    if idle:
        _logger.info("Session: these options were set and have no effect on a simulator: %s", ", ".join(idle))
    mode = options.syntheticDataMode
    return None if mode.name == "Off" else SyntheticData(mode, seed)
