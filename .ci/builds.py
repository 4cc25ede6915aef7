"""Builds of popsr for noxfile.py: wheels by preset, the C++ tests of the same tree, the check of includes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox

PROJECT = nox.project.load_toml("pyproject.toml")
PRESETS = {p["name"]: p for p in json.loads(Path("CMakePresets.json").read_text())["configurePresets"]}
TOOLS = Path("build/tools")  # a virtual environment: what builds need
# What runs the tests; the rest of the extra `test` are packages that some of them need.
RUNNER = [
    each
    for each in PROJECT["project"]["optional-dependencies"]["test"]
    if each.startswith(("pytest", "hypothesis"))
]
IMPORTED_AS = {
    "scikit-learn": "sklearn",
    "pyyaml": "yaml",
    "ipython": "IPython",
    "dm-haiku": "haiku",
    "orbax-checkpoint": "orbax",
}
_wheels: dict[str, Path] = {}  # by preset: built once for all sessions of a call of nox


def requirements() -> list[str]:
    """Packages that builds need."""
    return [*PROJECT["build-system"]["requires"], *nox.project.dependency_groups(PROJECT, "build")]


def install(session: nox.Session, *packages: str) -> None:
    """Installs packages, whose modules are compiled when they are imported: pip compiles all, most of its time."""
    session.install("--no-compile", *packages)


def install_popsr(session: nox.Session, *extras: str, preset: str = "default") -> None:
    """Installs the wheel of that preset. Its tree has the C++ tests too: each file is compiled once for both."""
    wheel = build(session, preset)
    install(session, f"{wheel}[{','.join(extras)}]" if extras else str(wheel))
    # An environment that is used again may have another build of the same version.
    install(session, "--force-reinstall", "--no-deps", str(wheel))


def build(session: nox.Session, preset: str, **variables: str) -> Path:
    """The wheel of that preset, built in `build/<preset>`: only what changed is compiled again.

    README's first command builds in `build/default` too, and leaves its objects to this. Variables are CMake's, besides
    those of the preset.
    """
    if preset in _wheels:
        return _wheels[preset]
    need_doctest(session)
    python = TOOLS / "bin/python"
    if not python.exists():
        session.run(sys.executable, "-m", "venv", str(TOOLS), external=True)
    pip = (str(python), "-m", "pip", "--disable-pip-version-check")
    session.run(*pip, "install", "-q", "--no-compile", *requirements(), external=True)
    wheels = Path("build/wheels") / preset
    shutil.rmtree(wheels, ignore_errors=True)
    session.run(
        *(*pip, "wheel", ".", "--no-deps", "--no-build-isolation", "--check-build-dependencies"),
        *(
            "-w",
            str(wheels),
            f"--config-settings=build-dir=build/{preset}",
            *preset_settings(preset, variables),
        ),
        env={"PATH": f"{(TOOLS / 'bin').resolve()}{os.pathsep}{os.environ['PATH']}"},
        external=True,
    )
    [_wheels[preset]] = wheels.glob("*.whl")
    return _wheels[preset]


def preset_settings(preset: str, variables: dict[str, str]) -> list[str]:
    """The cache variables of a preset of CMakePresets.json and others, for the build backend."""
    name = preset
    while name:
        variables = PRESETS[name]["cacheVariables"] | variables
        name = PRESETS[name].get("inherits")
    if "address" in variables.get("POPSR_SANITIZE", ""):  # the tests themselves are not instrumented
        variables["POPSR_TEST_OBJECTS"] = str(Path("build/default").resolve()) if tests_are_built() else ""
    kind = variables.pop("CMAKE_BUILD_TYPE")
    return [
        f"--config-settings=cmake.build-type={kind}",
        *(f"--config-settings=cmake.define.{key}={value}" for key, value in variables.items()),
    ]


def tests_are_built() -> bool:
    """True if the tree `default` has the C++ tests of these sources: a fifth of what sanitizers compile."""
    program = Path("build/default/lib/popsr_tests")
    files = (file for folder in ("cpp", "tests_cpp") for file in Path(folder).rglob("*.*"))
    sources = [Path("CMakeLists.txt"), *files]
    return program.exists() and max(each.stat().st_mtime for each in sources) < program.stat().st_mtime


def install_groups(session: nox.Session, *groups: str) -> None:
    """The packages of dependency groups of pyproject.toml."""
    install(session, *nox.project.dependency_groups(PROJECT, *groups))


def packages(*extras: str, groups: tuple[str, ...] = ()) -> list[str]:
    """Names by which programs import what those extras, and groups, of pyproject.toml install, without the runner."""
    optional = PROJECT["project"]["optional-dependencies"]
    wanted = [*(each for extra in extras for each in optional[extra])]
    wanted += nox.project.dependency_groups(PROJECT, *groups) if groups else []
    names = dict.fromkeys(re.split(r"[^\w-]", each, maxsplit=1)[0] for each in wanted if each not in RUNNER)
    return [IMPORTED_AS.get(name, name.replace("-", "_")) for name in names]


def run_cpp_tests(
    session: nox.Session, preset: str, *options: str, env: dict[str, str] | None = None
) -> None:
    """The C++ tests of a preset's tree; fails if none ran."""
    output = session.run(f"build/{preset}/lib/popsr_tests", *options, external=True, silent=True, env=env)
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
