"""Casts and sums of ``popsr.sr`` on a device beside the core: are the bits the same, and how long is a call?

``python -m bench.sr_on_device [--frameworks torch jax] [--values 100000000]`` rounds random bits of float32 to each
narrower format, in each mode, and prints how many were compared; it ends with 1 at a bit that differs. Then it prints
times of a call beside that of a copy. Everything runs on the device that a framework has by itself, the CPU where there
is no other; compiled by ``torch.compile`` and by ``jax.jit``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bench.record import duration, machine
from popsr import sr
from popsr.sr._formats import FORMATS

MODES = ("sr", "sr_equal", "rn", "ru", "rd", "rz", "sr_bits=8")
NARROW = [name for name, form in FORMATS.items() if form.itemsize < 4]
KEY = sr.Key(42).fold_in("w").at(3)
CHUNK = 1 << 20
TIMED = 1_000_000
Call = Callable[..., Any]
"""Calls take arrays of a framework, weights and updates, and the number of their first element; they return weights."""


def of_torch() -> tuple[str, Call, Call, Callable[[str, str], dict[str, Call]]]:
    """Name of the device, to it and from it, and the calls of a format and a mode."""
    import torch

    import popsr.sr.torch as st

    device = (
        torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    )
    key = st.key_tensor(KEY).to(device)

    def calls(name: str, mode: str) -> dict[str, Call]:
        form = getattr(torch, name)

        def cast(_: Any, x: Any, offset: int) -> Any:
            return st.cast(x, form, key=key, mode=mode, offset=offset, portable=True)

        def add(w: Any, x: Any, offset: int) -> Any:
            return st.add(w, x, key=key, mode=mode, offset=offset, portable=True)

        compiled = {} if device.type == "cpu" else {"cast, compiled": torch.compile(cast, dynamic=True)}
        return {"cast": cast, "add": add, **compiled}  # what is compiled for the CPU calls the core

    def to(x: Any) -> Any:
        name, size = x.dtype.name, x.itemsize
        return torch.from_numpy(x.view(f"i{size}")).view(getattr(torch, name)).to(device)

    def back(x: Any) -> Any:
        return x.cpu().view(torch.uint8).numpy()

    name = torch.cuda.get_device_name() if device.type == "cuda" else str(device)
    return f"torch {torch.__version__}, {name}", to, back, calls


def of_jax() -> tuple[str, Call, Call, Callable[[str, str], dict[str, Call]]]:
    """Name of the device, to it and from it, and the calls of a format and a mode."""
    import jax
    import jax.numpy as jnp

    import popsr.sr.jax as sj

    def calls(name: str, mode: str) -> dict[str, Call]:
        form = FORMATS[name].numpy

        def cast(_: Any, x: Any, offset: Any) -> Any:
            return sj.cast(x, form, key=sj.Key(KEY), mode=mode, offset=offset, portable=True)

        def add(w: Any, x: Any, offset: Any) -> Any:
            return sj.add(w, x, key=sj.Key(KEY), mode=mode, offset=offset, portable=True)

        return {"cast, compiled": jax.jit(cast), "add, compiled": jax.jit(add)}

    def back(x: Any) -> Any:
        return np.asarray(x).view(np.uint8)

    return f"jax {jax.__version__}, {jax.devices()[0].device_kind}", jnp.asarray, back, calls


def chunks(count: int) -> Iterator[tuple[Any, int]]:
    """Random bits of float32, and the number of the first."""
    for first in range(0, count, CHUNK):
        bits = np.random.default_rng(first).integers(0, 2**32, min(CHUNK, count - first), np.uint32)
        yield bits.view(np.float32), first


def of_core(call: str, w: Any, x: Any, mode: Any, offset: int) -> Any:
    """The bytes that the core gives."""
    if call.startswith("cast"):
        return sr.cast(x, w.dtype, key=KEY, mode=mode, offset=offset).view(np.uint8)
    return sr.add(w, x, key=KEY, mode=mode, offset=offset).view(np.uint8)


def rounded(x: Any, name: str) -> Any:
    """Weights of a format, by NumPy: frameworks disagree on numbers that are too large for float8."""
    with np.errstate(all="ignore"):
        return x.astype(FORMATS[name].numpy)


def compared(made: Any, count: int) -> bool:
    """Print the number of values of each call whose bits are those of the core; False if one has others."""
    _, to, back, calls = made
    for name in NARROW:
        for mode in MODES:
            for title, call in calls(name, mode).items():
                for x, first in chunks(count):
                    w = rounded(x, name)
                    got, want = back(call(to(w), to(x), first)), of_core(title, w, x, mode, first)
                    if not np.array_equal(got, want):
                        place = first + int(np.flatnonzero(got != want)[0]) // FORMATS[name].itemsize
                        print(f"{title} to {name}, {mode}: differs at element {place}")
                        return False
                print(f"{title} to {name}, {mode}: {count:,} values have the bits of the core")
    return True


def seconds(call: Call, *args: Any) -> float:
    """The median of nine calls, each to the end; the first one may compile."""
    taken = []
    for _ in range(10):
        start = time.perf_counter()
        wait_for(call(*args))
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:])


def wait_for(x: Any) -> None:
    """Until the device has computed it."""
    if hasattr(x, "block_until_ready"):
        x.block_until_ready()
    elif x.device.type != "cpu":
        sys.modules["torch"].accelerator.synchronize()


def timed(made: Any) -> None:
    """Print times of calls to bfloat16 beside a copy in float32."""
    _, to, _, calls = made
    numbers = np.random.default_rng(0).normal(size=TIMED).astype(np.float32)
    w, x = to(rounded(numbers, "bfloat16")), to(numbers)
    copy = seconds(lambda x: x + 0, x)
    for title, call in calls("bfloat16", "sr").items():
        own = seconds(call, w, x, 0)
        print(f"{title} of {TIMED:,} to bfloat16: {duration(own)}, {own / copy:.1f} x + 0 ({duration(copy)})")


def trained(device: Any, kind: str, form: Any) -> list[Any]:
    """Bytes of weights and moments after three steps on a device."""
    import torch

    import popsr.sr.torch as st

    generator = torch.Generator().manual_seed(0)
    w, *gradients = torch.randn(4, 300, 500, generator=generator).to(form)
    p = torch.nn.Parameter(w.to(device))
    optimizer = getattr(st, kind)([p], lr=1e-3, seed=0)
    for each in gradients:
        p.grad = each.to(device)
        optimizer.step()
    kept = [p.detach(), *(value for _, value in sorted(optimizer.state[p].items()))]
    return [each.cpu().reshape(-1).view(torch.uint8) for each in kept]


def stepped() -> bool:
    """Print whether optimisers have the bits of the CPU on the accelerator; False if one has others."""
    import torch

    if not torch.accelerator.is_available():
        print("no accelerator to step weights on")
        return True
    device, right = torch.accelerator.current_accelerator(), True
    for kind in ("AdamW", "Adam", "SGD", "Lion"):
        for form in (torch.bfloat16, torch.float32):
            pairs = zip(trained(device, kind, form), trained("cpu", kind, form), strict=True)
            same = all(torch.equal(*pair) for pair in pairs)
            print(f"{kind} of {form}: {'the bits of the CPU' if same else 'other bits than on the CPU'}")
            right &= same
    return right


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frameworks", nargs="+", choices=("torch", "jax"), default=["torch", "jax"])
    parser.add_argument("--values", type=int, default=100_000_000)
    args = parser.parse_args()
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    for name in args.frameworks:
        made = {"torch": of_torch, "jax": of_jax}[name]()
        print(made[0])
        if not compared(made, args.values):
            return 1
        timed(made)
    return 0 if "torch" not in args.frameworks or stepped() else 1


if __name__ == "__main__":
    sys.exit(main())
