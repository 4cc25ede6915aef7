"""Objects, functions and values of a program, and of PopART."""

from __future__ import annotations

from tests_py.compat.checked.cases import Case, program

CASES: dict[str, Case] = {
    # Through functions and objects of the program
    "options in a helper": program(
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
    "a helper that gets several things": program(
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
    "a parameter with a default": program(
        """
        import popxl
        def f(ir=None, n=3):
          ir.nopee_q, n.x
        f()
        f(popxl.Ir(), n=popxl)
        """,
        "3:6 name no popxl.Ir.nopee_q",
    ),
    "an attribute of self": program(
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
    "an attribute that several set": program(
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
    "an attribute of a data class": program(
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
    "what functions of the program return": program(
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
    "decorators": program(
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
    "methods that subclasses replace": program(
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
    "layers of the program's own": program(
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
    "nested functions": program(
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
    "functions that call themselves": program(
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
    "objects that are annotated as the base class": program(
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
    "private attributes of unknown objects": program(
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
    "values that are refused": program(
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
}
