"""``cppimport`` under popsr: C++ files are read, never compiled, and their classes make registered operators."""

from __future__ import annotations

import ctypes
import importlib
import logging
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import popsr
from popsr.compat import _device_libraries, custom_op, install, rotary_ops, uninstall
from popsr.compat._objects import custom_ops
from popsr.compat.popart import load_library
from popsr.errors import (
    ArgumentTypeError,
    AttributeAccessError,
    FileError,
    MissingPackageError,
    UnknownNameError,
)
from tests_py.compat.custom_op_programs import BINDING
from tests_py.support.unchecked import unchecked

MODULES = "// cppimport\n#include <popart/op.hpp>\nPYBIND11_MODULE(m, m) {{\n{}\n}}\n"


@pytest.fixture
def cppimport(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The package with its hook, and the folder of a test on the path."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    install()
    importlib.import_module("cppimport.import_hook")
    yield importlib.import_module("cppimport")
    uninstall()
    for name in set(sys.modules) - before:
        if not name.startswith("popsr"):
            del sys.modules[name]


def _write(folder: Path, name: str, text: str) -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


# Text of the file and of others beside it; classes and functions with their operators.
FILES: dict[str, tuple[dict[str, str], dict[str, str | None]]] = {
    "two operators": (
        {"b.cpp": BINDING},
        {"TurnPairs": "custom.ops.TurnPairs:1", "TurnPairsGrad": "custom.ops.TurnPairsGrad:1"},
    ),
    "one operator, another name": (
        {
            "b.cpp": 'const auto X = popart::OperatorIdentifier("a.b", "Rotate", 2);'.join(
                MODULES.format('py::class_<my::Op, popart::Op>(m, "RotOp").def("createOpInGraph");').split(
                    "#", 1
                )
            )
        },
        {"RotOp": "a.b.Rotate:2"},
    ),
    "a function": (
        {
            "b.cpp": MODULES.format('m.def("createOpInGraph", &create);')
            + 'static OperatorIdentifier id{ "a", "F", 1 };'
        },
        {"createOpInGraph": "a.F:1"},
    ),
    "an included file": (
        {
            "b.cpp": MODULES.format('py::class_<R, popart::Op>(m, "R");').replace(
                "#", '#include "ids.hpp"\n#', 1
            ),
            "ids.hpp": 'namespace Ids { const popart::OperatorIdentifier R = {"a", "R", 1}; }',
        },
        {"R": "a.R:1"},
    ),
    "a source of the configuration": (
        {
            "b.cpp": MODULES.format('py::class_<R, popart::Op>(m, "R");')
            + "/*\n<%\ncfg['sources'] = ['r.cpp', 'gone.cpp']\n%>\n*/",
            "r.cpp": 'const popart::OperatorIdentifier R = {\n  "a",\n  "R",\n  3};',
        },
        {"R": "a.R:3"},
    ),
    "no identifier": ({"b.cpp": MODULES.format('py::class_<R, popart::Op>(m, "R");')}, {"R": None}),
}


@pytest.mark.parametrize("name", FILES)
def test_operators_are_read_from_the_text(name: str, tmp_path: Path, cppimport: ModuleType) -> None:
    files, expected = FILES[name]
    for each, text in files.items():
        _write(tmp_path, each, text)
    module = importlib.import_module("b")
    assert sorted(module.__all__) == sorted(expected)
    assert module.__file__ == str(tmp_path / "b.cpp")
    for each, which in expected.items():
        found = getattr(module, each)
        if isinstance(found, type):
            assert str(unchecked(found).which) == str(which)
        else:
            with popsr.Ir().main_graph as graph, pytest.raises(UnknownNameError, match=f"'{which}'"):
                found(unchecked(graph)._pb_graph, {}, {0: "y"})


def test_modules_are_found_in_packages_and_by_name(tmp_path: Path, cppimport: ModuleType) -> None:
    _write(tmp_path, "package/__init__.py", "from . import turn_pairs_binding as binding")
    file = _write(tmp_path, "package/turn_pairs_binding.cpp", BINDING)
    package = importlib.import_module("package")
    assert package.binding.__name__ == "package.turn_pairs_binding"
    assert cppimport.imp("package.turn_pairs_binding") is package.binding
    assert cppimport.imp_from_filepath(str(file)).TurnPairs.which == package.binding.TurnPairs.which
    assert cppimport.imp_from_filepath(file, "package.turn_pairs_binding") is package.binding


def test_modules_of_python_go_first(tmp_path: Path, cppimport: ModuleType) -> None:
    _write(tmp_path, "turn_pairs_binding.cpp", BINDING)
    _write(tmp_path, "turn_pairs_binding.py", "is_python = True")
    assert importlib.import_module("turn_pairs_binding").is_python


def test_the_hook_ends_with_the_aliases_and_starts_again(tmp_path: Path, cppimport: ModuleType) -> None:
    _write(tmp_path, "binding_a.cpp", BINDING)
    _write(tmp_path, "binding_b.cpp", BINDING)
    finders = list(sys.meta_path)
    uninstall()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("binding_a")
    install()
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("binding_a")  # without the hook
    importlib.import_module("cppimport.import_hook")
    assert importlib.import_module("binding_b").TurnPairs.__name__ == "TurnPairs"
    assert len(sys.meta_path) == len(finders)


def test_an_installed_cppimport_is_shadowed_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requirements of such programs name it."""
    monkeypatch.syspath_prepend(tmp_path)
    _write(tmp_path, "cppimport/__init__.py", "is_real = True")
    real = importlib.import_module("cppimport")
    install()
    try:
        assert importlib.import_module("cppimport") is importlib.import_module("popsr.compat.cppimport")
    finally:
        uninstall()
        found = sys.modules.pop("cppimport")
    assert found is real


def test_other_names_of_the_package(tmp_path: Path, cppimport: ModuleType) -> None:
    file = _write(tmp_path, "binding_c.cpp", BINDING)
    library = cppimport.build_filepath(file)
    assert library.startswith(str(tmp_path / "binding_c."))
    assert not Path(library).exists()
    assert cppimport.build("binding_c") == library
    load_library(library)
    assert isinstance(ctypes.cdll.LoadLibrary(library), _device_libraries.DeviceLibrary)
    cppimport.build_all(tmp_path)
    cppimport.force_rebuild(True)
    cppimport.set_quiet(False)
    assert cppimport.settings["force_rebuild"]
    cppimport.force_rebuild(False)


REFUSED: dict[str, tuple[Callable[[ModuleType, Path], Any], type[Exception], str]] = {
    "no such module": (lambda c, _: c.imp("gone"), ModuleNotFoundError, "got 'gone'"),
    "no such file": (
        lambda c, f: c.imp_from_filepath(f / "gone.cpp"),
        FileError,
        "no such file, got .*gone.cpp",
    ),
    "no name": (lambda c, _: c.imp(3), ArgumentTypeError, "fullname is not a str"),
    "no path": (lambda c, _: c.build_filepath(3), ArgumentTypeError, "not the path of a file"),
    "C++ of another kind": (
        lambda c, f: c.imp_from_filepath(
            _write(f, "plain.cpp", "// cppimport\nPYBIND11_MODULE(plain, m) {}")
        ),
        MissingPackageError,
        "plain.cpp' does not bind an operator of PopART",
    ),
    "too long": (
        lambda c, f: c.imp_from_filepath(_write(f, "long.cpp", "x" * (1 << 20) + "y")),
        FileError,
        "long.cpp' is too long",
    ),
    "a name": (lambda c, _: c.imp("bound").TurnPair, AttributeAccessError, "expected 'TurnPairs'"),
    "a method": (lambda c, _: c.imp("bound").TurnPairs.create, AttributeAccessError, "TurnPairs: .*'create'"),
    "a constructor": (
        lambda c, _: c.imp("bound").TurnPairs(),
        ArgumentTypeError,
        "expected TurnPairs.createOpInGraph",
    ),
    "no graph": (
        lambda c, _: c.imp("bound").TurnPairs.createOpInGraph(3),
        ArgumentTypeError,
        "inputs are missing",
    ),
    "not a graph": (
        lambda c, _: c.imp("bound").TurnPairs.createOpInGraph(3, {}, {}),
        ArgumentTypeError,
        "createOpInGraph: graph is not a",
    ),
    "no identifier": (
        lambda c, f: c.imp_from_filepath(
            _write(f, "none.cpp", MODULES.format('py::class_<R, popart::Op>(m, "R");'))
        ).R.createOpInGraph(3, {}, {}),
        UnknownNameError,
        "none.cpp' does not say which operator it makes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path, cppimport: ModuleType) -> None:
    _write(tmp_path, "bound.cpp", BINDING)
    call, error, match = REFUSED[name]
    with pytest.raises(error, match=match) as caught:
        call(cppimport, tmp_path)
    assert len(str(caught.value)) <= 500


def test_operators_are_objects_of_the_class_that_made_them(tmp_path: Path, cppimport: ModuleType) -> None:
    _write(tmp_path, "rot.cpp", BINDING.replace("TurnPairs", "RotaryPosEmbed"))
    module = importlib.import_module("rot")
    rotary_ops(module.RotaryPosEmbed.which.domain, "neighbours")
    with popsr.Ir().main_graph as graph:
        x, table = popsr.variable([[[[1.0, 2.0]]]], name="x"), popsr.variable([[1.0]], name="table")
        inputs = {0: x.id, 1: table.id, 2: table.id}
        for arguments in ((inputs, {0: "a"}, 2), (inputs, {0: "b"})):
            named = {} if len(arguments) == 3 else {"rotary_dim": 2}
            op = module.RotaryPosEmbed.createOpInGraph(unchecked(graph)._pb_graph, *arguments, **named)
            assert isinstance(op, module.RotaryPosEmbed)
            assert not isinstance(op, module.RotaryPosEmbedGrad)
        op = module.RotaryPosEmbed.createOpInGraph(
            unchecked(graph)._pb_graph, inputs=inputs, outputs={0: "c"}, rotary_dim=2
        )
        assert op.outId(0) == "c"


# Shared objects of operators


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``popart.so`` needs libpopart.so, ``symbols.so`` a function of it, ``other.so`` libother.so, which are gone."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "empty.cpp").write_text("")
    (folder / "symbols.cpp").write_text(
        'namespace popart { void f(); }\nextern "C" void (*table)();\nvoid (*table)() = popart::f;\n'
    )
    for name in ("popart", "other"):
        _compile(compiler, folder, f"lib{name}.so", "empty.cpp")
        _compile(
            compiler, folder, f"{name}.so", "empty.cpp", "-Wl,--no-as-needed", f"-L{folder}", f"-l{name}"
        )
        (folder / f"lib{name}.so").unlink()
    _compile(compiler, folder, "symbols.so", "symbols.cpp", "-Wl,-z,now")
    _compile(compiler, folder, "good.so", "empty.cpp")
    (folder / "broken.so").write_bytes(b"not a shared object at all" * 10)
    return folder


def _compile(compiler: str, folder: Path, output: str, source: str, *flags: str) -> None:
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / output, folder / source, *flags], check=True)


LOADERS = [ctypes.CDLL, ctypes.cdll.LoadLibrary, ctypes.PyDLL]


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("name", ["popart.so", "symbols.so"])
def test_programs_go_on_where_a_library_needs_the_sdk(
    name: str, load: Any, libraries: Path, cppimport: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    library = load(str(libraries / name))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert repr(library).startswith("<DeviceLibrary")
    for use in (lambda: library.printf, lambda: library["printf"]):
        with pytest.raises(AttributeAccessError, match="needs the SDK and is not loaded, got 'printf'"):
            use()
    uninstall()
    with pytest.raises(OSError, match="popart"):
        load(str(libraries / name))
    install()


@pytest.mark.parametrize("name", ["other.so", "broken.so", "gone.so", "libpopart.so"])
def test_other_libraries_fail_as_ever(
    name: str, libraries: Path, cppimport: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(custom_ops, "_entries", {})
    with pytest.raises(OSError, match=r"\.so") as caught:
        ctypes.CDLL(str(libraries / name))
    hints = getattr(caught.value, "__notes__", [])
    assert len(hints) == (not (libraries / name).exists())
    assert all("popsr.compat.custom_op" in hint for hint in hints)


def test_a_library_that_was_never_compiled_is_passed_over(
    libraries: Path, cppimport: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    """Once a function for an operator is registered, by its path; bare names are the system's."""
    custom_op("never.compiled", "Cube", 1)(lambda x: x * x * x)
    assert isinstance(ctypes.cdll.LoadLibrary(str(libraries / "gone.so")), _device_libraries.DeviceLibrary)
    assert "gone.so' is not loaded" in caplog.messages[0]
    for name in ("gone.so", str(libraries / "gone.dll"), str(libraries / "broken.so")):
        with pytest.raises(OSError, match=r"gone|broken"):
            ctypes.CDLL(name)


MACROS: dict[str, str] = {
    "macro": '#define DOMAIN "my.ops"\nconst popart::OperatorIdentifier kCube{DOMAIN, "Cube", 1};',
    "macros": '#define D "my.ops"\n#define NAME "Cube"\n#define V 1\nauto id = popart::OperatorIdentifier(D, NAME, V);',
    "constants": 'constexpr char kD[] = "my.ops";\nstatic const std::string kN{"Cube"};\n'
    "const unsigned kV = 1;\nconst popart::OperatorIdentifier kCube = {kD, kN, kV};",
    "a macro within a text": '#define ops "other"\n#define D "my.ops"\n'
    'const popart::OperatorIdentifier c{D, "Cube", 1};',
}


@pytest.mark.parametrize("name", MACROS)
def test_names_of_operators_that_are_macros(name: str, tmp_path: Path, cppimport: ModuleType) -> None:
    text = f"// cppimport\n#include <popart/op.hpp>\n{MACROS[name]}\n"
    text += 'PYBIND11_MODULE(m, m) { py::class_<CubeOp, popart::Op>(m, "CubeOp"); }\n'
    module = unchecked(cppimport).imp_from_filepath(_write(tmp_path, "macro.cpp", text))
    assert str(module.CubeOp.which) == "my.ops.Cube:1"


def test_a_macro_of_two_meanings_says_nothing(tmp_path: Path, cppimport: ModuleType) -> None:
    text = '// cppimport\n#include <popart/op.hpp>\n#ifdef A\n#define D "a"\n#else\n#define D "b"\n#endif\n'
    text += 'const popart::OperatorIdentifier c{D, "Cube", 1};\n'
    text += 'PYBIND11_MODULE(m, m) { py::class_<CubeOp, popart::Op>(m, "CubeOp"); }\n'
    module = unchecked(cppimport).imp_from_filepath(_write(tmp_path, "two.cpp", text))
    assert module.CubeOp.which is None


def test_libraries_that_can_be_loaded_are(libraries: Path, cppimport: ModuleType) -> None:
    assert type(ctypes.CDLL(str(libraries / "good.so"))) is ctypes.CDLL
    assert unchecked(ctypes.CDLL(None).printf)


def test_load_library_reads_files_and_loads_nothing(
    libraries: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "popsr"):
        for name in ("popart.so", "gone.so"):
            load_library(libraries / name)
    assert [
        "popart.so' is not loaded" in caplog.messages[0],
        "gone.so' does not exist" in caplog.messages[1],
    ] == [
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("path", "error", "match"),
    [
        (3, ArgumentTypeError, "load_library: not the path"),
        ("", ArgumentTypeError, "load_library: not the path"),
        ("broken.so", FileError, "broken.so' is not a shared object, got b'not ', expected ELF"),
        (".", FileError, "Is a directory"),
    ],
)
def test_load_library_refuses_broken_files(
    path: Any, error: type[Exception], match: str, libraries: Path
) -> None:
    with pytest.raises(error, match=match.replace("', expected", "' at its start, expected")):
        load_library(libraries / path if path in ("broken.so", ".") else path)
