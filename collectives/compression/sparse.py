"""A few of the values, the rest later: the largest ones, or ones that all ranks choose alike without a word."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives.compression.counter_random import one_of_each_stratum
from dmlgbm.collectives.compression.protocol import (
    ByteArray,
    Exchanged,
    FloatArray,
    GatheredCodec,
    Layout,
    PayloadError,
    Round,
    SummedCodec,
)
from dmlgbm.gbdt.system.counter_random import hash_of


@dataclass(frozen=True)
class TopK(GatheredCodec):
    """The values of largest magnitude with their positions; among equals the first ones."""

    name: ClassVar[str] = "top_k"
    fraction: float = 0.01

    def __post_init__(self) -> None:
        _check_fraction(self.fraction)

    def body_size(self, layout: Layout) -> int:
        return _n_kept(layout, self.fraction) * (_index_dtype(layout).itemsize + layout.dtype.itemsize)

    def encode(self, values: FloatArray, round_: Round) -> bytes:
        kept = largest_positions(values, _n_kept(round_.layout, self.fraction))
        wire_dtype = values.dtype.newbyteorder("<")
        return kept.astype(_index_dtype(round_.layout)).tobytes() + values[kept].astype(wire_dtype).tobytes()

    def decode(self, body: ByteArray, round_: Round) -> FloatArray:
        layout = round_.layout
        index_dtype = _index_dtype(layout)
        border = _n_kept(layout, self.fraction) * index_dtype.itemsize
        positions = body[:border].view(index_dtype)
        kept_values = body[border:].view(layout.dtype.newbyteorder("<"))
        if positions[-1] >= layout.count or (positions[1:] <= positions[:-1]).any():
            raise PayloadError(f"positions must ascend and stay below {layout.count}")
        if not np.isfinite(kept_values).all():
            raise PayloadError("a value is not finite, which an encoder never writes")
        values = layout.zeros()
        values[positions] = kept_values
        return values


@dataclass(frozen=True)
class RandomK(SummedCodec):
    """Values at random positions, one in each stretch of 1 / fraction neighbours.

    Positions are a hash of seed, key and step, the same on every rank: they are not sent, and values can be summed.
    """

    name: ClassVar[str] = "random_k"
    fraction: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        _check_fraction(self.fraction)

    def exchange(self, values: FloatArray, round_: Round) -> Generator[FloatArray, FloatArray, Exchanged]:
        layout = round_.layout
        key = hash_of("random_k", self.seed, round_.key, round_.step)
        positions = one_of_each_stratum(key, layout.count, _n_kept(layout, self.fraction))
        total, sent = layout.zeros(), layout.zeros()
        sent[positions] = values[positions]
        total[positions] = yield values[positions]
        return Exchanged(total, sent)


def largest_positions(values: FloatArray, n_kept: int) -> npt.NDArray[np.intp]:
    """Where the `n_kept` largest magnitudes are, ascending; among equals the first positions."""
    sizes = np.abs(values)
    smallest_kept = np.partition(sizes, sizes.size - n_kept)[sizes.size - n_kept]
    larger = np.flatnonzero(sizes > smallest_kept)
    equal = np.flatnonzero(sizes == smallest_kept)[: n_kept - larger.size]
    return np.sort(np.concatenate([larger, equal]))


def _check_fraction(fraction: float) -> None:
    if not isinstance(fraction, int | float) or not 0 < fraction <= 1:
        raise ValueError(f"fraction must be above 0 and at most 1, not {fraction!r}")


def _n_kept(layout: Layout, fraction: float) -> int:
    return min(layout.count, max(1, math.ceil(layout.count * fraction)))


def _index_dtype(layout: Layout) -> np.dtype[Any]:
    return np.dtype("<u4") if layout.count <= 2**32 else np.dtype("<u8")
