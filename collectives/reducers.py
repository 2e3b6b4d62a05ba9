"""Operations that combine two arrays, and which of them may be combined in any order.

Integers and bits give the same result in any order; floating-point sums and products do not, and neither do
minimum and maximum of floats (signed zeros, NaN). Those, and functions of the caller, are folded in rank order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives.kernels.layout import BITWISE_AND, BITWISE_OR, MAXIMUM, MINIMUM, PRODUCT, SUM

Array = npt.NDArray[Any]
Combine = Callable[[Array, Array], Array]

# Types the compiled loops know; others are combined by numpy.
COMPILED_TYPES = frozenset("bhilqBHILQfd")


@dataclass(frozen=True, eq=False)
class Reducer:
    """A named operation: `combine(left, right)` returns the result for two arrays of one type and length.

    Pass one to `all_reduce`, `reduce` or `reduce_scatter` to use a function of your own, such as the better of two
    split candidates. It must depend on its arguments alone; `left` holds the lower ranks. `code` goes on the wire.
    """

    name: str
    combine: Combine
    code: int = 255

    def is_order_free(self, dtype: np.dtype[Any]) -> bool:
        """Whether any order of combining gives the same bits."""
        return self.code != 255 and dtype.kind in "biu"

    def compiled(self, dtype: np.dtype[Any]) -> int | None:
        """The number of this operation in the kernels, where there is one for the type."""
        if self.code == 255 or dtype.char not in COMPILED_TYPES or not dtype.isnative:
            return None
        return self.code - 1

    def check(self, dtype: np.dtype[Any]) -> None:
        """Refuse a type that the operation does not exist for."""
        if self.code == 255:
            return
        bits = self.code - 1 in (BITWISE_AND, BITWISE_OR)
        ordered = self.code - 1 in (MINIMUM, MAXIMUM)
        if dtype.kind not in ("biu" if bits else "biufmM" if ordered else "biufc"):
            raise TypeError(f"op={self.name!r} does not exist for dtype {dtype}; pass a Reducer of your own")


def _minimum(left: Array, right: Array) -> Array:
    # Spelled out, because numpy's own choice between -0.0 and 0.0 depends on the processor.
    return np.where((left <= right) | (left != left), left, right)


def _maximum(left: Array, right: Array) -> Array:
    return np.where((left >= right) | (left != left), left, right)


_REDUCERS = {
    reducer.name: reducer
    for reducer in (
        Reducer("sum", np.add, SUM + 1),
        Reducer("prod", np.multiply, PRODUCT + 1),
        Reducer("min", _minimum, MINIMUM + 1),
        Reducer("max", _maximum, MAXIMUM + 1),
        Reducer("and", np.bitwise_and, BITWISE_AND + 1),
        Reducer("or", np.bitwise_or, BITWISE_OR + 1),
    )
}
OPERATION_NAMES = tuple(_REDUCERS)


def find_reducer(op: str | Reducer) -> Reducer:
    if isinstance(op, Reducer):
        return op
    try:
        return _REDUCERS[op]
    except (KeyError, TypeError):
        raise ValueError(f"op must be one of {', '.join(OPERATION_NAMES)} or a Reducer, got {op!r}") from None


def reducer_name(code: int) -> str:
    """The name behind the number in a header."""
    return next((reducer.name for reducer in _REDUCERS.values() if reducer.code == code), "a function of the caller")
