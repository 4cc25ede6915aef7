"""The hash beside its specification: every dtype of PyTorch and JAX, and every way a tensor lies in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from popsr import errors
from popsr.guard import _keys
from tests_py.guard.reference import hash_of_bytes, key

torch = pytest.importorskip("torch")

BITS = (1 << 64) - 1
SIZES = (0, 1, 2, 3, 7, 4096, 8191, 8192, 8193)


def random_bytes(count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(count).integers(0, 256, count, np.uint8)


def of_torch(tensor: Any) -> int:
    from popsr.guard.torch import tensor_hash

    return tensor_hash(tensor)


def of_jax(array: Any) -> int:
    import jax

    from popsr.guard.jax import array_hash

    low, high = (int(each) for each in jax.jit(array_hash)(array))
    return low | high << 32


def torch_dtypes() -> list[Any]:
    """All whose elements have whole bytes and that can be viewed."""
    found = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    skipped = (
        "qint",
        "quint",
        "int1",
        "int2",
        "int3",
        "int4",
        "int5",
        "int6",
        "int7",
        "bits1x8",
        "bits2x4",
        "bits4x2",
    )
    return sorted(
        (d for d in found if not str(d).split(".")[1].lstrip("u").endswith(skipped) and "bits" not in str(d)),
        key=str,
    )


def test_keys_are_the_specification() -> None:
    for count in (0, 1, 4095):
        assert int(_keys.column_keys()[count]) == key(count)
    assert _keys.length_key() == key(4096)
    assert [int(each) for each in _keys.row_keys(70, 73)] == [key(4097 + row) for row in (70, 71, 72)]


@pytest.mark.parametrize("dtype", torch_dtypes(), ids=str)
def test_every_dtype_of_torch(dtype: Any) -> None:
    for count in SIZES[1:6]:
        data = random_bytes(count * dtype.itemsize)
        if dtype == torch.bool:
            data &= 1
        tensor = torch.from_numpy(data.copy()).view(dtype)
        assert of_torch(tensor) == hash_of_bytes(data.tobytes()), count


@pytest.mark.parametrize("size", [*SIZES, 3 * _keys.BLOCK_BYTES // 2 + 5])
def test_every_size(size: int) -> None:
    data = random_bytes(size)
    expected = hash_of_bytes(data.tobytes())
    assert of_torch(torch.from_numpy(data.copy())) == expected
    assert of_torch(torch.from_numpy(np.append(np.uint8(9), data))[1:]) == expected  # at an odd address


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "0-dim": lambda t: t[3, 5],
    "transposed": lambda t: t.T,
    "strided": lambda t: t[1::3, ::2],
    "reversed order of axes": lambda t: t[:1000].view(10, 100, 1030).permute(2, 0, 1),
    "expanded": lambda t: t[:1].expand(7, -1),
    "one row, strided": lambda t: t.view(1, -1)[:, ::2],
    "a column": lambda t: t[:, 3],
    "empty": lambda t: t[:, :0],
    "empty, transposed": lambda t: t[:0].T,
    "complex conjugate": lambda t: t[:, :1028].contiguous().view(torch.complex64).conj(),
    "negative of a view": lambda t: t[:, :1028].contiguous().view(torch.complex64).conj().imag,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(layout: str) -> None:
    whole = torch.from_numpy(random_bytes(1030 * 1030 * 4)).view(torch.float32).view(1030, 1030)
    tensor = LAYOUTS[layout](whole)
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    data = plain.view(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    assert of_torch(tensor) == hash_of_bytes(data)


def test_no_more_memory_than_a_block() -> None:
    """The largest piece that is copied, whatever the strides."""
    from popsr.guard.torch import _hash

    strided = (torch.zeros(3000, 2000).T, torch.zeros(1, 1 << 22)[:, ::2], torch.zeros(1 << 20)[::2])
    for tensor in strided:
        assert all(len(piece) <= _keys.BLOCK_BYTES for piece in _hash._pieces(tensor))
    for tensor in (*strided, torch.zeros(1 << 21)):
        for words in _hash._word_blocks(tensor):
            assert words.nbytes <= _keys.BLOCK_BYTES


JAX_DTYPES = (
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "float16",
    "bfloat16",
    "float32",
    "complex64",
)
JAX_FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e8m0fnu")


@pytest.mark.share(2)
@pytest.mark.parametrize("name", JAX_DTYPES + JAX_FLOAT8)
def test_every_dtype_of_jax(name: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    dtype = np.dtype(getattr(jnp, name))
    for count in (3, 4099):
        data = random_bytes(count * dtype.itemsize)
        array = data.astype(bool) if name == "bool" else data.view(dtype)
        assert of_jax(jnp.asarray(array)) == hash_of_bytes(array.tobytes()), count


def test_large_and_odd_arrays_of_jax() -> None:
    jax = pytest.importorskip("jax")
    for size in (0, 1, 8193, _keys.BLOCK_BYTES + 3):
        data = random_bytes(size)
        assert of_jax(data) == hash_of_bytes(data.tobytes())
    halves = random_bytes(2 * _keys.BLOCK_BYTES + 20).view(np.float32)
    expected = hash_of_bytes(halves.tobytes())
    assert of_jax(halves) == expected == of_torch(torch.from_numpy(halves.copy()))
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        assert of_jax(jax.numpy.asarray(halves[:4098].view(np.float64))) == hash_of_bytes(
            halves[:4098].tobytes()
        )


def test_a_key_of_jax_is_its_data() -> None:
    jax = pytest.importorskip("jax")
    made = jax.random.key(3)
    assert of_jax(made) == of_jax(jax.random.key_data(made))


def test_one_flipped_bit_is_always_found() -> None:
    """Keys are odd, so no power of two that is a word's difference is lost."""
    data = random_bytes(6 * _keys.ROW_BYTES)
    hashes = {hash_of_bytes(data.tobytes())}
    for bit in range(0, 8 * len(data), 1013):
        data[bit // 8] ^= 1 << bit % 8
        hashes.add(of_torch(torch.from_numpy(data)))
        data[bit // 8] ^= 1 << bit % 8
    assert len(hashes) == 1 + len(range(0, 8 * len(data), 1013))


def test_no_two_elements_of_32_bits_collide() -> None:
    """All differences of two neighbouring words: ``a * d + b * e`` is 0 of 64 bits for no others than 0 and 0."""
    first, second = _keys.column_keys().reshape(-1, 2).T
    inverse = first.copy()
    for _ in range(6):  # by Newton's method, which doubles the bits that are right
        inverse *= np.uint64(2) - first * inverse
    assert (first * inverse == 1).all()
    differences = np.arange(1, 1 << 16, dtype=np.uint64)
    for ratio in second * inverse:  # d is -e * b / a; of d and -d, as of e and -e, one is enough
        found = ratio * differences
        assert not ((found < 1 << 16) | (found > (1 << 64) - (1 << 16))).any()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: torch.empty(3, device="meta"), errors.UnsupportedError, "is on the meta device"),
        (lambda: torch.eye(3).to_sparse(), errors.UnsupportedError, "is sparse or quantised"),
        (lambda: [1.0], errors.ArgumentTypeError, "not a tensor"),
    ],
)
def test_what_has_no_bytes_is_refused(make: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        of_torch(make())


def test_parts_of_bytes_are_refused_by_jax() -> None:
    jnp = pytest.importorskip("jax.numpy")
    from popsr.guard.jax import array_hash

    with pytest.raises(errors.UnsupportedError, match="parts of bytes, got int4"):
        array_hash(jnp.zeros(3, jnp.int4))
    with pytest.raises(errors.UnsupportedError, match="would be converted, got float64"):
        array_hash(np.zeros(3))
    with pytest.raises(errors.ArgumentTypeError, match="not an array"):
        array_hash("text")
