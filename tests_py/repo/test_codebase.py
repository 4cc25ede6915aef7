"""Rules of the repository itself: who may include whom, sizes, versions, symbols, one home for every fact."""

import importlib.metadata
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import popsr
from tests_py import ROOT

CPP = ROOT / "cpp/popsr"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCES = sorted(
    f
    for folder in ("cpp", "python", "tests_cpp", "tests_py", "bench", "examples")
    for f in (ROOT / folder).rglob("*")
    if f.suffix in {".cpp", ".h", ".py", ".pyi"}
)
MAX_LINES = 800

# Layer: the other layers that its files may include. bindings may include anything.
MAY_INCLUDE = {
    "base": "",
    "replica": "base",
    "kernels": "base",
    "sr": "base kernels",
    "fields": "base",
    "ir": "base replica",
    "exec": "base replica kernels ir",
    "effects": "base replica ir",
    "ops": "base replica ir exec kernels",
    "analysis": "base replica ir effects",
    "transform": "base replica ir effects analysis",
    "runtime": "base replica kernels ir effects exec analysis",
}


def test_layers_include_only_what_lies_below() -> None:
    seen = set()
    for file in CPP.rglob("*.[hc]*"):
        layer = file.relative_to(CPP).parts[0]
        seen.add(layer)
        for included in re.findall(r'#include "popsr/(\w+)/', file.read_text()):
            if layer != "bindings" and included != layer:
                assert included in MAY_INCLUDE[layer].split(), f"{file}: {layer} must not include {included}"
    assert seen == {*MAY_INCLUDE, "bindings"}


def test_includes_start_at_the_source_root() -> None:
    for file in CPP.rglob("*.[hc]*"):
        for included in re.findall(r'#include "([^"]+)"', file.read_text()):
            assert included.startswith("popsr/"), f'{file}: expected "popsr/...", got "{included}"'
            assert (ROOT / "cpp" / included).exists(), f"{file}: there is no {included}"


def test_only_bindings_know_python() -> None:
    for file in (f for f in CPP.rglob("*.[hc]*") if "bindings" not in f.parts):
        assert not re.search(r"#include <(pybind11/|Python\.h)", file.read_text()), f"{file} includes Python"


def names_without_linkage(text: Any) -> Iterator[Any]:
    """Constants, types and functions with their parameters, of the anonymous namespace of a source file."""
    for body in re.findall(r"^namespace \{\n(.*?)^\}  // namespace\n", text, re.MULTILINE | re.DOTALL):
        for line in re.findall(r"^const(?:expr|init)? .*", body, re.MULTILINE):
            yield from re.findall(r"\b(k[A-Z]\w*)(?: =|\{|\[)", line)
        yield from re.findall(r"^(?:struct|class|enum class) (\w+) ", body, re.MULTILINE)
        yield from re.findall(r"^\w[\w:<>*& ]* (\w+\([^;{()]*\)) \{", body, re.MULTILINE)


def compiled_together(file: Any) -> Any:
    """Layer of a file of the core, or folder of a C++ test; for ops, whose files name their attributes, the folder."""
    if not file.is_relative_to(CPP):
        return file.relative_to(ROOT).parts[:2]
    folder = file.relative_to(CPP).parent
    return folder if folder.parts[0] == "ops" else folder.parts[0]


def test_names_without_linkage_are_unique_among_files_that_are_compiled_together() -> None:
    """A build with POPSR_UNITY compiles files of a layer together, those of ops and of tests by folder."""
    files = [ROOT / "CMakeLists.txt", CPP.parent / "CMakeLists.txt", ROOT / "tests_cpp/CMakeLists.txt"]
    text = re.sub("GLOB_RECURSE.*", "", "".join(file.read_text() for file in files))
    alone = re.findall(r"(?:cpp/popsr|tests_cpp)/[^\s)]+\.cpp", text)
    homes: dict[Any, list[str]] = {}
    core = [f for f in CPP.rglob("*.cpp") if "level" not in f.parts]
    for file in [*core, *(ROOT / "tests_cpp").rglob("*.cpp")]:
        if not any(file.match(each) for each in alone):
            for name in set(names_without_linkage(file.read_text())):
                homes.setdefault((compiled_together(file), name), []).append(file.name)
    assert len(homes) > 1000
    assert {home: files for home, files in homes.items() if len(files) > 1} == {}


def test_kernels_instantiate_no_standard_library() -> None:
    """They are compiled with flags of their own; nothing of theirs may be merged with other code."""
    allowed = {"cstddef", "cstdint", "cstring", "climits", "cfloat", "immintrin.h", "cfenv", "emmintrin.h"}
    for file in (CPP / "kernels/level").rglob("*.[hc]*"):
        included = set(re.findall(r"#include <([^>]+)>", file.read_text()))
        assert included <= allowed | {"wmmintrin.h", "smmintrin.h", "arm_neon.h"}, f"{file}: {included}"


@pytest.mark.parametrize(
    "library", sorted(Path(popsr._core.__file__).parent.glob("popsr_kernels_*.so")), ids=lambda p: p.stem
)
def test_kernels_define_no_weak_symbol_and_export_one_function(library: Any) -> None:
    if shutil.which("nm") is None:
        pytest.skip("needs nm (binutils)")
    lines = subprocess.run(
        ["nm", "-C", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    weak = [line for line in lines if line.split()[1] in "wWvVu"]
    # The start-up files of every shared object define this one.
    assert [line for line in weak if not line.endswith(" __cxa_finalize")] == []
    exported = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout.split("\n")
    assert len([line for line in exported if line.strip()]) == 1, exported


def test_no_file_is_longer_than_the_limit(record_property: Any) -> None:
    sizes = {f: f.read_text().count("\n") for f in SOURCES}
    layers: dict[str, int] = {}
    for file, lines in sizes.items():
        parts = file.relative_to(ROOT).parts
        layer = "/".join(parts[: 3 if parts[0] == "cpp" else 1])
        layers[layer] = layers.get(layer, 0) + lines
    for layer, lines in layers.items():
        record_property(layer, lines)
        print(f"{layer:24}{lines:7} lines")
    long = {str(f.relative_to(ROOT)): n for f, n in sizes.items() if n > 500}
    print("longer than 500 lines:", long or "none")
    assert [f for f, n in long.items() if n > MAX_LINES] == []


def test_version_has_one_source() -> None:
    version = PROJECT["project"]["version"]
    assert version == popsr.__version__
    assert version == popsr._core.__version__
    assert version == importlib.metadata.version("popsr")


def test_every_todo_names_an_issue() -> None:
    for file in (f for f in SOURCES if f != Path(__file__)):
        for line in file.read_text().splitlines():
            if "TODO" in line or "FIXME" in line:
                assert re.search(r"(TODO|FIXME)\(#\d+\)", line), f"{file}: {line.strip()}"


def test_module_file_is_a_table_of_contents() -> None:
    assert (CPP / "bindings/module.cpp").read_text().count("\n") <= 60
