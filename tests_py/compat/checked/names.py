"""Names of modules and of what they hold, and what guards them."""

from __future__ import annotations

from tests_py.compat.checked.cases import Case, program

CASES: dict[str, Case] = {
    # Modules and their names
    "an alias of a family of ops": program(
        """
        from popxl import ops as pops
        pops.softmaxx(1)
        pops.softmax
        """,
        "2:6 name no popxl.ops.softmaxx; 'softmax'",
    ),
    "a module below, by its path": program(
        """
        import popxl
        import popxl.ops.collectives
        popxl.ops.collectives.replicated_all_reduc(1)
        """,
        "3:23 name no popxl.ops.collectives.replicated_all_reduc; 'replicated_all_reduce' or 'replicated_all_reduce_'",
    ),
    "a star import": program(
        """
        from popxl.ops import *
        add, relu, gelluu, print, __name__
        """,
        "2:12 name no popxl.ops.gelluu; 'gelu' or 'gelu_'",
    ),
    "a module with a typing error": program(
        """
        import popxl.transfroms
        """,
        "1:8 module no module popxl.transfroms; 'transforms'",
    ),
    "by importlib": program(
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
    "a chain over lines": program(
        """
        import popxl
        x = (popxl
             .ops
             .nopee_q)
        """,
        "4:7 name no popxl.ops.nopee_q",
    ),
    "behind letters of two bytes": program(
        """
        import popxl
        é = 'ü'; popxl.nopee_q
        """,
        "2:16 name no popxl.nopee_q",
    ),
    # Guards
    "an import that may fail in any way": program(
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
    "errors that a test expects": program(
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
    "for type checkers": program(
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
    "for other versions of Python": program(
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
    "an import under a condition": program(
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
    "what is asked for first": program(
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
    "an object that is tested": program(
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
    "annotations that are never evaluated": program(
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
    "annotations of variables in functions": program(
        """
        import popxl
        def f():
            z: popxl.nopee_q = 3
        """,
    ),
}
