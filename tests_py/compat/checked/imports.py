"""Imports that fail, and modules of the program."""

from __future__ import annotations

from tests_py.compat.checked.cases import Case, dataclass_default, program

CASES: dict[str, Case] = {
    # Imports that fail
    "removed modules and modules of the SDK": program(
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
    "libraries and operators of C++": program(
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
    "an operator with a function": program(
        """
        import popart
        from popsr.compat import custom_op
        @custom_op("my.ops", "Cube", 1)
        def cube(x): return x * x * x
        popart.Builder().customOp("Cube", 1, "my.ops", [], {})
        """
    ),
    "removed names": program(
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
    "fallbacks for older versions": program(
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
    "removed names with another way": program(
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
    "defaults of fields": program(
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
        dataclass_default("17:10", "a", "A"),
        dataclass_default("18:10", "b", "B"),
        dataclass_default("22:10", "s", "A"),
    ),
    # Modules of the program
    "modules beside the script": program(
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
    "star imports of modules beside the script": program(
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
    "star imports in a circle": program(
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
    "classes of modules beside the script": program(
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
    "modules that import each other": program(
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
    "a module that is set from outside": program(
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
    "a broken module beside the script": program(
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
    "a module with the name of one of Python's": program(
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
