"""Rooms of python/popsr: who may import whom, also for annotations; no cycles; imports at the head of a file."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import popsr
from popsr._support import extensions
from tests_py.support.helpers import run_python

PACKAGE = Path(popsr.__file__).parent

# Room: the other rooms that its modules may import. The package itself stands above all of them.
MAY_IMPORT = {
    "_support": "",
    "sr": "_support",
    "_program": "_support",
    "ops": "_support _program",
    "transforms": "_support _program ops",
    "analysis": "_support _program",
    "_session": "_support sr _program analysis",
    "io": "_support _program _session",
    "_tools": "_support _program ops analysis _session io",
    "bridge": "_support _program ops transforms analysis _session io",
    "guard": "_support",
    "testing": "_support _program ops analysis _session bridge",
    "demo": "_support ops package",
    "compat": "_support sr _program ops transforms analysis _session io bridge package",
    "addons": "_support _program ops transforms _session compat",
}
# Modules that are not in the folder of their room: those that users import by their names, and one that stands above.
ROOM_OF_MODULE = {
    "_support": "dtypes errors fp8_utils replicas tensorlocation utils",
    "package": "__main__",
}
HOMES = {name: room for room, names in ROOM_OF_MODULE.items() for name in names.split()}

# Classes of a program name each other in annotations: an Ir has Graphs, a Graph has Ops and Tensors, and each of these
# its Ir. Users read these types, so there are no protocols in their place. Two of their methods, `Ir.create_graph` and
# `Graph.add_var_init`, call functions whose results are such objects. No others go round.
MUTUAL = {
    f"popsr._program.{name}"
    for name in ["create_graph", "graph", "ir", "op", "tensor", "variables.variables"]
}


class Import(NamedTuple):
    """An import statement: what it imports, its line, and where it stands: "head", "annotations" or "function"."""

    target: str
    line: int
    place: str


def module_name(file: Path) -> str:
    parts = ("popsr", *file.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {
    module_name(file): file
    for file in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")])
    if file.parent.name != "_core"  # types of the compiled module
}


@cache
def imports(module: str) -> tuple[Import, ...]:
    return tuple(_imports(module, ast.parse(FILES[module].read_text()), "head"))


def _imports(module: str, node: ast.AST, place: str) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, place)
        elif isinstance(child, ast.ImportFrom):
            for alias in child.names:
                name = f"{child.module}.{alias.name}"
                known = name in FILES or name == "popsr._core"
                yield Import(name if known else str(child.module), child.lineno, place)
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _imports(module, child, "function")
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from _imports(module, child, "annotations")
        else:
            yield from _imports(module, child, place)


def room(module: str) -> str:
    parts = module.split(".")[1:]
    if not parts:
        return "package"
    return HOMES.get(parts[0], parts[0])


def own(each: Import) -> bool:
    return each.target.split(".")[0] == "popsr" and each.target != "popsr._core"


def test_every_module_has_a_room() -> None:
    assert {room(module) for module in FILES} == {*MAY_IMPORT, "package"}


def test_rooms_import_only_what_lies_below() -> None:
    for module in FILES:
        here = room(module)
        for each in filter(own, imports(module)):
            there = room(each.target)
            if here not in (there, "package"):
                assert there in MAY_IMPORT[here].split(), (
                    f"{FILES[module]}:{each.line}: {here} imports {there}"
                )


def test_rooms_have_an_order() -> None:
    known: set[str] = set()
    for name, below in MAY_IMPORT.items():
        assert set(below.split()) <= known | {"package"}, name
        known.add(name)


def cycles(places: set[str]) -> list[set[str]]:
    """Groups of modules that import each other; the package imports all, and is left out."""
    graph = {
        module: {each.target for each in imports(module) if own(each) and each.place in places}
        - {module, "popsr"}
        for module in FILES
        if module != "popsr"
    }
    reached = {module: _reachable(graph, module) for module in graph}
    groups = [{other for other in reached[module] if module in reached[other]} for module in graph]
    return [group for i, group in enumerate(groups) if group and group not in groups[:i]]


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = [start]
    while todo:
        new = graph.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found


def test_no_module_imports_itself_in_the_end() -> None:
    assert cycles({"head", "function"}) == []


def test_annotations_go_round_among_the_classes_of_a_program_only() -> None:
    assert cycles({"head", "annotations"}) == [MUTUAL]


def test_members_of_the_core_have_rows_in_the_rooms_above() -> None:
    text = "".join(file.read_text() for file in FILES.values())
    asked = set(re.findall(r'\b(?:call|member)\(\s*"(\w+)",\s+"([\w.]+)"', text))
    rooms = [name for name in FILES if name.endswith("._members")]
    rows = {(name.split(".")[1], row) for name in rooms for row in importlib.import_module(name).MEMBERS}
    assert asked == rows
    for place in rows:
        assert callable(extensions.find(*place))


def test_rooms_above_use_of_a_session_what_its_protocol_has() -> None:
    for module, file in FILES.items():
        if room(module) == "_session":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Attribute) or not re.match("_(?!_|access$)", node.attr):
                continue
            owner = ast.unparse(node.value)
            assert not re.search(r"(^|\W)_?session$", owner), f"{file}:{node.lineno}: {owner}.{node.attr}"
            assert node.attr not in ("_mirror", "_runner"), f"{file}:{node.lineno}: {owner}.{node.attr}"


# Packages that are installed or not, and parts of Python that cost time to import.
OPTIONAL = {
    "ctypes",
    "fast_sugiyama",
    "IPython",
    "jax",
    "mpi4py",
    "matplotlib",
    "onnx",
    "safetensors",
    "sklearn",
    "tensorstore",
    "torch",
    "tqdm",
    "treescope",
    "yaml",
}


@pytest.mark.parametrize("module", FILES)
def test_functions_import_optional_packages_only(module: str) -> None:
    inside = [each for each in imports(module) if each.place == "function"]
    assert [each for each in inside if each.target.split(".")[0] not in OPTIONAL] == []


def test_imports_stand_at_the_head_of_files() -> None:
    for file in FILES.values():
        assert not re.search(r"noqa: .*E402", file.read_text()), file


def test_a_facade_is_short() -> None:
    body = ast.parse((PACKAGE / "_program/tensors.py").read_text()).body
    assert not [node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]


def public_modules() -> list[str]:
    found = [each.name for each in pkgutil.walk_packages(popsr.__path__, "popsr.")]
    hidden = re.compile(r"\._|\.popsr_kernels|^popsr\.(compat|demo)\b")
    return [
        "popsr",
        *(name for name in found if not hidden.search(name) and name in FILES and not is_folder(name)),
    ]


def is_folder(name: str) -> bool:
    """True for a package that is a docstring and nothing else."""
    return FILES[name].name == "__init__.py" and len(ast.parse(FILES[name].read_text()).body) == 1


def namespaces() -> list[str]:
    """Packages, the modules at the top, and those of rounding by framework."""
    return [
        name
        for name in public_modules()
        if FILES[name].name == "__init__.py" or name.rpartition(".")[0] in ("popsr", "popsr.sr")
    ]


@pytest.mark.parametrize("name", namespaces())
def test_dir_shows_public_names_only(name: str) -> None:
    needed = {f"popsr.sr.{package}": package for package in ("jax", "optax", "torch")}
    needed["popsr.bridge.onnx.backend"] = "onnx"
    if name in needed:
        pytest.importorskip(needed[name])
    module = importlib.import_module(name)
    assert [each for each in dir(module) if each.startswith("_") and each != "__version__"] == []
    assert set(dir(module)) == set(module.__all__)
    for each in dir(module):
        getattr(module, each)


def test_packages_resolve_by_attribute() -> None:
    run_python(
        "import sys, popsr\n"
        "lazy = ('addons', 'analysis', 'bridge', 'compat', 'guard', 'io', 'sr', 'transforms', 'fp8_utils', 'session')\n"
        "assert not {f'popsr.{name}' for name in lazy} & set(sys.modules)\n"
        "popsr.io.save_onnx, popsr.addons.Module, popsr.addons.layers.Linear, popsr.addons.optimizers\n"
        "popsr.sr.cast, popsr.analysis.analyze, popsr.transforms.autodiff, popsr.Session, popsr.fp8_utils\n"
        "popsr.bridge.Proof, popsr.prove, popsr.guard.torch, popsr.guard.jax\n"
        "assert not {'torch', 'jax'} & set(sys.modules)\n"
    )


def test_importing_popsr_installs_no_hook() -> None:
    run_python(
        "import sys\n"
        "def hooks():\n"
        "    return [*sys.meta_path], [*sys.path_hooks]\n"
        "import numpy, ml_dtypes\n"
        "before = hooks()\n"
        "import popsr, popsr.ops, popsr.addons, popsr.transforms\n"
        "assert hooks() == before\n"
    )


def test_importing_popsr_loads_little() -> None:
    """Nothing joins the import unseen; bench/session/bench_overhead.py has its time."""
    run_python(
        "import sys, numpy, ml_dtypes\n"
        "before = set(sys.modules)\n"
        "import popsr\n"
        "loaded = set(sys.modules) - before\n"
        "heavy = {'asyncio', 'doctest', 'jax', 'onnx', 'pydoc', 'safetensors', 'torch', 'tqdm', 'unittest'}\n"
        "assert not heavy & loaded, heavy & loaded\n"
        "ours = {name for name in loaded if name.startswith('popsr.') and 'popsr._core.' not in name}\n"
        "assert len(ours) <= 70, len(ours)\n"
        "assert not any(name.startswith('popsr.ops.') for name in ours)\n"
        "assert len(loaded - ours) <= 42, loaded - ours\n"
    )
