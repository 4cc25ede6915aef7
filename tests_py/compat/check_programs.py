"""Programs that are spelled in many ways, and what ``check`` finds in each."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """Files by name, the first is given to ``check``; findings as "file:line:column kind text; suggestion"."""

    files: dict[str, str]
    expected: tuple[str, ...] = ()


def _program(text: str, *expected: str, files: dict[str, str] | None = None) -> Case:
    """``main.py`` and other files; findings without a file are of ``main.py``."""
    texts = {"main.py": text} | (files or {})
    found = tuple(f"main.py:{each}" if each[0].isdigit() else each for each in expected)
    return Case({name: textwrap.dedent(each).removeprefix("\n") for name, each in texts.items()}, found)


def _default(place: str, field: str, made_of: str) -> str:
    return (
        f"{place} dataclass field {field} of C defaults to an instance of {made_of}, which Python 3.11 refuses: "
        "python -m popsr run and popsr.compat.install() let it default to a copy"
    )


CASES = {
    # Modules and their names
    "an alias of a family of ops": _program(
        """
        from popxl import ops as pops
        pops.softmaxx(1)
        pops.softmax
        """,
        "2:6 name no popxl.ops.softmaxx; 'softmax'",
    ),
    "a module below, by its path": _program(
        """
        import popxl
        import popxl.ops.collectives
        popxl.ops.collectives.replicated_all_reduc(1)
        """,
        "3:23 name no popxl.ops.collectives.replicated_all_reduc; 'replicated_all_reduce' or 'replicated_all_reduce_'",
    ),
    "a star import": _program(
        """
        from popxl.ops import *
        add, relu, gelluu, print, __name__
        """,
        "2:12 name no popxl.ops.gelluu; 'gelu' or 'gelu_'",
    ),
    "a module with a typing error": _program(
        """
        import popxl.transfroms
        """,
        "1:8 module no module popxl.transfroms; 'transforms'",
    ),
    "by importlib": _program(
        """
        import importlib
        ops = importlib.import_module('popxl.ops')
        ops.nopee_q
        importlib.import_module('popxl.gone')
        importlib.import_module(str())
        """,
        "3:5 name no popxl.ops.nopee_q",
        "4:25 module no module popxl.gone",
    ),
    "a chain over lines": _program(
        """
        import popxl
        x = (popxl
             .ops
             .nopee_q)
        """,
        "4:7 name no popxl.ops.nopee_q",
    ),
    "behind letters of two bytes": _program(
        """
        import popxl
        é = 'ü'; popxl.nopee_q
        """,
        "2:16 name no popxl.nopee_q",
    ),
    # Guards
    "an import that may fail in any way": _program(
        """
        try:
          import popxl.gone, poptorch, imp_q
        except Exception:
          pass
        try:
          import poptorch
        except:
          poptorch = None
        import contextlib
        with contextlib.suppress(ModuleNotFoundError):
          import popxl.gone2
        poptorch.x
        """,
    ),
    "errors that a test expects": _program(
        """
        import popxl, pytest
        with pytest.raises(AttributeError):
          popxl.nopee_q
        with pytest.raises((ValueError, TypeError)):
          popxl.Ir(nopee_q=3)
        popxl.nopee_r
        """,
        "6:7 name no popxl.nopee_r",
    ),
    "for type checkers": _program(
        """
        import typing as t
        import popxl
        if t.TYPE_CHECKING:
          from popxl.gone import X
          import poptorch
        if not t.TYPE_CHECKING:
          popxl.nopee_q
        else:
          from popxl.gone import Y
        """,
        "7:9 name no popxl.nopee_q",
    ),
    "for other versions of Python": _program(
        """
        import sys
        if sys.version_info < (3, 9):
          import poptorch
          import popxl.gone
        if sys.version_info[0] == 2:
          import poptorch
        elif sys.version_info[:2] >= (3, 8):
          import popxl
        else:
          popxl = None
        x = popxl.nopee_q if sys.version_info.major > 2 else popxl.nopee_r
        """,
        "11:11 name no popxl.nopee_q",
    ),
    "an import under a condition": _program(
        """
        import os, popxl
        if os.environ.get('X'):
          from popxl import ops
        else:
          ops = None
        ops.nopee_q
        def f():
          import popxl.ops as o
          return o.nopee_q
        """,
        "9:12 name no popxl.ops.nopee_q",
    ),
    "what is asked for first": _program(
        """
        import popxl, numpy as np
        if hasattr(popxl, 'nopee_q'):
          popxl.nopee_q
        if not hasattr(np, 'float_'):
          np.float_ = float
        x = np.float_
        getattr(popxl, 'nopee_r', None)
        """,
    ),
    "an object that is tested": _program(
        """
        import popxl
        def f(x):
          if isinstance(x, dict):
            return x.nopee_q
          return x.shape
        f(popxl.constant(1))
        g = popxl.Ir()
        if type(g) is dict:
          g.nopee_q
        """,
    ),
    "annotations that are never evaluated": _program(
        """
        from __future__ import annotations
        import popxl
        from popxl import ops
        def f(x: popxl.nopee_q, *y: popxl.nopee_q) -> popxl.nopee_q:
            z: popxl.nopee_q = popxl.nopee_r
        a: popxl.nopee_q
        """,
        "5:30 name no popxl.nopee_r",
    ),
    "annotations of variables in functions": _program(
        """
        import popxl
        def f():
            z: popxl.nopee_q = 3
        """,
    ),
    # Through functions and objects of the program
    "options in a helper": _program(
        """
        import popxl
        def configure(opts, fast=False):
          opts.enableStochasticRoundin = fast
        def main():
          ir = popxl.Ir()
          session_options = ir._pb_ir.getSessionOptions()
          configure(session_options)
          configure(opts=session_options, fast=True)
        main()
        """,
        "3:8 option no option enableStochasticRoundin; 'enableStochasticRounding' or 'enable_stochastic_rounding'",
    ),
    "a helper that gets several things": _program(
        """
        import popxl
        def f(x):
          x.nopee_q
        f(popxl.Ir())
        f(popxl)
        def g(*a, **k):
          a.nopee_q
        g(popxl)
        def h(x):
          x.nopee_q
        h(*[popxl])
        """,
    ),
    "a parameter with a default": _program(
        """
        import popxl
        def f(ir=None, n=3):
          ir.nopee_q, n.x
        f()
        f(popxl.Ir(), n=popxl)
        """,
        "3:6 name no popxl.Ir.nopee_q",
    ),
    "an attribute of self": _program(
        """
        import popxl
        class Trainer:
          def __init__(self, n):
            self.ir = popxl.Ir(n)
            self.graph = self.ir.main_graph
            self.session = None
          def run(self):
            self.session = popxl.Session(self.ir, 'ipu_hw')
            self.ir.num_host_transfer = 4
            self.graph.nopee_q
            self.session.runn()
        Trainer(2).run()
        t = Trainer(3)
        t.session.runm()
        t.nothing.nopee_q
        """,
        "10:16 name no popxl.Graph.nopee_q",
        "11:18 name no popxl.Session.runn; 'run'",
        "14:11 name no popxl.Session.runm; 'run'",
    ),
    "an attribute that several set": _program(
        """
        import popxl
        class A:
          def __init__(self):
            self.x = popxl.Ir()
            self.y = popxl.Ir()
          def run(self):
            self.x.nopee_q, self.y.nopee_q, self.z.nopee_q
        class B(A):
          z = popxl.Ir()
          def __init__(self):
            self.x = self.z.nopee_r
        def outside(thing):
          thing.y = 3
        """,
        "11:21 name no popxl.Ir.nopee_r",
    ),
    "an attribute of a data class": _program(
        """
        import popxl
        from dataclasses import dataclass, field
        from typing import Optional
        @dataclass
        class Net:
          ir: popxl.Ir
          graph: Optional[popxl.Graph] = None
          t: 'popxl.Tensor' = field(default=None)
          s: popxl.Session | None = None
        def f(n: Net):
          n.ir.nopee_q
          n.graph.nopee_q
          n.t.nopee_q
          n.s.nopee_q
          n.nopee_q
        """,
        "11:8 name no popxl.Ir.nopee_q",
        "12:11 name no popxl.Graph.nopee_q",
        "13:7 name no popxl.Tensor.nopee_q",
        "14:7 name no popxl.Session.nopee_q",
    ),
    "what functions of the program return": _program(
        """
        import popxl
        from contextlib import contextmanager
        def make():
          ir = popxl.Ir()
          return ir, ir.main_graph
        def either(x):
          if x:
            return None
          return popxl.Ir()
        def unsure(x):
          return popxl.Ir() if x else 3
        @contextmanager
        def managed():
          yield popxl.Ir()
        def annotated() -> popxl.Graph:
          return eval('x')
        ir, graph = make()
        ir.nopee_q
        graph.nopee_q
        either(1).nopee_q
        unsure(1).nopee_q
        make()[0].nopee_q
        with managed() as m:
          m.nopee_q
        annotated().nopee_q
        """,
        "18:4 name no popxl.Ir.nopee_q",
        "19:7 name no popxl.Graph.nopee_q",
        "20:11 name no popxl.Ir.nopee_q",
        "24:5 name no popxl.Ir.nopee_q",
        "25:13 name no popxl.Graph.nopee_q",
    ),
    "decorators": _program(
        """
        import functools, popxl
        def twice(f):
          return f
        @twice
        def f():
          return popxl.Ir()
        @functools.lru_cache(None)
        def g():
          return popxl.Ir()
        @popxl.in_sequence()
        def h():
          return popxl.Ir()
        class A:
          @property
          def ir(self):
            return popxl.Ir()
          @ir.setter
          def ir(self, x): pass
          @staticmethod
          def s():
            return popxl.Ir()
          @classmethod
          def c(cls, x):
            return cls.s(), x.nopee_q
        f().nopee_q
        g().nopee_q
        h().nopee_q
        A().ir.nopee_q
        A.s().nopee_q
        A.c(popxl.Ir())
        @twice
        class B: pass
        B().x
        """,
        "24:23 name no popxl.Ir.nopee_q",
        "26:5 name no popxl.Ir.nopee_q",
        "28:8 name no popxl.Ir.nopee_q",
        "29:7 name no popxl.Ir.nopee_q",
    ),
    "methods that subclasses replace": _program(
        """
        import popxl
        class A:
          def make(self):
            return popxl.Ir()
          def run(self):
            self.make().nopee_q
        class B(A):
          def make(self):
            return 3
        B().run()
        class C(A): pass
        """,
    ),
    "layers of the program's own": _program(
        """
        import popxl, popxl_addons as addons
        class Net(addons.Module):
          def build(self, x: popxl.Tensor, y):
            w = self.add_variable_input('w', iter, x.dtyp)
            self.mine = self.other + y.z
            return x @ w
        net = Net()
        args, graph = net.create_graph(1)
        net.anything, graph.anything
        """,
        "4:46 name no popxl.Tensor.dtyp; 'dtype'",
    ),
    "nested functions": _program(
        """
        import popxl
        def outer():
          ir = popxl.Ir()
          def inner(g):
            ir.nopee_q, g.nopee_q
          with ir.main_graph as graph:
            inner(graph)
          return inner
        async def a(x: popxl.Ir):
          await x.nopee_q
        f = lambda x, y=popxl.nopee_q: x.nopee_q
        """,
        "5:8 name no popxl.Ir.nopee_q",
        "5:19 name no popxl.Graph.nopee_q",
        "10:11 name no popxl.Ir.nopee_q",
        "11:23 name no popxl.nopee_q",
    ),
    "functions that call themselves": _program(
        """
        import popxl
        def f(x):
          return f(x) if x else g(x)
        def g(y):
          return f(y)
        f(g(f(1))).nopee_q
        class A(A): pass
        A().b.c
        class B:
          def __init__(self):
            self.a = self.b
            self.b = self.a
        B().a.nopee_q
        """,
    ),
    "objects that are annotated as the base class": _program(
        """
        import popxl
        import popxl_addons as addons
        class Net(popxl.Ir):
            size = 3
            def __init__(self):
                self.rate = 2
            def forward(self): pass
        def run(net: popxl.Ir, graph: popxl.Graph):
            net.forward(), net.size, net.rate, graph.nopee_r
        run(Net(), None)
        """,
        "9:46 name no popxl.Graph.nopee_r",
    ),
    # PopART's objects
    "private attributes of unknown objects": _program(
        """
        import popxl
        def f(thing, other):
          thing._pb_ir.getSessionOptions().nopee_q = 1
          other._pb_irr.id
          getattr(thing, '_pb_ir').getSessionOption()
        class Mine:
          def _pb_mine(self): pass
          def g(self, x): x._pb_mine(), x._pb_set
        def h(x):
          x._pb_set = 3
        """,
        "3:36 option no option nopee_q",
        "4:9 name no attribute _pb_irr; '_pb_ir'",
        "5:28 name no popxl.Ir._pb_ir.getSessionOption; 'getSessionOptions' or 'get_session_options'",
    ),
    # Values
    "values that are refused": _program(
        """
        import popxl
        ir = popxl.Ir('popdst')
        popxl.Ir(replication=0), popxl.Ir(2), popxl.Ir(ir)
        popxl.Session(ir, 'ipu_hw'), popxl.Session(ir, device_desc='ipu_hv'), popxl.Session(ir, input())
        o = ir._pb_ir.getSessionOptions()
        o.enableStochasticRounding = 'yes'
        o.enableStochasticRounding = True
        try:
          popxl.Ir(0)
        except ValueError:
          pass
        """,
        "2:15 value refused value: Ir: ",
        "3:22 value refused value: Ir: ",
        "4:60 value refused value: Session: ",
        "6:3 value refused value: options: ",
    ),
    # Imports that fail
    "removed modules and modules of the SDK": _program(
        """
        import binhex
        from formatter import Writer
        import os, symbol as s
        import poptorch, poplar.x
        from gcipuinfo import gcipuinfo
        import tensorflow.python.ipu
        import no_such_q, no_such_q.x
        from no_such_q import y
        """,
        "1:8 removed no module binhex: removed in Python 3.11",
        "2:1 removed no module formatter: removed in Python 3.10",
        "3:12 removed no module symbol: removed in Python 3.10",
        "4:8 sdk no module poptorch: a module of the SDK that popsr does not stand in for",
        "4:18 sdk no module poplar.x: a module of the SDK that popsr does not stand in for",
        "5:1 sdk no module gcipuinfo: a module of the SDK that popsr does not stand in for",
        "6:8 sdk no module tensorflow.python.ipu: a module of the SDK that popsr does not stand in for",
        "7:8 not installed no module no_such_q: not installed here",
    ),
    "libraries and operators of C++": _program(
        """
        import ctypes, os, popart, poprt
        ctypes.cdll.LoadLibrary("build/custom_ops.so")
        popart.load_library("other.so")
        builder = popart.Builder()
        builder.customOp(opName="Cube", opVersion=1, domain="my.ops", inputs=[], attributes={})
        builder.customOp(f(), 1, "my.ops", [], {})
        try:
            ctypes.CDLL("./guarded.so")
        except OSError:
            pass
        ctypes.CDLL("libm.so.6"), ctypes.CDLL(os.path.join("build", "x.so"))
        """,
        "1:28 sdk no module poprt: a module of the SDK that popsr does not stand in for",
        "2:25 library no library build/custom_ops.so: never compiled, and popsr compiles no C++: run --with gives its "
        "operators",
        "3:21 library no library other.so: never compiled, and popsr compiles no C++: run --with gives its operators",
        "5:25 operator operator Cube of my.ops: needs a function of popsr.compat.custom_op, as of run --with",
    ),
    "an operator with a function": _program(
        """
        import popart
        from popsr.compat import custom_op
        @custom_op("my.ops", "Cube", 1)
        def cube(x): return x * x * x
        popart.Builder().customOp("Cube", 1, "my.ops", [], {})
        """
    ),
    "removed names": _program(
        """
        import collections, inspect, numpy as np
        from collections import Mapping, OrderedDict
        collections.Iterable, collections.abc.Iterable, collections.deque
        inspect.getargspec(f)
        np.float, np.float32, np.NaN, np.nan
        from fractions import gcd
        from numpy import object as o
        """,
        "2:25 removed no collections.Mapping; 'collections.abc.Mapping'",
        "3:13 removed no collections.Iterable; 'collections.abc.Iterable'",
        "4:9 removed no inspect.getargspec; 'inspect.getfullargspec'",
        "5:4 removed no numpy.float; 'float'",
        "5:26 removed no numpy.NaN; 'numpy.nan'",
        "6:23 removed no fractions.gcd; 'math.gcd'",
        "7:19 removed no numpy.object; 'object'",
    ),
    "fallbacks for older versions": _program(
        """
        import sys, time, popxl
        try:
            from collections.abc import Mapping
        except ImportError:
            from collections import Mapping
        try:
            clock = time.perf_counter
        except AttributeError:
            clock = time.clock
        if six.PY2:
            import imp_q, popxl.gone
        try:
            popxl.Ir
        except KeyError:
            popxl.nopee_q
        finally:
            popxl.nopee_r
        """,
        "15:11 name no popxl.nopee_q",
        "17:11 name no popxl.nopee_r",
    ),
    "removed names with another way": _program(
        """
        try:
          from collections import Mapping
        except ImportError:
          from collections.abc import Mapping
        import numpy as np
        np.float = float
        np.float
        class np2: pass
        np2.float
        def f(np):
          np.int
        """,
    ),
    "defaults of fields": _program(
        """
        import dataclasses as d
        from dataclasses import dataclass, field, InitVar
        from typing import ClassVar
        @dataclass
        class A:
          n: int = 3
        @dataclass(frozen=True)
        class F:
          n: int = 3
        @d.dataclass(eq=False)
        class E: pass
        class Plain: pass
        class B(A): pass
        SHARED = A()
        @dataclass
        class C:
          a: A = A()
          b: B = field(default=B(), repr=False)
          f: F = F()
          e: E = E()
          p: Plain = Plain()
          s: A = SHARED
          i: InitVar[A] = A()
          v: ClassVar[A] = A()
          w: 'ClassVar[A]' = A()
          g: A = field(default_factory=A)
          no_field = A()
          n: int = 3
        class NotOne:
          a: A = A()
        """,
        _default("17:10", "a", "A"),
        _default("18:10", "b", "B"),
        _default("22:10", "s", "A"),
    ),
    # Modules of the program
    "modules beside the script": _program(
        """
        from tools import make, ops
        import tools as t, pkg.sub
        import pkg.sub as s
        make().nopee_q
        ops.softmaxx
        t.make().nopee_r
        pkg.sub.IR.nopee_q
        s.IR.nopee_r
        t.nothing.nopee_q, pkg.nothing.x
        """,
        "4:8 name no popxl.Ir.nopee_q",
        "5:5 name no popxl.ops.softmaxx; 'softmax'",
        "6:10 name no popxl.Ir.nopee_r",
        "7:12 name no popxl.Ir.nopee_q",
        "8:6 name no popxl.Ir.nopee_r",
        "tools.py:2:13 name no popxl.ops.gone_q",
        "pkg/sub.py:2:4 name no popxl.Ir.nopee_s",
        files={
            "tools.py": """
            from popxl import ops
            wrong = ops.gone_q
            import popxl
            def make():
              return popxl.Ir()
            """,
            "pkg/__init__.py": "",
            "pkg/sub.py": """
            from .deep import IR
            IR.nopee_s
            """,
            "pkg/deep.py": """
            import popxl as p
            from ..pkg import sub
            IR = p.Ir()
            """,
        },
    ),
    "star imports of modules beside the script": _program(
        """
        from names import *
        ir.nopee_q
        _hidden.nopee_q
        help_me()
        undefined_q
        """,
        "2:4 name no popxl.Ir.nopee_q",
        files={
            "names.py": """
            import popxl
            from numpy import *
            ir = popxl.Ir()
            _hidden = ir
            def help_me(): pass
            """,
        },
    ),
    "star imports in a circle": _program(
        """
        from names import *
        ir.x, y.x
        """,
        files={
            "names.py": """
            import popxl
            from main import *
            ir = popxl.Ir()
            """,
        },
    ),
    "classes of modules beside the script": _program(
        """
        from base import Base
        class Net(Base):
          def run(self):
            self.ir.nopee_q
            self.helper(self.ir)
        Net().run()
        """,
        "4:13 name no popxl.Ir.nopee_q",
        "base.py:6:7 name no popxl.Ir.nopee_r",
        files={
            "base.py": """
            import popxl
            class Base:
              def __init__(self):
                self.ir = popxl.Ir()
              def helper(self, x):
                x.nopee_r
            """,
        },
    ),
    "modules that import each other": _program(
        """
        import other
        import popxl
        IR = popxl.Ir()
        other.X.nopee_q
        """,
        "4:9 name no popxl.Ir.nopee_q",
        files={
            "other.py": """
            import main
            X = main.IR
            Y = main.Y
            Y.x
            """,
        },
    ),
    "a module that is set from outside": _program(
        """
        import settings
        settings.ir = None or 3
        settings.ir.nopee_q
        """,
        files={
            "settings.py": """
            import popxl
            ir = popxl.Ir()
            """,
        },
    ),
    "a broken module beside the script": _program(
        """
        import broken, popxl
        broken.x
        popxl.nopee_q
        """,
        "3:7 name no popxl.nopee_q",
        "broken.py:1:7 syntax syntax error: invalid syntax",
        files={
            "broken.py": """
            def f(:
            """,
        },
    ),
    "a module with the name of one of Python's": _program(
        """
        import logging
        logging.getLogger().x
        """,
        files={
            "logging.py": """
            import popxl
            popxl.nopee_q
            """,
        },
    ),
}
