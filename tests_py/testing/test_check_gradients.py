"""check_gradients: right programs pass, each kind of mistake is found and named, the program is as before."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, ops
from popsr._program.context import get_current_context
from popsr.errors import GradientError
from popsr.ops import collectives, var_updates
from popsr.testing import GradientCheck, check_gradients
from tests_py.testing.parallel_programs import Fault, Program, program

SPLITS = [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (1, 4), (2, 3), (3, 2), (6, 1)]


def check(p: Program, **options: Any) -> GradientCheck:
    return check_gradients(p.ir, p.losses, p.gradients, p.inputs, **options)


def error_of(p: Program, **options: Any) -> GradientError:
    with pytest.raises(GradientError) as caught:
        check(p, **options)
    return caught.value


def wrong_names(error: GradientError) -> set[str]:
    return {row.name for row in error.check.rows if not row.ok}


# Right programs


@pytest.mark.parametrize("options", [{}, {"residual": True}, {"shared": True}, {"penalty": True}], ids=str)
@pytest.mark.parametrize("split", SPLITS)
def test_a_right_program_passes(split: tuple[int, int], options: dict[str, Any]) -> None:
    tp, dp = split
    result = check(program(tp, dp, **options))
    assert result.ok
    assert result.worst.error < 1e-6
    assert [(row.name, row.members) for row in result.rows] == [
        (name, tuple(range(part, tp * dp, step)))
        for name, step in (("first", 1), ("columns0", tp), ("rows0", tp))
        for part in range(step)
    ]


@pytest.mark.parametrize("split", SPLITS)
def test_a_mean_over_copies_is_a_scale(split: tuple[int, int]) -> None:
    p = program(*split, reduce="mean")
    assert check(p, scale=1 / split[1]).ok
    assert check(p, scale=None).scale == pytest.approx(1 / split[1])


@pytest.mark.parametrize("split", [(1, 1), (2, 2), (2, 3)])
def test_float32_passes_at_its_tolerance(split: tuple[int, int]) -> None:
    result = check(program(*split, dtype=popsr.float32, residual=True))
    assert result.rtol == 2e-2
    assert result.worst.error < 2e-2


def test_all_gradients_are_zero_where_the_loss_does_not_depend_on_the_variable() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        w, v = (popsr.variable(np.ones(3), popsr.float64, name) for name in "wv")
        loss = ops.sum(w * w)
        result = check_gradients(ir, loss, {w: w * 2.0, v: v * 0.0}, scale=None)
    assert result.ok
    assert result.scale == pytest.approx(1)


# Mistakes

MISTAKES: dict[str, tuple[Fault, tuple[int, int], set[str], str]] = {
    "no sum at the fork": (
        "fork",
        (2, 1),
        {"first"},
        r"'first' differs inside group \{0,1\}, got .* on replica 0 and .* on replica 1, expected the same",
    ),
    "no sum at the fork, with copies": (
        "fork",
        (2, 2),
        {"first"},
        r"'first' differs inside group \{0,1,2,3\}",
    ),
    "a mean for a sum": ("mean", (2, 3), {"columns0"}, "'columns0' .*: 1/3 of the derivative: averaged"),
    "a sum that is done twice": (
        "twice",
        (2, 2),
        {"columns0"},
        "'columns0' .*: 2 times the derivative: summed twice",
    ),
    "a sum over other groups": ("group", (2, 2), {"columns0"}, "'columns0' differs inside group"),
    "no sum over copies": (
        "missing",
        (2, 2),
        {"columns0"},
        "'columns0' differs inside group .*their sum is the",
    ),
    "a mean for a sum, without parts": (
        "mean",
        (1, 4),
        {"columns0"},
        r"'columns0' .*\{0,1,2,3\} .*: 1/4 of the",
    ),
}


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_found_and_named(case: str, residual: bool) -> None:
    fault, split, names, message = MISTAKES[case]
    error = error_of(program(*split, fault, residual=residual))
    assert str(error).startswith("check_gradients: the gradient of ")
    assert "\n" not in str(error)
    assert re.search(message, str(error))
    assert wrong_names(error) == names
    assert error.__notes__ == str(error.check).split("\n")


@pytest.mark.parametrize("split", [(2, 1), (4, 1), (6, 1), (3, 2)])
def test_a_missing_sum_at_a_fork_is_a_wrong_weight_before_it(split: tuple[int, int]) -> None:
    """Also where an all-reduce of the weight's gradient hides that replicas disagree."""
    p = program(*split, "fork", residual=True)
    first = next(iter(p.gradients))
    with p.ir.main_graph, popsr.in_sequence():
        p.gradients[first] = collectives.replicated_all_reduce(p.gradients[first], "mean")
    error = error_of(p)
    assert wrong_names(error) == {"first"}
    assert "'first'" in str(error)


