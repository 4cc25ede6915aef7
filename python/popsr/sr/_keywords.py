"""Keyword parameters that operations share: their signature and their texts, written once.

A function that hands ``**options`` on gets the keywords of the function that takes them, so that ``help``, editors that
run code, and the pages of the site show one signature and one docstring with all parameters. Type checkers know the
options by ``RoundingOptions``, and the types of operands by the overloads of the function that one is ``like``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_type_hints

__all__ = ["like", "takes_keywords_of"]

_F = TypeVar("_F", bound=Callable[..., Any])

_KEY = "this and all that follows, the result and the errors are as in :func:`add`."
_KEY_IN_PLACE = (
    "this, all that follows and the errors are as in :func:`add`, with ``{}`` in the place of ``out``."
)
_CHANCE = "The chance is exact to 2**-64 for any operands."
_TEXTS = {
    "dtype": "format of integer buffers.",
    "out": "memory for the result.",
    "mode": "how to round.",
    "overflow": "what becomes of results that are too large.",
    "offset": "number of the first element.",
    "num_threads": "default: ``popsr.num_threads()``.",
}


def like(model: _F) -> Callable[[Callable[..., Any]], _F]:
    """Decorate a function that has the types of another one's parameters and results."""
    del model
    return lambda function: function  # type: ignore[return-value]


def takes_keywords_of(model: Callable[..., Any], target: str = "") -> Callable[[_F], _F]:
    """Decorate a function of ``**options`` that calls ``model`` with them.

    Its signature names the keywords, ``key`` first, then its own, then the others. A section ``Args:`` of its docstring
    gets a line for each that has none, in the place of that of ``**options``, and the usual end, unless another follows
    than the example.

    Args:
        model: has the keywords, all of them keyword-only.
        target: parameter that is written in place.
    """
    shared = inspect.signature(model).parameters.values()
    keywords = [each for each in shared if each.kind is each.KEYWORD_ONLY]
    types = get_type_hints(model)
    end = ["Returns:", f"    ``{target}``.", _CHANCE] if target else [_CHANCE]
    texts = {"key": _KEY_IN_PLACE.format(target) if target else _KEY, **_TEXTS}

    def decorate(function: _F) -> _F:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        first = sum(each.kind is not each.KEYWORD_ONLY for each in own)
        parameters = [*own[:first], *keywords[:1], *own[first:], *keywords[1:]]
        annotations = function.__annotations__
        annotations.pop("options")
        annotations |= {each.name: types[each.name] for each in keywords}
        vars(function)["__signature__"] = signature.replace(parameters=parameters)
        names = [each.name for each in parameters]
        function.__doc__ = _with_keywords(inspect.cleandoc(function.__doc__ or ""), names, texts, end)
        return function

    return decorate


def _with_keywords(docstring: str, names: Sequence[str], texts: dict[str, str], end: list[str]) -> str:
    lines = docstring.split("\n")
    if "Args:" not in lines:
        return docstring
    at = lines.index("Args:") + 1
    after = next(k for k in range(at, len(lines)) if not lines[k].startswith(" "))
    own: dict[str, list[str]] = {}
    for line in lines[at:after]:
        name = next(reversed(own)) if line.startswith("     ") else line.strip().partition(":")[0]
        own.setdefault(name, []).append(line)
    described = [line for name in names for line in own.get(name) or [f"    {name}: {texts[name]}"]]
    rest = lines[after:]
    return "\n".join([*lines[:at], *described, *(end if rest[0] == "Example:" else []), *rest])
