"""Sessions of developers and CI: `nox` alone runs the tests, the C++ tests and the linters, everywhere the same ones.

Nothing here depends on the environment. `.ci/run` calls `nox`, then the sessions that only CI needs by their names.
CONTRIBUTING.md says when to run which.
"""

import shlex
import shutil
import sys
from pathlib import Path

import nox

sys.path.insert(0, str(Path(".ci").resolve()))
import builds
from builds import build, install, install_groups, install_popsr, run_cpp_tests

nox.needs_version = ">=2024.4.15"
nox.options.error_on_missing_interpreters = True

nox.options.sessions = ["tests", "cpp", "lint"]
# The extras, and the groups, of the Python tests.
TESTED, TOOLS = ("test", "examples", "mpi"), ("mpi", "lint")  # mypy, for tests_py/repo/test_types.py
# The oldest version of each package that popsr needs, and of each peer that the bridge reads, with what its tests need
# of that time, and tests. The index has this torch with its libraries for GPUs alone, some gigabytes, so that CI does
# not run the session.
OLDEST = {
    "numpy": ("numpy==1.26.*", "ml-dtypes==0.5.1"),
    "jax": ("jax==0.5.0", "jaxlib==0.5.0", "optax==0.2.4"),
    "torch": ("torch==2.6.0",),
}
OLDEST_RUNS = (
    "tests_py/arrays",
    "tests_py/session/test_session.py",
    "tests_py/sr/test_arrays.py",
    "tests_py/bridge/jax/compiled/test_shardings.py",
    "tests_py/bridge/jax/effects/test_contracts.py",
    "tests_py/bridge/jax/effects/test_refs.py",
    "tests_py/bridge/jax/test_changes.py",
    "tests_py/bridge/jax/test_errors.py",
    "tests_py/bridge/jax/test_gaps.py",
    "tests_py/bridge/jax/test_indices.py",
    "tests_py/bridge/jax/test_loops.py",
    "tests_py/bridge/jax/test_mesh.py",
    "tests_py/bridge/jax/test_rows.py",
    "tests_py/bridge/jax/test_steps.py",
    "tests_py/bridge/jax/test_trip_counts.py",
    "tests_py/bridge/torch/training/test_architectures.py",
    "tests_py/bridge/torch/across_ranks/test_async.py",
    "tests_py/bridge/torch/across_ranks/test_collectives.py",
    "tests_py/bridge/torch/test_errors.py",
    "tests_py/bridge/torch/draws/test_generators.py",
    "tests_py/bridge/torch/graphs/test_graphs.py",
    "tests_py/bridge/torch/across_ranks/test_pending.py",
    "tests_py/bridge/torch/draws/test_random.py",
    "tests_py/bridge/torch/across_ranks/test_rank_arguments.py",
    "tests_py/bridge/torch/across_ranks/test_rank_operands.py",
    "tests_py/bridge/torch/traced/test_second_step.py",
    "tests_py/bridge/torch/traced/test_steps.py",
    "tests_py/bridge/torch/traced/test_storage.py",
    "tests_py/bridge/torch/traced/test_uninitialised.py",
    "tests_py/bridge/torch/wrappers/test_ddp.py",
)
# Tests that ran in the last whole session `tests`, by file where all of it did, else by name; `peers` runs the others.
RAN = "build/tests/ran.txt"
# C++ tests that run rules and runtimes that are wrong on purpose.
MUTANTS = "*wrong rule*,*wrong on purpose*"
# Python tests that reach the bindings and most of the core, and neither limit memory nor kill processes.
SANITIZED = (
    "tests_py/session/replicas/test_equal_inputs.py",
    "tests_py/analysis/test_explain.py",
    "tests_py/ops/test_indexing.py",
    "tests_py/ops/test_ops.py",
    "tests_py/ops/test_reductions.py",
    "tests_py/session/test_session.py",
    "tests_py/sr/test_arrays.py",
    "tests_py/ops/updates/test_var_updates.py",
    "tests_py/ops/views/test_views.py",
)
# A C++ test that the thread sanitizer cannot run: its stacks are fuller.
NOT_UNDER_TSAN = "deep stack: what fits*"
# Python tests that run many threads: the pool of workers, sessions of several threads, calls of popsr.sr.
THREADED = (
    "tests_py/session/test_gil.py",
    "tests_py/session/test_determinism.py",
    "tests_py/session/test_session.py",
    "tests_py/sr/test_determinism.py",
    "tests_py/ops/test_reductions.py",
)
# Python tests whose branches of the core are counted.
COUNTED = (
    "tests_py/analysis",
    "tests_py/ops",
    "tests_py/program",
    "tests_py/session",
    "tests_py/repo/test_hostile_calls.py",
    "tests_py/sr/test_adamw.py",
    "tests_py/sr/test_arrays.py",
    "tests_py/sr/test_bad_input.py",
    "tests_py/sr/test_keys.py",
    "tests_py/sr/test_sum.py",
)
# Branches that count: one of a template counts once, whichever of its instances runs it. Exceptions, unreachable code
# and comparisons that the compiler writes do not count.
COUNTS = (
    "--merge-lines",
    "--exclude-throw-branches",
    "--exclude-unreachable-branches",
    "--exclude-lines-by-pattern=.*= default;",
)