@pytest.mark.parametrize(
    ("split", "text"),
    [((2, 1), "their sum is the derivative"), ((2, 2), "the sum over 2 of them is the derivative")],
)
def test_shares_that_add_up_to_the_derivative_are_named(split: tuple[int, int], text: str) -> None:
    assert str(error_of(program(*split, "fork"))).endswith(f"{text}, is an all-reduce missing?")


def test_a_mistake_in_float32_is_found() -> None:
    error = error_of(program(1, 6, "twice", dtype=popsr.float32))
    assert wrong_names(error) == {"columns0"}
    assert "6 times the derivative: summed twice?" in str(error)


def test_one_factor_of_all_gradients_is_a_scale_that_was_not_given() -> None:
    error = error_of(program(2, 2, reduce="mean"))
    assert "the same factor for all variables: scale=0.5?" in str(error)


def test_a_mistake_is_found_with_any_scale() -> None:
    assert "columns0" in wrong_names(error_of(program(2, 2, "twice"), scale=None))


def test_an_overwritten_gradient_is_named_so() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.ones(3), popsr.float64, "w")
        dw = popsr.variable(np.zeros(3), popsr.float64, "dw")
        loss = ops.sum(w * w)
        stream = popsr.d2h_stream((3,), popsr.float64)
        var_updates.accumulate_(dw, w * 2.0)
        ops.host_store(stream, dw)
        var_updates.accumulator_zero_(dw)
    assert check_gradients(ir, loss, {w: stream}).ok
    with pytest.raises(GradientError, match=r"got 0, expected .*zero: overwritten after its use"):
        check_gradients(ir, loss, {w: dw})


def test_values_that_are_not_finite_are_wrong() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        w = popsr.variable(np.zeros(3), popsr.float64, "w")
        loss = ops.sum(ops.sqrt(w))
        dw = 0.5 / ops.sqrt(w)
    with pytest.raises(GradientError, match=r": not finite\n"):
        check_gradients(ir, loss, {w: dw})


FAULTS: tuple[Fault, ...] = ("fork", "mean", "group", "twice", "missing")


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    """Each right one passes; with one mistake, exactly the weights that it concerns are wrong."""
    rng = np.random.default_rng(seed)
    tp, dp = SPLITS[rng.integers(len(SPLITS))]
    depth = int(rng.integers(1, 4))
    flags = ("residual", "shared", "penalty", "neighbours")
    options: dict[str, Any] = {name: bool(rng.integers(2)) for name in flags}
    options["activation"] = (ops.relu, ops.tanh, ops.gelu, ops.sin)[rng.integers(4)]
    options |= {"depth": depth, "seed": seed}
    assert check(program(tp, dp, **options), seed=seed).worst.error < 1e-6
    fault, at = FAULTS[rng.integers(len(FAULTS))], int(rng.integers(depth))
    concerned = tp if fault == "fork" else max(tp, dp) if fault == "group" else dp
    if concerned > 1:
        wrong = wrong_names(error_of(program(tp, dp, fault, at=at, **options), seed=seed))
        before = {"first", *(f"{name}{i}" for name in ("columns", "rows") for i in range(at))}
        assert wrong == (before if fault == "fork" else {f"columns{at}"}), (tp, dp, fault, at, options)


