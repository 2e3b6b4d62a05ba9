"""Dates, timestamps and durations as int64 nanoseconds, the one unit in which all frameworks agree.

Instants that nanoseconds in 64 bits cannot hold (before 1677, after 2262) become the nearest one they can: an
"open end" of 9999-12-31 stays later than everything else instead of wrapping round.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.table import NumericColumn

_NANOSECONDS_PER = {
    "W": 7 * 86_400 * 10**9,
    "D": 86_400 * 10**9,
    "h": 3_600 * 10**9,
    "m": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "ns": 1,
}
_INT64 = np.iinfo(np.int64)


def instants_from_ticks(
    ticks: npt.NDArray[np.signedinteger], unit: str, missing: npt.NDArray[np.bool_] | None
) -> NumericColumn:
    """Counts of `unit` as nanoseconds; nanoseconds themselves are shared, not copied."""
    factor = _NANOSECONDS_PER[unit]
    if factor == 1:
        return NumericColumn(ticks, missing)
    limit = _INT64.max // factor
    nanoseconds = np.clip(ticks.astype(np.int64, copy=False), -limit, limit)
    nanoseconds *= factor
    return NumericColumn(nanoseconds, missing)


def instants_from_numpy(values: npt.NDArray[np.datetime64 | np.timedelta64], label: str) -> NumericColumn:
    """A datetime64 or timedelta64 array of any unit; NaT is missing."""
    unit, multiple = np.datetime_data(values.dtype)
    kind = values.dtype.kind
    if unit == "generic":
        raise TypeError(f"The {label} is a {values.dtype} without a unit: give it one, such as {values.dtype}[s].")
    if unit in "YM":
        unit, multiple, values = "D", 1, values.astype(f"{kind}8[D]")
    elif unit not in _NANOSECONDS_PER:
        unit, multiple, values = "ns", 1, values.astype(f"{kind}8[ns]")
    if multiple != 1 or not values.dtype.isnative:
        values = values.astype(f"={kind}8[{unit}]")
    ticks = values.view(np.int64)
    missing = ticks == _INT64.min
    return instants_from_ticks(ticks, unit, missing if missing.any() else None)
