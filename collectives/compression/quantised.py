"""A few levels a value, with scales for each block of neighbouring values.

Blocks keep a few large values from coarsening all the others. Scales have the dtype of the array, so that any
finite value can be encoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives.compression.protocol import ByteArray, FloatArray, GatheredCodec, Layout, PayloadError, Round

_LARGEST_CODE = 127


@dataclass(frozen=True)
class Int8(GatheredCodec):
    """One signed byte a value: the nearest of 255 evenly spaced levels around zero."""

    name: ClassVar[str] = "int8"
    block_size: int = 1024

    def __post_init__(self) -> None:
        _check_block_size(self.block_size)

    def body_size(self, layout: Layout) -> int:
        return _n_blocks(layout, self.block_size) * layout.dtype.itemsize + layout.count

    def encode(self, values: FloatArray, round_: Round) -> bytes:
        peaks = np.maximum.reduceat(np.abs(values), _block_starts(values.size, self.block_size))
        scales = peaks / values.dtype.type(_LARGEST_CODE)
        # Rounding may have taken the largest level of a block just past the largest float.
        with np.errstate(over="ignore"):
            overflows = np.isinf(scales * _LARGEST_CODE)
        scales[overflows] = np.nextafter(scales[overflows], values.dtype.type(0))
        divisors = _spread(np.where(scales > 0, scales, 1).astype(values.dtype), values.size, self.block_size)
        levels = np.rint(values / divisors)
        # Among subnormal numbers the scale is too coarse for the quotient to stay within the codes.
        codes = np.clip(levels, -_LARGEST_CODE, _LARGEST_CODE, out=levels).astype(np.int8)
        return _little_endian(scales).tobytes() + codes.tobytes()

    def decode(self, body: ByteArray, round_: Round) -> FloatArray:
        layout = round_.layout
        border = _n_blocks(layout, self.block_size) * layout.dtype.itemsize
        scales = _checked_scales(body[:border], layout.dtype, _LARGEST_CODE)
        codes = body[border:].view(np.int8)
        if codes.min() < -_LARGEST_CODE:
            raise PayloadError(f"a code is below -{_LARGEST_CODE}, which an encoder never writes")
        return codes.astype(layout.dtype) * _spread(scales, layout.count, self.block_size)


@dataclass(frozen=True)
class OneBit(GatheredCodec):
    """One sign a value; each stands for the mean of the values of that sign in its block."""

    name: ClassVar[str] = "one_bit"
    block_size: int = 2048

    def __post_init__(self) -> None:
        _check_block_size(self.block_size)

    def body_size(self, layout: Layout) -> int:
        return 2 * _n_blocks(layout, self.block_size) * layout.dtype.itemsize + (layout.count + 7) // 8

    def encode(self, values: FloatArray, round_: Round) -> bytes:
        negative = values < 0
        starts = _block_starts(values.size, self.block_size)
        n_negative = np.add.reduceat(negative, starts, dtype=np.int64)
        n_values = np.diff(starts, append=values.size)
        positive_means = self._means(np.maximum(values, 0), n_values - n_negative)
        negative_means = self._means(np.maximum(-values, 0), n_negative)
        means = np.concatenate([positive_means, negative_means])
        return _little_endian(means).tobytes() + np.packbits(negative).tobytes()

    def decode(self, body: ByteArray, round_: Round) -> FloatArray:
        layout = round_.layout
        border = 2 * _n_blocks(layout, self.block_size) * layout.dtype.itemsize
        positive_means, negative_means = _checked_scales(body[:border], layout.dtype).reshape(2, -1)
        bits = np.unpackbits(body[border:])
        if bits[layout.count :].any():
            raise PayloadError("a bit after the last value is set, which an encoder never does")
        # Exact, as one of the two products is zero, and without the 5 ns a value of `numpy.where` on random signs.
        negative = bits[: layout.count].astype(layout.dtype)
        values = (1 - negative) * _spread(positive_means, layout.count, self.block_size)
        values -= negative * _spread(negative_means, layout.count, self.block_size)
        return values

    def _means(self, sizes: FloatArray, counts: npt.NDArray[np.int64]) -> FloatArray:
        """The sum of each block over its count."""
        # Divided before they are added: a sum of the largest floats would overflow.
        shares = sizes / sizes.dtype.type(self.block_size)
        with np.errstate(over="ignore"):
            sums = np.add.reduceat(shares, _block_starts(sizes.size, self.block_size)).astype(np.float64)
        means = sums * (self.block_size / np.maximum(counts, 1))
        return np.minimum(means, np.finfo(sizes.dtype).max).astype(sizes.dtype)


def _check_block_size(block_size: int) -> None:
    if not isinstance(block_size, int) or block_size < 1:
        raise ValueError(f"block_size must be a positive integer, not {block_size!r}")


def _n_blocks(layout: Layout, block_size: int) -> int:
    return -(-layout.count // block_size)


def _block_starts(count: int, block_size: int) -> npt.NDArray[np.intp]:
    return np.arange(0, count, block_size)


def _spread(of_block: FloatArray, count: int, block_size: int) -> FloatArray:
    """The value of its block for each position."""
    return np.repeat(of_block, block_size)[:count]


def _little_endian(values: FloatArray) -> FloatArray:
    return values.astype(values.dtype.newbyteorder("<"), copy=False)


def _checked_scales(data: ByteArray, dtype: np.dtype[Any], factor: int = 1) -> FloatArray:
    scales = data.view(dtype.newbyteorder("<")).astype(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(scales * factor).all() or (scales < 0).any():
            raise PayloadError("a scale is negative or too large, which an encoder never writes")
    return scales