# Programs of other forms


def test_losses_and_gradients_of_loops_are_read_from_streams() -> None:
    ir = popsr.Ir(replication=2)
    ir.num_host_transfers = 3
    with ir.main_graph, popsr.in_sequence():
        x = popsr.h2d_stream((4,), popsr.float64)
        losses, gradients = popsr.d2h_stream((), popsr.float64), popsr.d2h_stream((4,), popsr.float64)
        w = popsr.variable(np.arange(4.0), popsr.float64, "w")

        def micro(w: popsr.Tensor) -> None:
            error = ops.sin(w) - ops.host_load(x)
            ops.host_store(losses, ops.sum(error * error))
            ops.host_store(gradients, collectives.replicated_all_reduce(error * ops.cos(w) * 2.0))

        ops.repeat(ir.create_graph(micro, w), 3, w)
    data = {x: np.random.default_rng(0).normal(size=(3, 2, 4))}
    assert check_gradients(ir, losses, {w: gradients}, data).ok
    with pytest.raises(GradientError, match="2 times the derivative"):
        check_gradients(ir, losses, {w: gradients}, data, scale=0.5)


def test_means_of_accumulators() -> None:
    """Modules, gradients that are accumulated over micro batches, and means over these and over replicas."""
    rng = np.random.default_rng(0)

    class Net(addons.Module):
        def build(self, x: popsr.Tensor) -> popsr.Tensor:
            hidden = ops.gelu(x @ self.add_variable_input("w0", lambda: rng.normal(size=(6, 8)) / 3, x.dtype))
            return hidden @ self.add_variable_input("w1", lambda: rng.normal(size=(8, 5)) / 3, x.dtype)

    ir = popsr.Ir(replication=2)
    ir.num_host_transfers = 3
    with ir.main_graph, popsr.in_sequence():
        x, labels = popsr.h2d_stream((4, 6), popsr.float64), popsr.h2d_stream((4,), popsr.int32)
        losses = popsr.d2h_stream((), popsr.float64)
        factories, net = Net().create_graph(x.spec)
        accumulators, backward = addons.transforms.autodiff_with_accumulation(net, net.args.tensors)
        variables, means = factories.init(), accumulators.init()
        for _ in range(3):
            call = net.bind(variables).call_with_info(ops.host_load(x))
            loss, dx = addons.ops.cross_entropy_with_grad(call.outputs[0], ops.host_load(labels))
            backward.bind(means).call(dx, args=backward.grad_graph_info.inputs_dict(call))
            ops.host_store(losses, loss)
        gradients = dict(zip(variables.tensors, means.accum.tensors, strict=True))
        for variable, mean in gradients.items():
            collectives.replicated_all_reduce_(mean, "mean")
            ops.scaled_add_(variable, mean, b=-0.5)
        var_updates.accumulator_zero_(means.mean_accum_counter)
    inputs = {x: rng.normal(size=(3, 2, 4, 6)), labels: rng.integers(5, size=(3, 2, 4)).astype(np.int32)}
    assert check_gradients(ir, losses, gradients, inputs, scale=1 / 6).ok
    with pytest.raises(GradientError, match=r"the same factor for all variables: scale=0[.]166667"):
        check_gradients(ir, losses, gradients, inputs)


