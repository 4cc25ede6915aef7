"""``python -m popsr prove``: a step that a script or module has, proved from a shell."""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from popsr._support.text.answers import Answer, add_format, answer, parse
from popsr._support.text.nearest import nearest
from popsr._support.text.shown import shown
from popsr.bridge._proof.proof import Proof
from popsr.bridge._proof.prove import prove
from popsr.bridge._same import ONE_DEVICE
from popsr.errors import ArgumentTypeError, AttributeValueError, FileError, UnknownNameError

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Prove the step, and print the proof.

    Returns:
        0 if the proof is ok, 1 if it is not, 2 if there is none.
    """
    options = parse("prove", _parser(), argv)
    return answer(
        "prove", options.format, lambda: _answer(options), f"{options.step} raised {{}}, expected a proof"
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
    named = _named(options.step)
    step, args = named.value, _args(named, options.args)
    settings = _settings(named, options)
    if args is None and _is_maker(step):
        step = step()
    if isinstance(step, Proof):
        if not settings:
            return step
        step = step.step
    return prove(step, *(args or ()), **settings)


def _settings(named: _Named, options: argparse.Namespace) -> dict[str, Any]:
    """Options of the proof: the module's, and those of the command in their place."""
    found = _beside(named, options.options, "options", {})
    if not isinstance(found, dict):
        raise ArgumentTypeError(
            f"prove: options are no dictionary, got {shown(found)}, expected {{'mesh': ...}}"
        )
    given = {"mesh": options.mesh, "replicas": options.replicas, "exact": False if options.float64 else None}
    settings = found | {name: value for name, value in given.items() if value is not None}
    if options.like is not None:
        settings["like"] = options.like if options.like == ONE_DEVICE else _reference(named, options.like)
    return settings


def _reference(named: _Named, name: str) -> Any:
    return _named(name).value if ":" in name else _member(named.module, name)


def _args(named: _Named, name: str | None) -> Sequence[Any] | None:
    """Example arguments; None where the module has none for a step that takes none.

    Raises:
        UnknownNameError: a step that needs arguments has none.
        ArgumentTypeError: they are no tuple or list.
    """
    found = _beside(named, name, "args", None)
    if found is None:
        if inspect.isfunction(named.value) and not _is_maker(named.value):
            error = UnknownNameError(
                f"prove: no example arguments of {shown(named.name)}, got a step that takes "
                f"{inspect.signature(named.value)}, expected a tuple {named.name}_args beside it, a function that "
                "returns one, or --args NAME"
            )
            error.location = _definition(named.value)
            raise error
        return None
    if not isinstance(found, (tuple, list)):
        raise ArgumentTypeError(
            f"prove: example arguments are no tuple, got {shown(found)}, expected (array, ...)"
        )
    return found


def _definition(step: types.FunctionType) -> str:
    return f"{step.__code__.co_filename}:{step.__code__.co_firstlineno}"


def _beside(named: _Named, name: str | None, suffix: str, default: Any) -> Any:
    """A value that belongs to a step: one of a name, else ``step_args``; functions are called."""
    own = getattr(named.owner, f"{named.name}_{suffix}", default)
    found = own if name is None else _member(named.module, name)
    return found() if inspect.isroutine(found) else found


def _is_maker(value: Any) -> bool:
    """True for a plain function that needs no argument."""
    if not isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
        return False
    parameters = inspect.signature(value).parameters.values()
    return all(
        each.default is not each.empty or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        for each in parameters
    )


# Names


class _Named(NamedTuple):
    """A value of a module.

    Attributes:
        module: the module.
        owner: the module, or a class or object in it.
        name: of the value in its owner.
        value: the value.
    """

    module: Any
    owner: Any
    name: str
    value: Any


def _named(target: str) -> _Named:
    """The value that ``script.py::step``, ``package.module::step`` or ``package.module:step`` names."""
    where, mark, path = target.rpartition("::" if "::" in target else ":")
    if not mark or not where or not path:
        raise AttributeValueError(
            f"prove: no step is named, got {shown(target)}, expected script.py::step or package.module::step"
        )
    module = _script(where) if where.endswith(".py") or os.sep in where else _module(where)
    owner, _, name = path.rpartition(".")
    found = _member(module, owner) if owner else module
    return _Named(module, found, name, _member(found, name))


def _member(value: Any, path: str) -> Any:
    """An attribute, also of an attribute: ``Trainer.step``."""
    for name in path.split("."):
        if not hasattr(value, name):
            known = nearest(name, (each for each in dir(value) if not each.startswith("_")))
            like = f", did you mean {known}?" if known else ""
            raise UnknownNameError(
                f"prove: no such name, got {shown(path)}, expected one of {shown(value)}{like}"
            )
        value = getattr(value, name)
    return value


def _script(path: str) -> Any:
    """A script as a module: it is not ``__main__``, so what it does as a program is not done."""
    file = Path(path)
    if not file.is_file():
        raise FileError(f"prove: no such script, got {shown(path)}, expected a Python file")
    if not sys.flags.safe_path:
        sys.path[0] = str(file.resolve().parent)
    spec = importlib.util.spec_from_file_location(file.stem, file.resolve())
    if spec is None or spec.loader is None:
        raise FileError(f"prove: no Python, got {shown(path)}, expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)
    spec.loader.exec_module(module)
    return module


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # by the code of the module
        raise FileError(
            f"prove: no such module, got {shown(name)}, expected one that can be imported"
        ) from error
    except TypeError as error:
        raise FileError(f"prove: no such module, got {shown(name)}, expected an absolute name") from error
