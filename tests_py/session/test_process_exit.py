"""A process that ends, and interpreters that popsr does not run in: no hang, no abort."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests_py.support.helpers import run_python

# Each defines `work`, which a daemon thread repeats, and which is inside the core almost all the time.
INSIDE = {
    "run": """
        ir = popsr.Ir()
        with ir.main_graph, popsr.in_sequence():
            w = popsr.variable(np.zeros(1 << 14, np.float32), name="w")
            def body(x: popsr.TensorByRef):
                ops.var_updates.accumulate_(x, x)
            ops.repeat(ir.create_graph(body, w), 10**9, w)
        session = popsr.Session(ir).__enter__()
        work = session.run
    """,
    "checked run": """
        ir = popsr.Ir(replication=2)
        with ir.main_graph, popsr.in_sequence():
            w = popsr.variable(np.zeros(1 << 14, np.float32), name="w")
            def body(x: popsr.TensorByRef):
                ops.var_updates.accumulate_(x, x)
            ops.repeat(ir.create_graph(body, w), 10**9, w)
        session = popsr.Session(ir, check=True).__enter__()
        work = session.run
    """,
    "one long pass": """
        ir = popsr.Ir()
        with ir.main_graph, popsr.in_sequence():
            w = popsr.variable(np.zeros((1200, 1200), np.float32), name="w")
            for _ in range(50):
                ops.var_updates.copy_var_update_(w, w @ w)
        session = popsr.Session(ir).__enter__()
        work = session.run
    """,
    "sr": """
        x = np.ones(1 << 16, np.float32)
        key = popsr.sr.Key(0)
        def work():
            popsr.sr.add(x, x, key=key, out=x)
    """,
    "sr in threads": """
        x = np.ones(1 << 21, np.float32)
        key = popsr.sr.Key(0)
        def work():
            popsr.sr.mul(x, x, key=key, num_threads=2)
    """,
    "adder": """
        x = np.ones(1 << 16, np.float32)
        adder = popsr.StochasticAdder("float32", seed=0)
        def work():
            adder.add(x, x)
    """,
    "reads and writes": """
        ir = popsr.Ir()
        with ir.main_graph, popsr.in_sequence():
            w = popsr.variable(np.zeros(1 << 20, np.float32), name="w")
            ops.var_updates.accumulate_(w, w)
        session = popsr.Session(ir).__enter__()
        data = np.ones(1 << 20, np.float32)
        def work():
            session.write_variable_data(w, data)
            session.run()
            session.get_tensor_data(w)
    """,
    "analysis": """
        ir = popsr.Ir()
        with ir.main_graph, popsr.in_sequence():
            x = popsr.variable(np.zeros(1, np.float32), name="w")
            for _ in range(1000):
                x = x + x
        def work():
            popsr._core.PartitionAnalysis(ir._core, popsr._core.SeedRules())
    """,
    "print callback": """
        class Slow:
            def write(self, text):
                time.sleep(1e-5)
                return len(text)
            def flush(self):
                pass
        sys.stderr = Slow()
        ir = popsr.Ir()
        with ir.main_graph, popsr.in_sequence():
            w = popsr.variable(np.zeros(4, np.float32), name="w")
            def body(x: popsr.TensorByRef):
                ops.print_tensor(x)
            ops.repeat(ir.create_graph(body, w), 10**9, w)
        session = popsr.Session(ir).__enter__()
        work = session.run
    """,
}

# One process after the other would take 30 starts of Python: children of a fork end as processes of their own do.
FORKS = """
import os, sys, threading, time, traceback
import numpy as np
import popsr
from popsr import ops

{body}
def child(delay):
    started = threading.Event()
    def repeat():
        while True:
            started.set()
            work()
    threading.Thread(target=repeat, daemon=True).start()
    started.wait()
    time.sleep(delay)

for i in range({repetitions}):
    pid = os.fork()
    if pid == 0:
        child(0.002 + 0.03 * i / {repetitions})
        break  # and the interpreter ends, which os._exit would not do
    status = os.waitpid(pid, 0)[1]
    if status:
        sys.exit(f"child {{i}} ended with status {{status}}")
"""


@pytest.mark.parametrize(
    "repetitions", [pytest.param(6, id="6 times"), pytest.param(30, id="30 times", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("inside", INSIDE)
def test_daemon_thread_inside_popsr_does_not_disturb_the_exit(inside: str, repetitions: int) -> None:
    code = FORKS.format(body=textwrap.dedent(INSIDE[inside]), repetitions=repetitions)
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_run_that_the_exit_stops_lets_go_of_the_session() -> None:
    """Functions registered with ``atexit`` before popsr run after its hook, and may want the session's lock."""
    out = run_python(
        """if True:
        import atexit
        def save():
            print("saved", session.get_tensor_data(v), flush=True)
        atexit.register(save)
        import threading, time
        import numpy as np
        import popsr
        from popsr import ops
        ir = popsr.Ir()
        with ir.main_graph, popsr.in_sequence():
            v = popsr.variable(np.zeros(1, np.float32), name="v")
            w = popsr.variable(np.zeros(4, np.float32), name="w")
            def body(x: popsr.TensorByRef):
                ops.var_updates.accumulate_(x, x)
            ops.repeat(ir.create_graph(body, w), 10**12, w)
        session = popsr.Session(ir).__enter__()
        threading.Thread(target=session.run, daemon=True).start()
        while not session._state.running:
            time.sleep(0.001)
        """
    )
    assert out == "saved [0.]\n"


def test_exit_hook_called_early_disturbs_nothing_else() -> None:
    out = run_python(
        """if True:
        import atexit, threading
        import numpy as np
        import popsr
        x, key = np.ones(1 << 16, np.float32), popsr.sr.Key(0)
        stop = threading.Event()
        def work():
            while not stop.is_set():
                popsr.sr.add(x, x, key=key)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        atexit._run_exitfuncs()
        popsr.sr.add(x, x, key=key)
        stop.set()
        for thread in threads:
            thread.join()
        print("all ended")
        """
    )
    assert out == "all ended\n"


SUBINTERPRETER = """if True:
    import sys
    if sys.version_info >= (3, 13):
        import _interpreters as interpreters
        create, run = lambda: interpreters.create("legacy"), interpreters.run_string
    else:
        import _xxsubinterpreters as interpreters
        create, run = (lambda: interpreters.create(isolated=False)), interpreters.run_string
    result = run(create(), '''if True:
        try:
            import popsr
        except ImportError as error:
            print(type(error).__name__, error, sep=": ", flush=True)
    ''')
    assert result is None, result
"""


@pytest.mark.parametrize("before", ["", "import popsr", "import numpy"])
def test_subinterpreters_are_refused(before: str) -> None:
    pytest.importorskip("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    assert run_python(f"{before}\n{SUBINTERPRETER}") == (
        "InterpreterError: import popsr: not possible in a subinterpreter, got one, "
        "expected the main interpreter of a process\n"
    )