@pytest.mark.parametrize("stride", [1, 2])
def test_streams_with_a_row_for_each_group(stride: int) -> None:
    ir = popsr.Ir(replication=4)
    group = ir.replica_grouping(stride=stride, group_size=2)
    with ir.main_graph, popsr.in_sequence():
        x = popsr.h2d_stream((3,), popsr.float64, replicated_stream_mode=group)
        losses = popsr.d2h_stream((), popsr.float64, replicated_stream_mode=group)
        gradients = popsr.d2h_stream((3,), popsr.float64, replicated_stream_mode=group)
        w = popsr.variable(np.ones(3), popsr.float64, "w")
        loaded = ops.host_load(x)
        ops.host_store(losses, ops.sum(w * w * loaded))
        ops.host_store(
            gradients, collectives.replicated_all_reduce(w * loaded * 2.0, group=group.transpose())
        )
    data = {x: np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])}
    assert check_gradients(ir, losses, {w: gradients}, data).ok


def test_a_stream_that_replicas_store_in_a_branch_counts_what_is_stored() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        choice = popsr.h2d_stream((), popsr.bool)
        losses = popsr.d2h_stream((), popsr.float64)
        w = popsr.variable(2.0, popsr.float64, "w")

        def then(w: popsr.Tensor) -> None:
            ops.host_store(losses, w * w)

        def otherwise(w: popsr.Tensor) -> None:
            ops.host_store(losses, w * w * 2.0)

        ops.conditional(
            ops.host_load(choice), ir.create_graph(then, w), ir.create_graph(otherwise, w), [w], [w]
        )
        dw = w * 6.0
    assert check_gradients(ir, losses, {w: dw}, {choice: np.array([True, False])}).ok


def test_shards_of_gradients_are_put_together() -> None:
    ir = popsr.Ir(replication=4)
    pairs = ir.replica_grouping(group_size=2)
    rng = np.random.default_rng(0)
    with ir.main_graph, popsr.in_sequence():
        x = popsr.h2d_stream((5,), popsr.float64)
        w, shard = popsr.replica_sharded_variable(
            rng.normal(size=(2, 5)), popsr.float64, "w", replica_grouping=pairs
        )
        whole = collectives.replicated_all_gather(shard, group=pairs)
        loaded = ops.host_load(x)
        loss = ops.sum(whole * whole * loaded)
        dw = collectives.replicated_reduce_scatter(
            whole * loaded * 2.0, "add", group=pairs, configure_output_for_replicated_tensor_sharding=True
        )
        ops.scaled_add_(shard, dw, b=-0.1)
        half = dw * 0.5
    data = {x: rng.normal(size=(4, 5))}
    result = check_gradients(ir, loss, {w: dw}, data)
    assert [row.members for row in result.rows] == [(0, 1), (2, 3)]
    with pytest.raises(GradientError, match="the same factor"):
        check_gradients(ir, loss, {w: half}, data)


def test_remote_variables_are_changed_too() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        buffer = popsr.remote_buffer((3,), popsr.float64, 2)
        w = popsr.remote_variable(np.ones(3), buffer, 1, popsr.float64, "w")
        loaded = ops.remote_load(buffer, 1)
        state = ops.remote_load(buffer, 0)  # of earlier runs, if it was kept
        loss = ops.sum(loaded * loaded + state)
        ops.remote_store(buffer, 1, loaded * 0.5)
        ops.remote_store(buffer, 0, loaded)
        dw = loaded * 2.0
    assert check_gradients(ir, loss, {w: dw}).ok


