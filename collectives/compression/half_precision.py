"""Two bytes a value: IEEE half precision and bfloat16.

Values beyond the range of the narrow type are clipped to it and values too small for it become zero; error feedback
sends the rest later. float16 has 11 bits and ends at 65504; bfloat16 has 8 bits and the range of float32.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

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

_LARGEST_FLOAT16 = float(np.finfo(np.float16).max)
_LARGEST_BFLOAT16 = float(np.array(0x7F7F0000, np.uint32).view(np.float32))


@dataclass(frozen=True)
class Float16(GatheredCodec):
    """Half precision, added up in the dtype of the array: nothing is lost that error feedback does not return."""

    name: ClassVar[str] = "fp16"

    def body_size(self, layout: Layout) -> int:
        return 2 * layout.count

    def encode(self, values: FloatArray, round_: Round) -> bytes:
        return _to_float16(values, _LARGEST_FLOAT16).astype("<f2", copy=False).tobytes()

    def decode(self, body: ByteArray, round_: Round) -> FloatArray:
        _check_exponents(body, 0x7C00)
        return body.view("<f2").astype(round_.layout.dtype)


@dataclass(frozen=True)
class Float16Sum(SummedCodec):
    """Half precision, added up in half precision: fewer bytes than gathering from three ranks on.

    Each rank clips to its share of the range, so that no sum overflows. The rounding of the sums themselves, up to
    2**-11 of each, is no rank's own error and is not fed back.
    """

    name: ClassVar[str] = "fp16_sum"

    def exchange(self, values: FloatArray, round_: Round) -> Generator[FloatArray, FloatArray, Exchanged]:
        payload = _to_float16(values, _LARGEST_FLOAT16 / round_.world_size)
        total = yield payload
        dtype = round_.layout.dtype
        return Exchanged(total.astype(dtype), sent=payload.astype(dtype))


@dataclass(frozen=True)
class BFloat16(GatheredCodec):
    """The upper half of a float32, rounded to nearest even."""

    name: ClassVar[str] = "bf16"

    def body_size(self, layout: Layout) -> int:
        return 2 * layout.count

    def encode(self, values: FloatArray, round_: Round) -> bytes:
        bits = np.clip(values, -_LARGEST_BFLOAT16, _LARGEST_BFLOAT16).astype(np.float32).view(np.uint32)
        to_nearest_even = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
        return (bits + to_nearest_even >> np.uint32(16)).astype("<u2").tobytes()

    def decode(self, body: ByteArray, round_: Round) -> FloatArray:
        _check_exponents(body, 0x7F80)
        bits = body.view("<u2").astype(np.uint32) << np.uint32(16)
        return bits.view(np.float32).astype(round_.layout.dtype, copy=False)


def _to_float16(values: FloatArray, limit: float) -> npt.NDArray[np.float16]:
    # Rounded towards zero where the limit lies between two numbers: the limits of all ranks together must not overflow.
    # Compared as Python floats, because numpy would first round the limit to float16 itself.
    largest = float(np.float16(limit))
    if largest > limit:
        largest = float(np.nextafter(np.float16(limit), np.float16(0)))
    return np.clip(values, -largest, largest).astype(np.float16)


def _check_exponents(body: ByteArray, of_infinity: int) -> None:
    """Infinity and NaN are the numbers with all bits of the exponent set."""
    if (body.view("<u2") & np.uint16(of_infinity)).max() == of_infinity:
        raise PayloadError("a value is not finite, which an encoder never writes")
