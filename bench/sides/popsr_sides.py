"""popsr's sides of bench_compilers.py for single ops: an update by Adam, a loss and a norm."""

from collections.abc import Callable

import popsr
from bench.programs import basic, mnist
from bench.sides import processes
from bench.sides.compared_models import Adam, CrossEntropy, Gpt, LayerNorm, ResNet, sampled, weights_of
from popsr import addons, ops


def memory_before(model: Gpt | ResNet) -> int:
    """Bytes resident before a program is built; the peak begins there.

    A tiny program runs first: what popsr itself needs once is not of the program measured.
    """
    weights_of(model)
    ir, stream = basic.echo()
    with popsr.Session(ir, num_threads=2) as session:
        session.run({stream: [0.0] * 4})
    processes.forget_peak()
    return processes.resident_memory()


def _side(emit: Callable[[], list[popsr.Tensor]], calls: int) -> Callable[[], dict]:
    """Runs of the ops that ``emit`` adds. The first turn also stores their results, in a program of its own."""

    def session(stored: bool) -> tuple[popsr.Session, list[popsr.DeviceToHostStream]]:
        ir, streams = popsr.Ir(), []
        with ir.main_graph, popsr.in_sequence():
            results = emit()
            if stored:
                streams = [popsr.d2h_stream(each.shape, each.dtype) for each in results]
                for stream, result in zip(streams, results, strict=True):
                    ops.host_store(stream, result)
        return popsr.Session(ir, num_threads=2).__enter__(), streams

    timed, _ = session(False)
    found: list[list[float]] = []

    def turn() -> dict:
        if not found:
            checked, streams = session(True)
            outputs = checked.run()
            found.extend(sampled([outputs[stream] for stream in streams]))
        for _ in range(calls):
            timed.run()
        return {"values": found}

    return turn


def adam(calls: int, **sizes: float) -> Callable[[], dict]:
    """Updates by the program of mnist.py; the values are those after ``calls`` updates."""
    model = Adam(**sizes)
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        var, gradient = (popsr.variable(each, popsr.float32) for each in model.arrays())
        factories, update = mnist.Adam().create_graph(var, gradient)
        update.bind(factories.init()).call(var, gradient)
    session = popsr.Session(ir, num_threads=2).__enter__()
    found: list[list[float]] = []

    def turn() -> dict:
        for _ in range(calls):
            session.run()
        if not found:
            found.extend(sampled([session.get_tensor_data(var)]))
        return {"values": found}

    return turn


def _with_gradients(
    function: Callable[..., popsr.Tensor], operands: list[popsr.Tensor], start: popsr.Tensor, wanted: int
) -> list[popsr.Tensor]:
    """The result, and the gradients of the first operands."""
    graph = popsr.gcg().ir.create_graph(function, *operands)
    backward = popsr.transforms.autodiff(graph, grads_required=graph.inputs[:wanted])
    call = ops.call_with_info(graph, *operands)
    gradients = ops.call(backward.graph, start, inputs_dict=backward.inputs_dict(call))
    return [call.outputs[0], *(gradients if isinstance(gradients, tuple) else [gradients])]


def cross_entropy(calls: int, form: str, **sizes: int) -> Callable[[], dict]:
    """Of softmax and ``nll_loss`` by autodiff, or with ``form`` "op" by ``nll_loss_with_softmax_grad``."""
    model = CrossEntropy(**sizes)

    def emit() -> list[popsr.Tensor]:
        scores, labels = (popsr.variable(each) for each in model.arrays())
        if form == "op":
            return list(addons.cross_entropy_with_grad(scores, labels))
        return _with_gradients(addons.cross_entropy, [scores, labels], popsr.constant(1.0), 1)

    return _side(emit, calls)


def layer_norm(calls: int, **sizes: int) -> Callable[[], dict]:
    model = LayerNorm(**sizes)

    def emit() -> list[popsr.Tensor]:
        *operands, start = (popsr.variable(each) for each in model.arrays())
        return _with_gradients(ops.layer_norm, operands, start, 3)

    return _side(emit, calls)