@pytest.mark.parametrize("kind", ["plain", "sharded", "remote", "remote shards"])
def test_a_variable_that_drifts_does_not_change_the_objective(kind: str) -> None:
    """The loss of the first run is one value, although wrong gradients let the weight drift later."""
    ir = popsr.Ir(replication=4)
    pairs = ir.replica_grouping(group_size=2)
    values = np.array([1.0, 2.0, 3.0, 4.0])
    with ir.main_graph, popsr.in_sequence():
        x = popsr.h2d_stream((4,), popsr.float64)
        loaded = ops.host_load(x)
        buffer = popsr.remote_buffer((4,), popsr.float64, 1)
        shards = popsr.replica_sharded_buffer((4,), popsr.float64, shard_over=2)
        w: popsr.Variable
        held: popsr.Tensor
        if kind == "plain":
            w = held = popsr.variable(values, popsr.float64, "w")
        elif kind == "sharded":
            w, held = popsr.replica_sharded_variable(values, popsr.float64, "w", shard_over=2)
        elif kind == "remote":
            w = popsr.remote_variable(values, buffer, 0, popsr.float64, "w")
            held = ops.remote_load(buffer, 0)
        else:
            w = popsr.remote_replica_sharded_variable(values, shards, 0, popsr.float64, "w")
            held = ops.remote_load(shards, 0)
        whole = held
        if "shard" in kind:
            whole = collectives.replicated_all_gather(held, group=pairs).reshape((4,))
        loss = ops.sum(whole * whole)
        wrong = part = whole * loaded
        if "shard" in kind:
            part = collectives.replicated_reduce_scatter(
                wrong, "add", group=pairs, configure_output_for_replicated_tensor_sharding=True
            )
        if kind.startswith("remote"):
            ops.remote_store(shards if "shard" in kind else buffer, 0, held + part)
        else:
            ops.add_(held, part)
        streamed = popsr.d2h_stream((4,), popsr.float64)
        ops.host_store(streamed, wrong)
    assert [drift.variable for drift in popsr.analysis.analyze(ir).drifting()] == [w]
    with pytest.raises(GradientError) as caught:
        check_gradients(ir, loss, {w: streamed}, {x: np.arange(16.0).reshape(4, 4)}, directions=1)
    (row,) = caught.value.check.rows
    assert row.expected == pytest.approx(2 * values.sum())


def test_variables_without_elements() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        w = popsr.variable(np.zeros((0, 3)), popsr.float64, "w")
        loss = ops.sum(w)
    assert check_gradients(ir, loss, {w: w}).ok


@pytest.mark.parametrize("mode", ["one_per_group", "all_replicas"])
def test_any_retrieval_mode(mode: Any) -> None:
    ir = popsr.Ir(replication=4)
    group = ir.replica_grouping(group_size=2)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.ones((2, 3)), popsr.float64, "w", replica_grouping=group, retrieval_mode=mode)
        loss = ops.sum(w * w * w)
        dw = w * w * 3.0
        ops.add_(w, dw)
    assert len(check_gradients(ir, loss, {w: dw}).rows) == 2


@pytest.mark.parametrize("kind", [popsr.float16, popsr.bfloat16], ids=str)
def test_narrow_variables_have_wider_tolerances(kind: popsr.dtype) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        w = popsr.variable(np.array([0.5, -2.0, 1.0]), kind, "w")
        wide = ops.cast(w, popsr.float32)
        loss, dw = ops.sum(wide * wide), w * 2.0
        tripled = w * 6.0
    assert check_gradients(ir, loss, {w: dw}).ok
    with pytest.raises(GradientError):
        check_gradients(ir, loss, {w: tripled})


def test_random_ops_draw_the_same_numbers_in_each_run() -> None:
    ir = popsr.Ir(replication=2)
    ir.options.enable_stochastic_rounding = True
    with ir.main_graph, popsr.in_sequence():
        seed = popsr.constant(popsr.create_seeds(3))
        w = popsr.variable(np.arange(1.0, 65.0), popsr.float64, "w")
        ones = ops.dropout(popsr.constant(np.ones(64)), seed, p=0.5)
        mask = ops.random_normal(seed, (64,), dtype=popsr.float64) + ops.cast(ones, popsr.float64)
        loss, dw = ops.sum(ops.sin(w) * mask), ops.cos(w) * mask
    assert check_gradients(ir, loss, {w: dw}).ok


def test_kinks_near_a_value_do_not_matter() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        w = popsr.variable(np.array([2e-6, 1.0, -1.0]), popsr.float64, "w")
        loss = ops.sum(ops.relu(w))
        dw = popsr.constant(np.array([1.0, 1.0, 0.0]), popsr.float64)
    assert check_gradients(ir, loss, {w: dw}, directions=3).ok


