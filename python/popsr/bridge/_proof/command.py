"""``python -m popsr prove``: a step that a script or module has, proved from a shell."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from popsr._support.text.answers import Answer, add_format, answer, parse
from popsr._support.text.shown import shown
from popsr.bridge._proof.named import Named, named_step, options_of, proof_of_named, reference
from popsr.bridge._proof.proof import Proof
from popsr.bridge._same import ONE_DEVICE

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Prove the step, and print the proof.

    Returns:
        0 if the proof is ok, 1 if it is not, 2 if there is none.
    """
    options = parse("prove", _parser(), argv)
    return answer(
        "prove",
        options.format,
        lambda: _answer(options),
        lambda kind: f"{options.step} raised {kind}, expected a proof",
    )


def _answer(options: argparse.Namespace) -> Answer:
    proof = _proof(options)
    if options.html is not None:
        proof.save_html(options.html)
    return Answer(0 if proof.ok else 1, lambda: str(proof), proof.as_dict, proof._findings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m popsr prove",
        description="Prove a training step of JAX or PyTorch as popsr.prove does; nothing of it runs. The exit status "
        "is 0 if the proof is ok, 1 if the step is not ok, suspicious or unknown, 2 if it cannot be read.",
    )
    parser.add_argument(
        "step",
        help="script.py::step or package.module::step: a step, a program, a proof, or a function without parameters "
        "that gives one of these",
    )
    parser.add_argument("--args", metavar="NAME", help="example arguments of the step (step_args)")
    parser.add_argument("--options", metavar="NAME", help="options of popsr.prove (step_options)")
    parser.add_argument("--mesh", metavar="AXIS=SIZE,...", type=_mesh, help="sizes of the mesh by axis")
    parser.add_argument("--replicas", metavar="N", type=int, help="number of replicas")
    parser.add_argument(
        "--like", metavar="REFERENCE", help=f"'{ONE_DEVICE}', or the name of a step for one device"
    )
    parser.add_argument(
        "--float64", action="store_true", help="with --like: compare in float64, not by exact arithmetic"
    )
    add_format(parser)
    parser.add_argument("--html", metavar="FILE", help="also write the proof as a page")
    return parser


def _mesh(text: str) -> dict[str, int]:
    """Sizes by axis: ``data=4,model=2``."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        axis, _, size = part.partition("=")
        if not axis.isidentifier() or not size.isdecimal() or int(size) < 1 or axis in sizes:
            raise argparse.ArgumentTypeError(f"got {shown(text)}, expected axes and sizes as data=4,model=2")
        sizes[axis] = int(size)
    return sizes


def _proof(options: argparse.Namespace) -> Proof:
    named = named_step(options.step)
    return proof_of_named(named, _settings(named, options), options.args)


def _settings(named: Named, options: argparse.Namespace) -> dict[str, Any]:
    """Options of the proof: the module's, and those of the command in their place."""
    given = {"mesh": options.mesh, "replicas": options.replicas, "exact": False if options.float64 else None}
    settings = options_of(named, options.options) | {
        name: value for name, value in given.items() if value is not None
    }
    if options.like is not None:
        settings["like"] = options.like if options.like == ONE_DEVICE else reference(named, options.like)
    return settings
