"""Synthetic data in the place of what the host feeds to streams: option ``syntheticDataMode``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from popsr._program.options.enums import SyntheticDataMode
from popsr._session.host_data import StreamPlan
from popsr._session.rows import Array
from popsr._support.host.float8 import FLOAT8, encode
from popsr._support.host.float_environment import in_default_environment

__all__ = ["SyntheticData"]


class SyntheticData:
    """Zeros or random numbers for each stream to the device.

    Random numbers are a function of the seed, the step and the name of the stream: normal of mean 0 and deviation 1,
    or uniform in [0, 1), converted to the stream's dtype as a cast does. Integers are truncated magnitudes, so that
    most of them are indices; bool is True above the mean.
    """

    def __init__(self, mode: SyntheticDataMode, seed: int) -> None:
        """A source of data.

        Args:
            mode: its kind; not Off.
            seed: seed of the session.
        """
        self._mode = mode
        self._seed = seed

    def with_room(self, given: Mapping[Any, Any], plans: Iterable[StreamPlan]) -> dict[Any, Any]:
        """Arrays to be filled for the streams in use, which replace the caller's; other keys stay."""
        return {**given, **{plan.stream: np.empty(plan.shape, plan.numpy) for plan in plans}}

    @in_default_environment
    def fill(self, plans: Iterable[StreamPlan], arrays: Iterable[Array], step: int) -> None:
        """Write the data of a run into the arrays of streams to the device.

        Args:
            plans: all streams.
            arrays: their arrays.
            step: number of the run.
        """
        for plan, array in zip(plans, arrays, strict=True):
            if plan.to_device:
                array[...] = self._data(plan, step)

    def _data(self, plan: StreamPlan, step: int) -> Any:
        if self._mode is SyntheticDataMode.Zeros:
            return np.zeros((), plan.numpy)
        generator = np.random.default_rng([self._seed, step, *plan.name.encode()])
        is_normal = self._mode is SyntheticDataMode.RandomNormal
        draw = generator.standard_normal if is_normal else generator.random
        # All rows, also those of other ranks: none depends on which rank asks.
        shape = (plan.transfers, plan.stream.num_rows, *plan.stream.shape)
        drawn = draw(shape, np.float64 if plan.numpy == np.float64 else np.float32)
        values: Any = drawn[:, plan.rows].reshape(plan.shape)
        if plan.numpy == np.bool_:
            return values > (0 if is_normal else 0.5)
        if plan.stream.dtype in FLOAT8:
            return encode(np.asarray(values), plan.stream.dtype, 0, nan_on_overflow=False)
        if plan.numpy.kind in "iu":
            values = np.abs(values)
        return np.asarray(values).astype(plan.numpy)