def test_each_element_of_a_small_variable_is_checked() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        w = popsr.variable(np.array([1.0, 2.0]), popsr.float64, "w")
        loss = ops.sum(w * w * w)
        dw = w * w * 3.0 * popsr.constant(np.array([1.0, 1.001]), popsr.float64)
    with pytest.raises(GradientError, match=r"got 12\.012, expected 12\n"):
        check_gradients(ir, loss, {w: dw})


# The program is as before


def test_the_program_is_as_before(tmp_path: Path) -> None:
    p = program(2, 2, penalty=True)
    hooked: list[Any] = []
    p.ir.main_graph.register_op_created_hook(hooked.append)
    handle = get_current_context().register_op_created_hook(hooked.append)
    state, epoch = p.ir._core.print_state(), p.ir._core.epoch
    facts = popsr.analysis.analyze(p.ir)
    check(p)
    with pytest.raises(GradientError):
        check(p, scale=2.0)
    with pytest.raises(popsr.errors.SessionError):
        check_gradients(p.ir, p.losses, p.gradients, {})
    assert (p.ir._core.print_state(), p.ir._core.epoch) == (state, epoch)
    assert facts.is_equal(p.losses[1])
    get_current_context().remove_op_created_hook(handle)
    assert hooked == []
    assert p.ir.get_all_d2h_streams() == set()
    with popsr.Session(p.ir, check=True) as session:
        session.run(p.inputs)
        weights = session.get_tensors_data(p.gradients)
        check(p)
        assert all(np.array_equal(data, session.get_tensor_data(w)) for w, data in weights.items())


def test_mapped_data_is_not_written(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.arange(3.0))
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.load(tmp_path / "w.npy", mmap_mode="r+"), popsr.float64, "w")
        loss, dw = ops.sum(w * w), w * 2.0
        ops.add_(w, dw)
    assert check_gradients(ir, loss, {w: dw}).ok
    assert np.array_equal(np.load(tmp_path / "w.npy"), np.arange(3.0))
    with popsr.Session(ir) as session:
        session.run()
    assert np.array_equal(np.load(tmp_path / "w.npy"), 3 * np.arange(3.0))


def test_warnings_are_left_to_sessions() -> None:
    p = program(1, 2, "missing")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        error_of(p)
    with pytest.warns(popsr.ReplicaWarning, match="L2"):
        popsr.Session(p.ir)


def test_inside_its_own_graph_and_twice_the_same() -> None:
    p = program(2, 1)
    with p.ir.main_graph:
        one = check(p, seed=1)
        assert (p.losses[0] + 1.0).shape == ()
    assert check(p, seed=1) == one
    assert check(p, seed=2) != one
    assert len(check(p, directions=5).rows) == len(one.rows)


def test_texts() -> None:
    result = check(program(2, 2))
    assert repr(result).startswith("GradientCheck[ok rows=5 scale=1 largest error=")
    assert len(repr(result)) <= 200
    lines = str(result).split("\n")
    assert lines[0] == repr(result)
    assert lines[1].split() == ["variable", "replicas", "expected", "got", "error", "ok", "note"]
    assert lines[2].split()[:2] == ["first", "{0,1,2,3}"]
    assert "<table>" in result._repr_html_()


def test_a_fitted_scale_rests_on_gradients_that_the_loss_resolves() -> None:
    """The factor of one variable that hardly changes the loss is known to few digits."""
    ir = popsr.Ir()
    with ir.main_graph:
        large, small = (
            popsr.variable(np.linspace(1, 2, 4), popsr.float64, name) for name in ("large", "small")
        )
        a, b = ops.tanh(large), ops.tanh(small)
        loss = ops.sum(a) + ops.sum(b) * 1e-8
        gradients = {large: (a * a - 1.0) * -0.5, small: (b * b - 1.0) * -0.5e-8}
    assert check_gradients(ir, loss, gradients, scale=None).scale == pytest.approx(0.5, rel=1e-9)
