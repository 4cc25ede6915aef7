"""Operations of ``popsr.sr.torch``: compiled, with gradients and under ``vmap``, beside the eager calls."""

from __future__ import annotations

from typing import Any

import pytest

from popsr import errors, sr
from tests_py.sr.cases import named_calls

torch = pytest.importorskip("torch")
st = pytest.importorskip("popsr.sr.torch")

KEY = sr.Key(5).fold_in("w")
CALLS = named_calls(torch.float16)
SMOOTH: dict[str, Any] = {
    "add": lambda x, y, z: x + y,
    "sub": lambda x, y, z: x - y,
    "mul": lambda x, y, z: x * y,
    "fma": lambda x, y, z: x * y + z,
    "axpy": lambda x, y, z: 0.3 * x + y,
    "lerp": lambda x, y, z: x + 0.7 * (y - x),
    "lerp array": lambda x, y, z: x + z * (y - x),
    "addcmul": lambda x, y, z: x - 1.7 * y * z,
    "addcdiv": lambda x, y, z: x + 0.1 * y / z,
    "cast": lambda x, y, z: y,
    "sum": lambda x, y, z: x.sum(1),
}


def operands(dtype: Any = torch.bfloat16, shape: Any = (4, 6)) -> Any:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(shape, generator=generator) + 0.5 for _ in range(2))
    return x.to(dtype), y, torch.rand(shape[-1], generator=generator) + 0.5


def same(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def at_least_1d(x: Any) -> Any:
    return x.reshape(-1) if x.dim() == 0 else x


@pytest.mark.parametrize("what", CALLS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e5m2])
def test_bits_are_those_of_the_eager_call(what: str, dtype: Any) -> None:
    arrays = operands(dtype)
    got = CALLS[what](st, *arrays, key=st.at(st.key_tensor(KEY), 3), offset=2)
    assert same(at_least_1d(got), at_least_1d(CALLS[what](sr, *arrays, key=KEY.at(3), offset=2)))


@pytest.mark.parametrize("what", ["add", "add number", "lerp array", "addcdiv", "sum"])
def test_the_graph_has_no_break(what: str) -> None:
    """One compilation serves all steps, as the step is a tensor."""
    torch._dynamo.reset()
    frames = 0

    def backend(graph: Any, _: Any) -> Any:
        nonlocal frames
        frames += 1
        return graph.forward

    def call(key: Any, step: Any, *arrays: Any) -> Any:
        return CALLS[what](st, *arrays, key=st.at(st.fold_in(key, "w"), step))

    compiled, arrays = torch.compile(call, fullgraph=True, backend=backend), operands()
    for step in range(3):
        expect = CALLS[what](sr, *arrays, key=sr.Key(5).fold_in("w").at(step))
        assert same(compiled(st.key_tensor(sr.Key(5)), torch.tensor(step), *arrays), expect)
    assert frames == 1


def test_gradients_in_a_compiled_graph() -> None:
    torch._dynamo.reset()
    key = st.key_tensor(KEY)
    x, y, z = (v.float().requires_grad_() for v in operands())

    def loss(x: Any, y: Any, z: Any) -> Any:
        return (st.addcmul(x, y, z, 0.5, key=key) * z).sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    plain = torch.autograd.grad(loss(x, y, z), (x, y, z))
    for a, b in zip(torch.autograd.grad(compiled(x, y, z), (x, y, z)), plain, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("what", SMOOTH)
def test_gradients_are_those_before_rounding(what: str) -> None:
    leaves = [v.float().requires_grad_() for v in operands()]
    got = torch.autograd.grad(
        (CALLS[what](st, *leaves, key=st.key_tensor(KEY)).float() * 3).sum(), leaves, allow_unused=True
    )
    expect = torch.autograd.grad((SMOOTH[what](*leaves) * 3).sum(), leaves, allow_unused=True)
    for a, b in zip(got, expect, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("what", CALLS)
def test_mapped_operands_are_numbered_as_one_array(what: str) -> None:
    x, y, z = operands(shape=(3, 4, 6))
    got = torch.vmap(lambda x, y: CALLS[what](st, x, y, z, key=st.key_tensor(KEY)))(x, y)
    expect = {
        "sum": lambda: sr.sum(x, torch.float16, axis=2, key=KEY),
        "sum all": lambda: sr.sum(x, axis=(1, 2), key=KEY),
    }
    assert same(got, expect.get(what, lambda: CALLS[what](sr, x, y, z, key=KEY))())


def test_torch_checks_the_operator() -> None:
    x, y, _ = operands()
    arguments: Any = ("add", x, y, None, None, st.key_tensor(KEY), torch.bfloat16, [], "sr", "ieee", 0)
    torch.library.opcheck(torch.ops.popsr_sr.apply.default, arguments)


X = torch.ones(3)
TENSOR = st.key_tensor(KEY)
REFUSED: dict[str, Any] = {
    "no key": (lambda: st.add(X, X), errors.ArgumentTypeError, "add: key is missing"),
    "a key of sr": (
        lambda: st.add(X, X, key=KEY),
        errors.ArgumentTypeError,
        "got Key, expected popsr.sr.torch.key_",
    ),
    "another tensor": (
        lambda: st.add(X, X, key=X),
        errors.ArgumentTypeError,
        "key is not a key, got torch.float32",
    ),
    "number first": (
        lambda: st.add(1.0, X, key=TENSOR),
        errors.ArgumentTypeError,
        "first operand is not a tensor",
    ),
    "integers": (lambda: st.add(X.int(), X, key=TENSOR), errors.DTypeError, "no supported dtype"),
    "mode": (lambda: st.add(X, X, key=TENSOR, mode="up"), errors.AttributeValueError, "add: unknown mode"),
    "shapes": (lambda: st.add(X, X[:2], key=TENSOR), errors.ShapeError, "shapes do not broadcast"),
    "not a key": (lambda: st.key_tensor(3), errors.ArgumentTypeError, "key_tensor: not a key, got int"),
    "step": (lambda: st.at(TENSOR, -1), errors.AttributeValueError, "Key.at"),
    "a mapped key": (
        lambda: torch.vmap(lambda k: st.add(X, X, key=k))(torch.stack([TENSOR, TENSOR])),
        errors.UnsupportedError,
        "add: key is mapped by vmap",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    call, kind, text = REFUSED[what]
    with pytest.raises(kind, match=text):
        call()
