"""What developers and CI run: `nox` alone runs the tests, the C++ tests and the linters; in CI the sanitizers too."""

import os
import re
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.error_on_missing_interpreters = True

PROJECT = nox.project.load_toml("pyproject.toml")
IN_CI = "CI" in os.environ
nox.options.sessions = ["tests", "cpp", *(["asan"] if IN_CI else []), "lint"]


def install_popsr(session: nox.Session, *extras: str) -> None:
    """Installs popsr as users get it: a wheel, built in isolation. In CI warnings are errors."""
    strict = ["-Ccmake.define.POPSR_WERROR=ON"] if IN_CI else []
    session.install(f".[{','.join(extras)}]", *strict)


def install_group(session: nox.Session, group: str) -> None:
    session.install(*nox.project.dependency_groups(PROJECT, group))


@nox.session
def tests(session: nox.Session) -> None:
    """The Python tests, with README.md's code and a short run of the demo. In CI beside PyTorch and JAX."""
    install_popsr(session, "test", "examples", *(["peers"] if IN_CI else []))
    session.run("pytest", "-m", "not slow", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """The tests that take more than a few seconds: Python's, and C++ sweeps over 16-bit numbers and mutation tests."""
    install_popsr(session, "test", "examples")
    session.run("pytest", "-m", "slow", *session.posargs)
    if not session.posargs:
        build_cpp_tests(session, "default")
        session.run("build/default/lib/popsr_tests", "--no-skip", "--test-case=*slow:*", external=True)


@nox.session
def cpp(session: nox.Session) -> None:
    """The C++ tests, from the preset `default`."""
    run_cpp_tests(session, "default")


@nox.session
def asan(session: nox.Session) -> None:
    """The C++ tests under address and undefined-behaviour sanitizers."""
    run_cpp_tests(session, "asan-ubsan")


def run_cpp_tests(session: nox.Session, preset: str) -> None:
    build_cpp_tests(session, preset)
    output = session.run("ctest", "--preset", preset, "--verbose", silent=True)
    print(output)
    ran = re.search(r"\[doctest\] test cases:\s+(\d+)", output)
    if not ran or int(ran[1]) == 0:
        session.error("the C++ test program ran no test")


def build_cpp_tests(session: nox.Session, preset: str) -> None:
    need_doctest(session)
    install_group(session, "cpp")
    purelib = session.run(
        "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", silent=True
    ).strip()
    # --fresh: the paths of an earlier environment are not kept.
    session.run("cmake", "--preset", preset, "--fresh", f"-DCMAKE_PREFIX_PATH={purelib}")
    session.run("cmake", "--build", "--preset", preset)


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
def bench(session: nox.Session) -> None:
    """The benchmarks of bench/README.md, beside PyTorch and JAX."""
    install_popsr(session, "bench")
    what = session.posargs or ["bench"]
    if any("analysis" in arg or "explain" in arg or arg == "bench" for arg in what):
        build_cpp_tests(session, "default")
    session.run("pytest", *what, "--benchmark-columns=min,median,iqr,rounds", "-s")
