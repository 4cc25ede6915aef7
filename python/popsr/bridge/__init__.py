"""Training steps of other frameworks, read as programs of popsr to be proved and run.

``popsr.bridge.jax`` and ``popsr.bridge.torch`` read steps, ``popsr.bridge.onnx`` models. Each is a package that imports
its framework in functions only, and has, beside its public functions,

- ``accepts(step) -> bool``: true for what it can read. It is asked when the framework is imported already;
- ``import_step(step, *args, unsupported="error", **options) -> BridgedStep``, which ``popsr.prove`` calls.

The readers of steps build with a ``StepBuilder``: arguments by role with the groups of replicas that are given equal
values, new values of states, results, and ``unsupported`` for an op that popsr lacks. Around what a line of the user's
program makes stands ``with popsr.location(file, line):``, around what a backward pass makes
``with builder.derivative():``.
"""

from typing import TYPE_CHECKING

from popsr._program.building.gaps import Gap
from popsr._support.lazy import lazy_attributes, names_only
from popsr._support.text.entry_points import public
from popsr._support.text.suggestions import unknown_attribute
from popsr.bridge._proof.proof import Cause, Proof, ProvedValue, SourceLine
from popsr.bridge._proof.prove import prove
from popsr.bridge._same import Place, Sameness, SameValue
from popsr.bridge._step.arguments import Argument, Result
from popsr.bridge._step.builder import StepBuilder
from popsr.bridge._step.step import BridgedStep
from popsr.errors import UnsupportedOpsError

__all__ = [
    "Argument",
    "BridgedStep",
    "Cause",
    "Gap",
    "Place",
    "Proof",
    "ProvedValue",
    "Result",
    "SameValue",
    "Sameness",
    "SourceLine",
    "StepBuilder",
    "UnsupportedOpsError",
    "prove",
]

if not TYPE_CHECKING:
    __getattr__ = public(
        lazy_attributes(__name__, ("audit", "jax", "onnx", "torch"), {}, unknown_attribute(__name__, __all__))
    )

__dir__ = names_only(__all__)
