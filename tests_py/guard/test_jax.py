"""Replicated values of JAX on four devices: inside shard_map and as arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from popsr import errors
from popsr.guard import DriftError
from popsr.guard._keys import BLOCK_BYTES

jax = pytest.importorskip("jax")
jnp = jax.numpy
P = jax.sharding.PartitionSpec

from popsr.guard.jax import assert_replicated, check, checked  # noqa: E402
from tests_py.bridge.jax.older import add_newer_names  # noqa: E402

add_newer_names(jax)


@pytest.fixture
def mesh() -> Any:
    if len(jax.devices()) < 4:
        pytest.skip(
            f"JAX has {len(jax.devices())} devices, started by a test before: run this folder by itself"
        )
    return jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("dp", "tp"))


def copies(
    mesh: Any, host: Any, spoil: Callable[[Any], None] | None = None, device: int = 2, spec: Any = None
) -> Any:
    """An array that says it is replicated, one of whose copies may be spoilt."""
    sharding = jax.sharding.NamedSharding(mesh, P() if spec is None else spec)
    parts = []
    for each, index in sharding.addressable_devices_indices_map(host.shape).items():
        part = np.array(host[index])
        if spoil is not None and each == mesh.devices.reshape(-1)[device]:
            spoil(part)
        parts.append(jax.device_put(part, each))
    return jax.make_array_from_single_device_arrays(host.shape, sharding, parts)


def inside(mesh: Any, axis: Any, **options: Any) -> Any:
    """A step that compares its weights."""

    def step(w: Any, x: Any) -> Any:
        assert_replicated({"w": w}, axis, **options)
        return jax.lax.psum(x.sum(), ("dp", "tp"))

    return jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(P(), P(("dp", "tp"))), out_specs=P()))


def set_bit(element: tuple[int, ...], bit: int) -> Callable[[Any], None]:
    def spoil(part: Any) -> None:
        size = part.dtype.itemsize
        part.reshape(-1).view(f"u{size}")[np.ravel_multi_index(element, part.shape)] ^= np.array(
            1 << bit, f"u{size}"
        )

    return spoil


X = np.ones(8, np.float32)


def test_one_flipped_bit_is_named_inside_of_a_traced_function(mesh: Any) -> None:
    host = np.random.default_rng(0).normal(size=(30, 7)).astype(np.float32)
    for axis, ranks, place in (("dp", (0, 1), "dp 1, tp 0"), (("dp", "tp"), (0, 2), "dp 1, tp 0")):
        step = checked(inside(mesh, axis))
        assert float(step(copies(mesh, host), X)) == 8
        with pytest.raises(DriftError) as found:
            step(copies(mesh, host, set_bit((11, 3), 4)), X)
        drift = found.value.drift
        assert (drift.name, drift.ranks, drift.element, drift.count, drift.size) == (
            "['w']",
            ranks,
            (11, 3),
            1,
            210,
        )
        bits = host.view(np.uint32)[11, 3]
        assert [each.split()[0] for each in drift.values] == [f"0x{bits:08x}", f"0x{bits ^ 16:08x}"]
        assert drift.places[1] == place
        assert drift.step is None
    assert "hashes agree on {0,1,3}{2}: ranks 0 and 2 (dp 0, tp 0 and dp 1, tp 0)" in str(found.value)
    with pytest.raises(DriftError):  # again: nothing of the first error is left
        step(copies(mesh, host, set_bit((11, 3), 4)), X)
    assert float(step(copies(mesh, host), X)) == 8
    assert float(checked(inside(mesh, "tp"))(copies(mesh, np.zeros((0, 3), np.float32)), X)) == 8


@pytest.mark.parametrize(("dtype", "bit"), [("bool", 0), ("bfloat16", 15), ("complex64", 35)])
def test_bits_of_other_dtypes(mesh: Any, dtype: str, bit: int) -> None:
    host = np.ones((3, 5), jnp.dtype(dtype))
    broken = copies(mesh, host, set_bit((2, 1), bit), 3)
    with pytest.raises(DriftError) as found:
        checked(inside(mesh, ("dp", "tp")))(broken, X)
    with pytest.raises(DriftError) as outside:
        check({"w": broken})
    for drift in (found.value.drift, outside.value.drift):
        assert (drift.ranks, drift.element, drift.count, drift.size) == ((0, 3), (2, 1), 1, 15)
        assert drift.values[0] == f"0x{host[2, 1].tobytes()[::-1].hex()} ({host[2, 1]})"


def test_the_first_element_of_a_large_array(mesh: Any) -> None:
    host = np.zeros(BLOCK_BYTES // 2 + 77, np.float32)

    def spoil(part: Any) -> None:
        part[[-1, -40, BLOCK_BYTES // 4 + 5]] = np.float32("nan")

    with pytest.raises(DriftError) as found:
        checked(inside(mesh, "dp"))(copies(mesh, host, spoil), X)
    assert found.value.drift.element == (BLOCK_BYTES // 4 + 5,)
    assert found.value.drift.count == 3


def test_nothing_is_compared_at_other_steps(mesh: Any) -> None:
    def step(w: Any, number: Any) -> Any:
        assert_replicated(w, "dp", when=number % 4 == 0)
        return number + 1

    host = np.ones(9, np.float32)
    call = checked(jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(P(), P()), out_specs=P())))
    broken = copies(mesh, host, set_bit((0,), 31))
    assert int(call(broken, 3)) == 4
    with pytest.raises(DriftError, match=r"'value' is declared equal on \{0,1\}"):
        call(broken, 4)


def test_bad_input_of_assert_replicated(mesh: Any) -> None:
    w = np.ones(3, np.float32)
    with pytest.raises(errors.UnknownNameError, match="no such axis, got 'pp'"):
        inside(mesh, "pp")(w, X)
    with pytest.raises(errors.UnknownNameError, match="inside of shard_map"):
        assert_replicated(w, "dp")
    with pytest.raises(errors.ArgumentTypeError, match="axis is not a name, got 3"):
        inside(mesh, 3)(w, X)
    with pytest.raises(errors.ArgumentTypeError, match="nothing to compare"):
        jax.shard_map(lambda x: assert_replicated([3], "dp"), mesh=mesh, in_specs=P(), out_specs=None)(X)
    with pytest.raises(errors.ArgumentTypeError, match="checked: function"):
        checked(3)  # type: ignore[arg-type]


def test_copies_of_arrays_are_compared(mesh: Any) -> None:
    host = np.arange(24, dtype=np.float32).reshape(4, 6)
    good = {
        "a": copies(mesh, host),
        "b": copies(mesh, host, spec=P("tp")),
        "c": copies(mesh, host, spec=P("tp", "dp")),
    }
    found = check(good)
    assert found
    assert found.compared == ("['a']", "['b']")
    assert found.left_out == {"['c']": "no other device holds a part of it"}
    assert str(found).startswith("hashes agree, 2 values on")
    with pytest.raises(DriftError) as error:
        check({**good, "b": copies(mesh, host, set_bit((1, 4), 30), 3, P("tp"))})
    drift = error.value.drift
    assert (drift.name, drift.ranks, drift.element, drift.count) == ("['b']", (1, 3), (3, 4), 1)
    assert drift.places == ("dp 0, tp 1", "dp 1, tp 1")
    assert (drift.declared, drift.found) == ("{0,2}{1,3}", "{0,2}{1}{3}")
    assert drift.names == ("['b']",)


def test_bad_input_of_check(mesh: Any) -> None:
    gone = copies(mesh, np.ones(3, np.float32))
    gone.delete()
    with pytest.raises(errors.StateError, match="an array was deleted"):
        check([gone])
    with pytest.raises(errors.ArgumentTypeError, match="an array is being traced"):
        jax.jit(check)(np.ones(3))
    found = check({"a": np.ones(3), "b": None, "c": 3})
    assert (found.compared, set(found.left_out)) == ((), {"['a']", "['c']"})
    with pytest.raises(errors.ArgumentTypeError, match="not a tree"):
        check({3: 1, "x": 2})


def test_hashes_of_several_processes(mesh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of another process are zero where this one has the devices."""
    from jax.experimental import multihost_utils

    array = copies(mesh, np.ones(3, np.float32))
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda x: np.stack([x, x * (x.ndim == 1)]))
    assert check([array]).compared == ("[0]",)
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda x: np.stack([x, x + 1]))
    with pytest.raises(errors.RankError, match="processes have other arrays"):
        check([array])


def test_the_program_fails_without_checked(mesh: Any) -> None:
    """JAX's own error, which has the text; in a process of its own, as JAX keeps the error until the end."""
    from tests_py.support.helpers import run_python

    run_python(
        "import os; os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=4'\n"
        "import jax, numpy as np\n"
        "from tests_py.guard import test_jax as t\n"
        "mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ('dp', 'tp'))\n"
        "broken = t.copies(mesh, np.ones(9, np.float32), t.set_bit((4,), 3))\n"
        "try:\n"
        "    jax.block_until_ready(t.inside(mesh, 'dp')(broken, t.X))\n"
        "    jax.effects_barrier()\n"
        "except jax.errors.JaxRuntimeError as error:\n"
        "    assert 'differ at element [4]' in str(error), error\n"
        "else:\n"
        "    raise AssertionError\n"
        "os._exit(0)\n"
    )
