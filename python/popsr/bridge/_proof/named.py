"""Steps by their names, as ``script.py::step`` and ``package.module::step``, with what stands beside them."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from popsr._program.ir import Ir
from popsr._support.text.nearest import nearest
from popsr._support.text.shown import shown
from popsr.bridge._proof.proof import Proof
from popsr.bridge._proof.prove import prove
from popsr.bridge._step.step import BridgedStep
from popsr.errors import ArgumentTypeError, AttributeValueError, FileError, UnknownNameError

__all__ = ["Named", "modules_of", "named_step", "options_of", "proof_of_named", "reference", "steps_in"]


class Named(NamedTuple):
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


def proof_of_named(named: Named, settings: dict[str, Any], args: str | None = None) -> Proof:
    """The proof of a step with its example arguments, or of what a function without parameters gives.

    Args:
        named: the step.
        settings: options of ``prove``.
        args: the name of its example arguments. Default: ``step_args`` beside it.
    """
    step, found = named.value, _args(named, args)
    if found is None and _is_maker(step):
        step = step()
    if isinstance(step, Proof):
        if not settings:
            return step
        step = step.step
    return prove(step, *(found or ()), **settings)


def options_of(named: Named, name: str | None = None) -> dict[str, Any]:
    """The options of ``prove`` that a module has for a step.

    Args:
        named: the step.
        name: of the options. Default: ``step_options`` beside it.
    """
    found = _beside(named, name, "options", {})
    if not isinstance(found, dict):
        raise ArgumentTypeError(
            f"prove: options are no dictionary, got {shown(found)}, expected {{'mesh': ...}}"
        )
    return dict(found)


def reference(named: Named, name: str) -> Any:
    """A step that another is compared with: of the same module, or of another that is named too."""
    return named_step(name).value if ":" in name else _member(named.module, name)


def _args(named: Named, name: str | None) -> Sequence[Any] | None:
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


def _beside(named: Named, name: str | None, suffix: str, default: Any) -> Any:
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


def named_step(target: str) -> Named:
    """The value that ``script.py::step``, ``package.module::step`` or ``package.module:step`` names."""
    where, mark, path = target.rpartition("::" if "::" in target else ":")
    if not mark or not where or not path:
        raise AttributeValueError(
            f"prove: no step is named, got {shown(target)}, expected script.py::step or package.module::step"
        )
    module = _loaded(where)
    owner, _, name = path.rpartition(".")
    found = _member(module, owner) if owner else module
    return Named(module, found, name, _member(found, name))


def modules_of(where: str) -> Iterator[Any]:
    """A script or module; of a package all modules in it, but those that run it as a program."""
    module = _loaded(where)
    yield module
    for each in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if each.name != "__main__":
            yield from modules_of(f"{module.__name__}.{each.name}")


def steps_in(module: Any) -> Iterator[Named]:
    """The steps that a module has: functions with ``step_args`` beside them, programs, steps and proofs."""
    names = vars(module)
    for name, value in list(names.items()):
        is_step = isinstance(value, (Ir, BridgedStep, Proof)) or (callable(value) and f"{name}_args" in names)
        if is_step and not name.startswith("_"):
            yield Named(module, module, name, value)


def _loaded(where: str) -> Any:
    return _script(where) if where.endswith(".py") or os.sep in where else _module(where)


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


def _script(where: str) -> Any:
    """A script as a module: it is not ``__main__``, so what it does as a program is not done."""
    file = Path(where)
    if not file.is_file():
        raise FileError(f"prove: no such script, got {shown(where)}, expected a Python file")
    path, folder = str(file.resolve()), str(file.resolve().parent)
    known = sys.modules.get(file.stem)
    if getattr(known, "__file__", None) == path:
        return known
    if not sys.flags.safe_path and sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(file.stem, path)
    if spec is None or spec.loader is None:
        raise FileError(f"prove: no Python, got {shown(where)}, expected a Python file")
    module = importlib.util.module_from_spec(spec)
    is_first = sys.modules.setdefault(file.stem, module) is module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if is_first:
            sys.modules.pop(file.stem, None)
        raise
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
