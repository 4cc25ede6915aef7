"""Loops that ask a condition: each replica goes on while its own one holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from popsr._program.building.emit import emit_op
from popsr._program.building.transaction import transactional
from popsr._program.create_graph import graph_input, graph_output
from popsr._program.graph import Graph
from popsr._program.tensor import Tensor, TensorLike
from popsr._support.host.arguments import read_int, read_mapping
from popsr._support.text.shown import shown
from popsr.dtypes import bool as bool_dtype
from popsr.errors import ArgumentTypeError, DTypeError, GraphError, ShapeError
from popsr.ops._facts import public_op
from popsr.ops.program.conditional import conditional
from popsr.ops.program.control import _bind_graph, call

__all__ = ["while_loop"]

_WHERE = "while_loop"


@public_op
@transactional
def while_loop(
    cond: Graph,
    body: Graph,
    *inputs: TensorLike | Iterable[TensorLike],
    inputs_dict: Mapping[Tensor, TensorLike] | None = None,
    max_iterations: int | None = None,
) -> tuple[Tensor, ...]:
    """Run a graph again and again, on each replica while its own condition holds.

    Output i of the body becomes input i of the next iteration, as in ``repeat``; the other inputs stay. The condition
    is asked before each iteration. A replica whose condition does not hold keeps what it has while others go on:
    what the body does then, writes in place, to remote memory and to the host, and moving on in streams, does not
    happen there. A collective in the loop needs all members of a group or none, as in ``conditional``.

    A loop that does not end runs until ``max_iterations``, ``Session.stop`` or Ctrl-C. A run needs stream data for one
    iteration; later ones go on in it and begin again at its end.

    Args:
        cond: graph of the condition, with one output, bool of one element. It takes the first inputs of the body, as
            many as it has, and what ``inputs_dict`` says.
        body: graph of an iteration, with an input for each output.
        *inputs: the body's inputs in order; iterables are flattened one level.
        inputs_dict: further inputs by the tensor of the body or of the condition.
        max_iterations: so many iterations may run; when the condition still holds then, ``Session.run`` raises
            OutOfRangeError. Default: any number.
    Returns:
        The outputs of the last iteration; the first inputs where none ran.
    Raises:
        ValueError: as for ``repeat``, ``max_iterations`` is below 1, or the condition has several elements.
        TypeError: as for ``repeat``, or the condition is not bool.
    Example:
        >>> def doubled(t):
        ...     ir = popsr.gir()
        ...     cond = ir.create_graph(lambda x: ops.less(ops.max(x), popsr.constant(100.0)), t)
        ...     body = ir.create_graph(lambda x: x + x, t)
        ...     return ops.while_loop(cond, body, t)
        >>> evaluate(doubled, [1.0, 3.0])
        [array([ 64., 192.], dtype=float32)]
    """
    most = None if max_iterations is None else read_int(f"{_WHERE}: max_iterations", max_iterations, 1)
    for name, graph in (("cond", cond), ("body", body)):
        if not isinstance(graph, Graph):
            raise ArgumentTypeError(f"{_WHERE}: {name} is not a Graph, got {shown(graph)}")
    _check_condition(cond)
    _check_carried(body)
    named = read_mapping(_WHERE, "inputs_dict", inputs_dict)
    of_body = {t: value for t, value in named.items() if t in body.inputs}
    of_cond = {t: value for t, value in named.items() if t not in of_body}
    given, modified = _bind_graph(_WHERE, "body", body, inputs, of_body, True)
    shared = given[: max(0, len(cond.inputs) - len(of_cond))]
    tested, modified_by_cond = _bind_graph(_WHERE, "cond", cond, (shared,), of_cond, True)
    own = tested[len(shared) :]  # of the condition alone
    _check_given([*zip(given, body.inputs, strict=True), *zip(tested, cond.inputs, strict=True)])
    modified += [i if i < len(shared) else i - len(shared) + len(given) for i in modified_by_cond]
    graph = _iteration(cond, body, len(shared), set(modified))
    go_on = call(cond, tested)[0]
    values = [go_on, *given, *own]
    attrs = {"graph": graph._id, "max_iterations": most}
    op, outputs = emit_op(_WHERE, {"inputs": values}, attrs, outputs=1 + len(body.outputs))
    for i in sorted(set(modified)):
        body.ir._core.mark_modified(op, 1 + i)
    return tuple(outputs[1:])


def _check_condition(cond: Graph) -> None:
    if len(cond.outputs) != 1:
        raise GraphError(
            f"{_WHERE}: cond has not one output, got {len(cond.outputs)} of {shown(cond)}, expected the condition"
        )
    t = cond.outputs[0]
    if t.dtype != bool_dtype:
        raise DTypeError(f"{_WHERE}: the condition has the wrong dtype, got {shown(t)}, expected bool")
    if t.nelms != 1:
        raise ShapeError(f"{_WHERE}: the condition is not one value, got {shown(t)}, expected one element")


def _check_carried(body: Graph) -> None:
    if len(body.inputs) < len(body.outputs):
        raise GraphError(
            f"{_WHERE}: body has fewer inputs than outputs, got {len(body.inputs)} and {len(body.outputs)} of "
            f"{shown(body)}, expected an input for each output"
        )
    for before, after in zip(body.inputs, body.outputs, strict=False):
        if after.dtype != before.dtype:
            raise DTypeError(
                f"{_WHERE}: loop-carried dtypes differ, got {shown(after)}, expected {shown(before)}"
            )
        if after.shape != before.shape or after.meta_shape != before.meta_shape:
            raise ShapeError(
                f"{_WHERE}: loop-carried shapes differ, got {shown(after)}, expected {shown(before)}"
            )


def _check_given(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    for t, wanted in pairs:
        if t.dtype != wanted.dtype:
            raise DTypeError(f"{_WHERE}: dtype of input differs, got {shown(t)}, expected {shown(wanted)}")
        if t.shape != wanted.shape:
            raise ShapeError(f"{_WHERE}: shape of input differs, got {shown(t)}, expected {shown(wanted)}")


def _iteration(cond: Graph, body: Graph, shared: int, modified: set[int]) -> Graph:
    """The graph of one iteration: a conditional on the condition, which it takes and gives before what is carried.

    Args:
        cond: graph of the condition.
        body: graph of the body.
        shared: so many inputs of the body are the condition's, too.
        modified: inputs that are written, among the body's and then the condition's own.
    """
    ir, carried = body.ir, len(body.outputs)
    like = [*body.inputs, *cond.inputs[shared:]]
    by_ref = [i in modified for i in range(len(like))]
    go_on = cond.outputs[0]
    run = ir.create_empty_graph("while_body")
    with run:
        inner = _inputs(like, by_ref)
        results = call(body, inner[: len(body.inputs)])
        after = [*results, *inner[carried:]]
        again = call(cond, after[:shared], inner[len(body.inputs) :])
        _outputs([*again, *results])
    stay = ir.create_empty_graph("while_end")
    with stay:
        _outputs(_inputs([go_on, *like[:carried]], [False] * (1 + carried)))
    iteration = ir.create_empty_graph("while_iteration")
    with iteration:
        asked, *inner = _inputs([go_on, *like], [False, *by_ref])
        _outputs(conditional(asked, run, stay, inner, [asked, *inner[:carried]]))
    return iteration


def _inputs(like: Sequence[Tensor], by_ref: Sequence[bool]) -> list[Tensor]:
    return [
        graph_input(t.shape, t.dtype, t.name, by_ref=written, meta_shape=t.meta_shape)
        for t, written in zip(like, by_ref, strict=True)
    ]


def _outputs(tensors: Iterable[Tensor]) -> None:
    for t in tensors:
        graph_output(t)
