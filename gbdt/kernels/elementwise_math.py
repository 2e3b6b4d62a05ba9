"""exp, log, single precision and rounding noise whose bits do not depend on position, vector width or math library.

libm, SVML and their vector and scalar tails all round differently; these use only additions, multiplications (some
of them fused, explicitly), one division and bit moves, so every row gets the same bits in whatever loop it is met.

AVX2 cannot convert between 64-bit integers and floats, and one conversion turns a whole loop into scalar code. So
`float_of_count` and `integer_of` move integers into the last bits of a float and back: from 2**52 to 2**53 those bits
are the integer.
"""

from __future__ import annotations

import numpy as np

from dmlgbm.gbdt.kernels.compiler import bits_from_float, float_from_bits, inlined, multiply_add

_LOG2_E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_SMALLEST_NORMAL = 2.2250738585072014e-308
_LARGEST_SINGLE = 3.4028234663852886e38


# 2**52, whose last bits count units, and its bits; and the middle of the floats that have the same exponent.
_UNIT_POWER = 4503599627370496.0
_UNIT_POWER_BITS = 0x4330000000000000
_MIDDLE = 6755399441055744.0
_MIDDLE_BITS = 0x4338000000000000


@inlined
def float_of_count(count: int) -> float:
    """An integer from 0 to 2**52 - 1 as a float."""
    return float_from_bits(count | _UNIT_POWER_BITS) - _UNIT_POWER


@inlined
def integer_of(whole: float) -> int:
    """A whole number between -2**51 and 2**51 as an integer."""
    return bits_from_float(whole + _MIDDLE) - _MIDDLE_BITS


@inlined
def single(value: float) -> np.float32:
    """The value as float32; one beyond its range becomes the largest, because an infinity would spoil every sum."""
    return np.float32(min(max(value, -_LARGEST_SINGLE), _LARGEST_SINGLE))


@inlined
def exp(x: float) -> float:
    """e to the x, for |x| clipped to 708: within 1 unit in the last place or two of the true value."""
    x = min(max(x, -708.0), 708.0)
    power = np.floor(multiply_add(x, _LOG2_E, 0.5))
    r = multiply_add(power, -_LN2_LOW, multiply_add(power, -_LN2_HIGH, x))
    # Taylor's series to r^13; |r| <= ln(2) / 2 leaves a remainder below 5e-18.
    series = 1.0 / 6227020800.0
    series = multiply_add(series, r, 1.0 / 479001600.0)
    series = multiply_add(series, r, 1.0 / 39916800.0)
    series = multiply_add(series, r, 1.0 / 3628800.0)
    series = multiply_add(series, r, 1.0 / 362880.0)
    series = multiply_add(series, r, 1.0 / 40320.0)
    series = multiply_add(series, r, 1.0 / 5040.0)
    series = multiply_add(series, r, 1.0 / 720.0)
    series = multiply_add(series, r, 1.0 / 120.0)
    series = multiply_add(series, r, 1.0 / 24.0)
    series = multiply_add(series, r, 1.0 / 6.0)
    series = multiply_add(series, r, 0.5)
    series = multiply_add(series, r, 1.0)
    series = multiply_add(series, r, 1.0)
    return series * float_from_bits((integer_of(power) + 1023) << 52)


@inlined
def log(x: float) -> float:
    """The natural logarithm of a positive finite number; smaller than normal numbers count as the smallest normal."""
    bits = bits_from_float(max(x, _SMALLEST_NORMAL))
    # x = 2^power * (1 + f) with 1 + f between sqrt(1/2) and sqrt(2).
    power = (bits - _SQRT_HALF_BITS) >> 52
    f = float_from_bits(bits - (power << 52)) - 1.0
    s = f / (2.0 + f)
    z = s * s
    series = 1.479819860511658591e-01
    series = series * z + 1.531383769920937332e-01
    series = series * z + 1.818357216161805012e-01
    series = series * z + 2.222219843214978396e-01
    series = series * z + 2.857142874366239149e-01
    series = series * z + 3.999999999940941908e-01
    series = series * z + 6.666666666666735130e-01
    half_square = 0.5 * f * f
    scale = float(power)
    return scale * _LN2_HIGH - ((half_square - (s * (half_square + series * z) + scale * _LN2_LOW)) - f)


@inlined
def hash_counter(key: np.uint64, counter: np.uint64) -> np.uint64:
    """64 random bits for (key, counter): the finaliser of splitmix64, without any generator state."""
    z = key + counter * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
