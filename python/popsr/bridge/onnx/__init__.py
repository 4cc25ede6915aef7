"""Models of ONNX as programs of popsr.

``load`` reads a model: its nodes become a graph, its initializers variables. A table of rules, one for each op type and
opset, says what each node becomes; ops that ONNX defines by a function body need none.
"""

from typing import TYPE_CHECKING

from popsr._support.lazy import lazy_attributes, names_only
from popsr._support.text.entry_points import public
from popsr._support.text.suggestions import unknown_attribute
from popsr.bridge.onnx._export import export
from popsr.bridge.onnx._load import load
from popsr.bridge.onnx._model import OnnxModel
from popsr.bridge.onnx._prove import accepts, import_step, prove
from popsr.bridge.onnx._rules import RULES
from popsr.bridge.onnx._train.training import OnnxTraining

__all__ = [
    "OnnxModel",
    "OnnxTraining",
    "accepts",
    "export",
    "import_step",
    "load",
    "op_types",
    "prove",
    "rule_files",
]


@public
def op_types() -> dict[str, tuple[int, ...]]:
    """Op types that have a rule, with the opsets that rules begin at; of other domains as ``domain.op``."""
    return {
        (f"{domain}." if domain else "") + op_type: tuple(sorted(row.since for row in rows))
        for (domain, op_type), rows in sorted(RULES.items())
    }


@public
def rule_files() -> dict[str, str]:
    """Op types that have a rule, with the file of the latest one."""
    return {
        (f"{domain}." if domain else "") + op_type: rows[0].module
        for (domain, op_type), rows in sorted(RULES.items())
    }


if not TYPE_CHECKING:
    __getattr__ = public(lazy_attributes(__name__, ("backend",), {}, unknown_attribute(__name__, __all__)))

__dir__ = names_only(__all__)
