"""Sessions of developers and CI: `nox` alone runs the tests, the C++ tests and the linters.

In CI it also runs the mutants, the sanitizers, the check of includes and the build of the documentation.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.error_on_missing_interpreters = True

PROJECT = nox.project.load_toml("pyproject.toml")
IN_CI = "CI" in os.environ
nox.options.sessions = ["tests", "cpp", *(["mutants", "includes", "asan", "docs"] if IN_CI else []), "lint"]
# C++ tests that run rules and runtimes that are wrong on purpose.
MUTANTS = "*wrong rule*,*wrong on purpose*"
# Python tests that reach the bindings and most of the core, and neither limit memory nor kill processes.
SANITIZED = (
    "tests_py/session/test_equal_inputs.py",
    "tests_py/analysis/test_explain.py",
    "tests_py/ops/test_indexing.py",
    "tests_py/ops/test_ops.py",
    "tests_py/ops/test_reductions.py",
    "tests_py/session/test_session.py",
    "tests_py/sr/test_arrays.py",
    "tests_py/ops/updates/test_var_updates.py",
    "tests_py/ops/views/test_views.py",
)


PRESETS = {p["name"]: p for p in json.loads(Path("CMakePresets.json").read_text())["configurePresets"]}
TOOLS = Path("build/tools")  # a virtual environment: what builds need


def install_popsr(session: nox.Session, *extras: str, preset: str = "default") -> None:
    """Installs the wheel of that preset. Its tree has the C++ tests too: each file is compiled once for both."""
    wheel = build(session, preset)
    session.install(f"{wheel}[{','.join(extras)}]")
    session.install(
        "--force-reinstall", "--no-deps", str(wheel)
    )  # of the same version, in a reused environment


def build(session: nox.Session, preset: str) -> Path:
    """The wheel of that preset, built in `build/<preset>`: only what changed is compiled again.

    What a build requires is in an environment of its own, whose paths stay: pip's isolated builds have new ones
    each time, so they compile everything.
    """
    need_doctest(session)
    python = TOOLS / "bin/python"
    if not python.exists():
        session.run(sys.executable, "-m", "venv", str(TOOLS), external=True)
    pip = (str(python), "-m", "pip", "--disable-pip-version-check")
    requires = [*PROJECT["build-system"]["requires"], *nox.project.dependency_groups(PROJECT, "build")]
    session.run(*pip, "install", "-q", *requires, external=True)
    wheels = Path("build/wheels") / preset
    shutil.rmtree(wheels, ignore_errors=True)
    session.run(
        *(*pip, "wheel", ".", "--no-deps", "--no-build-isolation", "--check-build-dependencies"),
        *("-w", str(wheels), f"-Cbuild-dir=build/{preset}", *preset_settings(preset)),
        env={"PATH": f"{(TOOLS / 'bin').resolve()}{os.pathsep}{os.environ['PATH']}"},
        external=True,
    )
    [wheel] = wheels.glob("*.whl")
    return wheel


def preset_settings(preset: str) -> list[str]:
    """The cache variables of a preset of CMakePresets.json, for the build backend."""
    variables = {}
    name = preset
    while name:
        variables = PRESETS[name]["cacheVariables"] | variables
        name = PRESETS[name].get("inherits")
    kind = variables.pop("CMAKE_BUILD_TYPE")
    return [
        f"-Ccmake.build-type={kind}",
        *(f"-Ccmake.define.{key}={value}" for key, value in variables.items()),
    ]


def install_group(session: nox.Session, group: str) -> None:
    session.install(*nox.project.dependency_groups(PROJECT, group))


@nox.session
def tests(session: nox.Session) -> None:
    """The Python tests, in a process for each core; with README.md's code. In CI beside PyTorch and JAX."""
    install_popsr(session, "test", "examples", *(["peers"] if IN_CI else []))
    session.run("pytest", "-n", "auto", "-m", "not slow", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """The tests that take more than a few seconds: Python's, and C++ sweeps over 16-bit numbers."""
    install_popsr(session, "test", "examples")
    session.run("pytest", "-m", "slow", *session.posargs)
    if not session.posargs:
        run_cpp_tests(session, "default", "--no-skip", "--test-case=*slow:*")


@nox.session(venv_backend="none")
def cpp(session: nox.Session) -> None:
    """The C++ tests, of the tree that makes the wheel."""
    build(session, "default")
    run_cpp_tests(session, "default")


@nox.session(venv_backend="none")
def mutants(session: nox.Session) -> None:
    """Tests of the tests: every wrong rule of the analysis and every wrong runtime is found."""
    build(session, "default")
    run_cpp_tests(session, "default", f"--test-case={MUTANTS}")


@nox.session
def asan(session: nox.Session) -> None:
    """The C++ tests and some Python tests under address and undefined-behaviour sanitizers, of one tree."""
    install_popsr(session, "test", preset="asan-ubsan")
    run_cpp_tests(session, "asan-ubsan")
    runtime = session.run("g++", "-print-file-name=libasan.so", external=True, silent=True).strip()
    stdcpp = session.run("g++", "-print-file-name=libstdc++.so", external=True, silent=True).strip()
    env = {
        "LD_PRELOAD": f"{runtime} {stdcpp}",
        # The interpreter frees little at its end. Tests of refused memory need malloc to return NULL.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "PYTHONMALLOC": "malloc",
    }
    # Reports go to the file descriptor, and the process ends: pytest must not keep them.
    tests = session.posargs or SANITIZED
    session.run("pytest", "-q", "-n", "auto", "--capture=sys", "-m", "not slow", *tests, env=env)


@nox.session(venv_backend="none")
def includes(session: nox.Session) -> None:
    """Checks each C++ file alone, without precompiled headers: it includes what it needs."""
    build(session, "default")
    compile_alone(session, "cpp")


@nox.session(venv_backend="none")
def dev(session: nox.Session) -> None:
    """Makes `.venv` an editable install that rebuilds itself when popsr is imported."""
    python = Path(".venv/bin/python")
    if not python.exists():
        session.run(sys.executable, "-m", "venv", ".venv")
    pip = (str(python), "-m", "pip", "--disable-pip-version-check", "install")
    requires = [*PROJECT["build-system"]["requires"], *nox.project.dependency_groups(PROJECT, "build")]
    session.run(*pip, *requires)
    settings = ("editable.rebuild=true", "build-dir=build/editable", "cmake.define.POPSR_CCACHE=ON")
    session.run(*pip, "--no-build-isolation", *(f"-C{s}" for s in settings), "-e", ".[test]")


def run_cpp_tests(session: nox.Session, preset: str, *options: str) -> None:
    output = session.run(f"build/{preset}/lib/popsr_tests", *options, external=True, silent=True)
    print(output)
    ran = re.search(r"\[doctest\] test cases:\s+(\d+)", output)
    if not ran or int(ran[1]) == 0:
        session.error("the C++ test program ran no test")


def compile_alone(session: nox.Session, folder: str) -> None:
    """Checks the syntax of the files below that folder, by the commands of a tree of single files."""
    tree = Path("build/alone")
    python = TOOLS / "bin/python"
    purelib = session.run(
        str(python),
        "-c",
        "import sysconfig; print(sysconfig.get_path('purelib'))",
        external=True,
        silent=True,
    ).strip()
    session.run(
        *(
            str(TOOLS / "bin/cmake"),
            "--fresh",
            "-G",
            "Ninja",
            "-S",
            ".",
            "-B",
            str(tree),
            "-DPOPSR_WERROR=ON",
        ),
        *("-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON", f"-DCMAKE_PREFIX_PATH={purelib};{purelib}/pybind11"),
        *(
            f"-DPython_EXECUTABLE={python.absolute()}",
            f"-DCMAKE_MAKE_PROGRAM={(TOOLS / 'bin/ninja').resolve()}",
        ),
        external=True,
    )
    commands = [
        command["command"]
        for command in json.loads((tree / "compile_commands.json").read_text())
        if Path(command["file"]).is_relative_to(Path(folder).resolve())
        and not re.search("popsr_kernels_v[24]", command["command"])  # the files of v3
    ]
    if not commands:
        session.error("no file to compile")

    def failure(command: str) -> str:
        result = subprocess.run(
            f"{command} -O0 -fsyntax-only", shell=True, cwd=tree, capture_output=True, text=True
        )
        return result.stderr if result.returncode else ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = [text for text in pool.map(failure, commands) if text]
    print(f"{len(commands)} files, each alone", *failures, sep="\n")
    if failures:
        session.error(f"{len(failures)} files do not include what they need")


def need_doctest(session: nox.Session) -> None:
    """Doctest comes from Debian: no Python package has it."""
    if any(Path(prefix, "include/doctest/doctest.h").exists() for prefix in ("/usr", "/usr/local")):
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        session.error("the C++ tests need doctest; on Debian: sudo apt-get install doctest-dev")
    session.run("apt-get", "update", "-q", external=True)
    session.run("apt-get", "install", "-y", "-q", "doctest-dev", external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Formatters, linters and types. `nox -s lint -- fix` mends what can be mended."""
    install_group(session, "lint")
    install_group(session, "types")
    session.install(*PROJECT["project"]["dependencies"])
    folders = ("cpp", "tests_cpp", "bench")
    cpp_files = [
        str(f) for d in folders for f in sorted(Path(d).rglob("*.[ch]*")) if f.suffix in (".h", ".cpp")
    ]
    if session.posargs == ["fix"]:
        session.run("ruff", "check", "--fix", ".")
        session.run("ruff", "format", ".")
        session.run("clang-format", "-i", *cpp_files)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("clang-format", "--dry-run", "-Werror", *cpp_files, silent=True)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation site, in build/docs: every program in it runs, and warnings are errors."""
    install_popsr(session, "test", *(["peers"] if IN_CI else []))
    install_group(session, "docs")
    if not IN_CI:  # there the session `tests` has run them
        session.run("pytest", "-q", "tests_py/repo/test_docs.py", "tests_py/repo/test_docs_site.py")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "build/docs", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """The benchmarks of bench/README.md, beside PyTorch and JAX."""
    install_popsr(session, "bench")
    what = session.posargs or ["bench"]
    session.run("pytest", *what, "--benchmark-columns=min,median,iqr,rounds", "-s")