def run_tests(session: nox.Session, *options: str) -> None:
    """The Python tests in a process for each core, without those that the session `slow` runs.

    A worker takes tests that follow each other: what files make once, ranks and imports are made in one process. The
    tests that take most processor time are printed.
    """
    command = ("pytest", "-n", "auto", "--dist=worksteal", "--cpu-times", "-m", "not slow")
    # PyTorch's and NumPy's threads would share these cores.
    session.run(*command, *options, *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def tests(session: nox.Session) -> None:
    """The Python tests, with README.md's code; those that need PyTorch or JAX are left to the session `peers`."""
    install_popsr(session, *TESTED)
    install_groups(session, *TOOLS)
    lacks = f"--lacks={','.join(builds.packages('peers'))}"
    run_tests(session, lacks, *([] if session.posargs else [f"--ran={RAN}"]))


@nox.session
def peers(session: nox.Session) -> None:
    """The Python tests that `tests` has not run, all if it has not run, beside PyTorch and JAX, and then the site.

    Notebooks of the site need the same packages, whose installation takes long. Tests that are named run alone.
    """
    install_popsr(session, *TESTED, "peers")
    install_groups(session, *TOOLS)
    run_tests(session, "--lacks=", *([] if session.posargs else [f"--beside={RAN}"]))
    if not session.posargs:
        build_site(session)


@nox.session
def bare(session: nox.Session) -> None:
    """The Python tests without optional packages, of which those run that a package can make a difference to.

    These are in files that have the name of a package which the session `tests` installs, themselves or through what
    they import of the tests; other files are not read. Each skip says which package is missing.
    """
    install_popsr(session)
    install(session, *builds.RUNNER)
    run_tests(session, "--lacks=any", f"--mentioning={','.join(builds.packages(*TESTED, groups=TOOLS))}")


@nox.session
def oldest(session: nox.Session) -> None:
    """Tests of arrays and of the bridge with the oldest versions that popsr takes; other sessions have the newest."""
    install_popsr(session, *TESTED)
    install_groups(session, *TOOLS)
    install(session, *(each for needed in OLDEST.values() for each in needed))
    run_tests(session, "--lacks=any", *OLDEST_RUNS)


@nox.session
def isa(session: nox.Session) -> None:
    """All Python and C++ tests with the kernels of the lowest instruction-set level, x86-64-v2."""
    install_popsr(session, "test", "examples")
    env = {"POPSR_ISA": "v2"}
    session.run("pytest", "-n", "auto", "-m", "not slow", *session.posargs, env=env)
    run_cpp_tests(session, "default", env=env)


@nox.session
def slow(session: nox.Session) -> None:
    """The nightly set: Python tests with the mark `slow`, rows that shares leave out, C++ sweeps over all numbers."""
    install_popsr(session, *TESTED, "peers")
    install_groups(session, "mpi")
    run_tests(session, "-m", "slow")  # the last -m counts
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
    # The interpreter frees little at its end. Tests of refused memory need malloc to return NULL.
    options = {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"}
    # The mutants' own session runs what searches for wrong rules.
    sanitized(session, "asan-ubsan", "libasan.so", options, SANITIZED, f"--test-case-exclude={MUTANTS}")


@nox.session
def tsan(session: nox.Session) -> None:
    """The C++ tests, and Python tests of many threads, under the thread sanitizer."""
    # NumPy and Python are not instrumented: only races between popsr's own accesses count.
    options = {"TSAN_OPTIONS": "ignore_noninstrumented_modules=1:halt_on_error=1:die_after_fork=0"}
    sanitized(session, "tsan", "libtsan.so", options, THREADED, f"--test-case-exclude={NOT_UNDER_TSAN}")


def sanitized(
    session: nox.Session,
    preset: str,
    library: str,
    options: dict[str, str],
    tests: tuple[str, ...],
    *of_cpp: str,
) -> None:
    """The C++ tests and Python tests of a preset with a sanitizer."""
    install_popsr(session, preset=preset)
    install(session, *builds.RUNNER)
    run_cpp_tests(session, preset, *of_cpp, env=options)
    names = (library, "libstdc++.so")
    paths = [session.run("g++", f"-print-file-name={n}", external=True, silent=True).strip() for n in names]
    env = {"LD_PRELOAD": " ".join(paths), "PYTHONMALLOC": "malloc", **options}
    # Reports go to the file descriptor, and the process ends: pytest must not keep them.
    arguments = ("-q", "-n", "auto", "--capture=sys", "-m", "not slow")
    session.run("pytest", *arguments, *(session.posargs or tests), env=env)


@nox.session
def coverage(session: nox.Session) -> None:
    """Branches of the core and of the package that tests run: a table by folder, with goals."""
    install(session, "coverage>=7.10", "gcovr>=8", "pytest-cov>=7")
    # The package: all Python tests, with the core as it is delivered: without optimisation the suite takes too long.
    install_popsr(session, "test", "examples")
    Path("build/coverage").mkdir(parents=True, exist_ok=True)
    report = "--cov-report=json:build/coverage/python.json"
    session.run("pytest", "-q", "-n", "auto", "-m", "not slow", "--cov=popsr", "--cov-branch", report)
    # The core: the C++ tests, and the Python tests that are closest to it.
    install_popsr(session, "test", "examples", preset="coverage")
    for file in Path("build/coverage").rglob("*.gcda"):
        file.unlink()
    run_cpp_tests(session, "coverage")
    counted = ("pytest", "-q", "-n", "auto", "-m", "not slow", *(session.posargs or COUNTED))
    session.run(*counted, success_codes=(0, 1))  # tests that promise a time fail without optimisation
    session.run(
        *("gcovr", "--root", "cpp", "--object-directory", "build/coverage", "build/coverage", "-j", "2"),
        *(*COUNTS, "--merge-mode-functions=separate", "--gcov-ignore-parse-errors=all"),
        *("--json-summary", "build/coverage/cpp.json"),
    )
    session.run("python", ".ci/coverage_table.py", "build/coverage/cpp.json", "build/coverage/python.json")


@nox.session
def wheels(session: nox.Session) -> None:
    """The sdist and wheels in dist/: of all Pythons by cibuildwheel where there are containers, else of this one."""
    install_groups(session, "wheels")
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build", "--sdist")
    make_wheels(session)
    session.run("twine", "check", "--strict", *map(str, sorted(Path("dist").iterdir())))


def make_wheels(session: nox.Session) -> None:
    """Wheels in dist/, each tested where it is installed."""
    if shutil.which("docker") or shutil.which("podman"):
        session.run("cibuildwheel", "--platform", "linux", "--output-dir", "dist")
        return
    wheel = build(session, "default", POPSR_LEVELS="all")
    session.run("auditwheel", "show", str(wheel))
    session.run("auditwheel", "repair", "--wheel-dir", "dist", str(wheel))
    [repaired] = Path("dist").glob("*.whl")
    install(session, "--force-reinstall", f"{repaired}[test]")
    session.run(*shlex.split(builds.PROJECT["tool"]["cibuildwheel"]["test-command"]))


@nox.session(venv_backend="none")
def includes(session: nox.Session) -> None:
    """Checks each C++ file alone, without precompiled headers: it includes what it needs."""
    build(session, "default")
    builds.compile_alone(session, "cpp")


@nox.session(venv_backend="none")
def dev(session: nox.Session) -> None:
    """Makes `.venv` an editable install that rebuilds itself when popsr is imported."""
    python = Path(".venv/bin/python")
    if not python.exists():
        session.run(sys.executable, "-m", "venv", ".venv")
    pip = (str(python), "-m", "pip", "--disable-pip-version-check", "install")
    requires = builds.requirements()
    session.run(*pip, *requires)
    settings = (
        *("editable.rebuild=true", "build-dir=build/editable"),
        *("cmake.define.POPSR_CCACHE=ON", "cmake.define.POPSR_BATCH=16"),  # a change compiles its batch again
    )
    session.run(*pip, "--no-build-isolation", *(f"--config-settings={s}" for s in settings), "-e", ".[test]")


@nox.session
def lint(session: nox.Session) -> None:
    """Formatters, linters, spelling and types. `nox -s lint -- fix` mends what can be mended."""
    install_groups(session, "lint")
    folders = ("cpp", "tests_cpp", "bench")
    cmake_files = [
        "CMakeLists.txt",
        *(str(f) for d in folders for f in sorted(Path(d).rglob("CMakeLists.txt"))),
    ]
    cpp_files = [
        str(f) for d in folders for f in sorted(Path(d).rglob("*.[ch]*")) if f.suffix in (".h", ".cpp")
    ]
    if session.posargs == ["fix"]:
        session.run("ruff", "check", "--fix", ".")
        session.run("ruff", "format", ".")
        session.run("clang-format", "-i", *cpp_files)
        session.run("cmake-format", "-i", *cmake_files)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("codespell")
    session.run("cmake-format", "--check", *cmake_files)
    session.run("clang-format", "--dry-run", "-Werror", *cpp_files, silent=True)
    run_mypy(session)


@nox.session
def typecheck(session: nox.Session) -> None:
    """mypy, strict, over the package, its tests and its examples."""
    install_groups(session, "lint")
    run_mypy(session)


def run_mypy(session: nox.Session) -> None:
    """Runs mypy with the packages whose types it reads."""
    install_groups(session, "types")
    install(session, *builds.PROJECT["project"]["dependencies"])
    session.run("mypy", *session.posargs[: 0 if session.posargs == ["fix"] else None])


@nox.session
def stubs(session: nox.Session) -> None:
    """Writes the types of the compiled core, `python/popsr/_core`, after a change of the bindings."""
    install_popsr(session, "test")
    session.run("python", ".ci/stubs.py")


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation site, in build/docs: its notebooks run, and warnings are errors. The tests run the pages."""
    install_popsr(session, "test", "mpi", "peers")
    install_groups(session, "mpi")
    build_site(session)


def build_site(session: nox.Session) -> None:
    """The documentation site, with an environment that has what the notebooks import."""
    install_groups(session, "docs")
    options = ("-W", "--keep-going", "-j", "auto", "-b", "html")
    session.run("sphinx-build", *options, "docs", "build/docs", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """The benchmarks, beside PyTorch and JAX; writes the tables of bench/README.md."""
    install_popsr(session, "bench")
    what = session.posargs or ["bench"]
    session.run("pytest", *what, "--benchmark-columns=min,median,iqr,rounds", "-s")
    session.run("python", "-m", "bench.tables")
