"""PowerSGD: a matrix is sent as two thin factors (Vogels, Karimireddy, Jaggi 2019).

One step of power iteration: P = M Q is summed and made orthonormal, then Q = M' P is summed; the sum over ranks is
P Q', and Q starts the next step. Both passes are linear in M, so factors can be added on the way.

Every rank computes the orthonormal P and the product P Q' for itself, and must get the same bits on any processor.
There, sums are made by element-wise operations in a fixed order, never by a library whose order may vary.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives.compression.counter_random import random_signed_units
from dmlgbm.collectives.compression.lossless import NoCompression
from dmlgbm.collectives.compression.protocol import Exchanged, FloatArray, Layout, Round, SummedCodec
from dmlgbm.gbdt.system.counter_random import hash_of


@dataclass(frozen=True)
class PowerSGD(SummedCodec):
    """Low rank for arrays of two or more axes: the first one against all others.

    Arrays with fewer axes, and those whose factors would not be smaller, are sent as they are.
    """

    name: ClassVar[str] = "power_sgd"
    rank: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.rank, int) or self.rank < 1:
            raise ValueError(f"rank must be a positive integer, not {self.rank!r}")

    def memory_shape(self, layout: Layout) -> tuple[int, ...] | None:
        sides = self._matrix_sides(layout)
        return None if sides is None else (sides[1], self.rank)

    def exchange(self, values: FloatArray, round_: Round) -> Generator[FloatArray, FloatArray, Exchanged]:
        sides = self._matrix_sides(round_.layout)
        if sides is None:
            return (yield from NoCompression().exchange(values, round_))
        n_rows, n_columns = sides
        matrix = values.reshape(n_rows, n_columns)
        left_sum = yield (matrix @ self._start(round_, n_columns)).reshape(-1)
        left = orthonormal_columns(left_sum.reshape(n_rows, self.rank))
        mine = matrix.T @ left
        right_sum = yield mine.reshape(-1)
        right = right_sum.reshape(n_columns, self.rank)
        return Exchanged(_product(left, right), sent=_product(left, mine), memory=right)

    def _matrix_sides(self, layout: Layout) -> tuple[int, int] | None:
        if len(layout.shape) < 2:
            return None
        n_rows, n_columns = layout.shape[0], math.prod(layout.shape[1:])
        return (n_rows, n_columns) if self.rank * (n_rows + n_columns) < n_rows * n_columns else None

    def _start(self, round_: Round, n_columns: int) -> FloatArray:
        """Orthonormal directions to begin with: those of the last step, random ones where it left none."""
        key = hash_of("power_sgd", self.seed, round_.key, round_.step)
        start = random_signed_units(key, n_columns * self.rank).reshape(n_columns, self.rank)
        if round_.memory is not None:
            used = round_.memory.any(axis=0)
            start[:, used] = round_.memory[:, used]
        return orthonormal_columns(start.astype(round_.layout.dtype))


def orthonormal_columns(matrix: FloatArray) -> FloatArray:
    """Columns of length one, at right angles, spanning the same space; those that add nothing to it become zero."""
    tolerance = 16 * float(np.finfo(matrix.dtype).eps)
    basis: list[npt.NDArray[np.float64]] = []
    for column in matrix.T.astype(np.float64):
        direction = _unit(column)
        # A second time, for what rounding left of the first.
        for _ in range(2):
            for earlier in basis:
                direction = direction - fixed_order_sum(direction * earlier) * earlier
            # Normalised in between, so that the second pass sees a direction and not its rounding error.
            length = math.sqrt(fixed_order_sum(direction * direction))
            direction = direction / length if length > tolerance else np.zeros_like(direction)
        basis.append(direction)
    return np.stack(basis, axis=1).astype(matrix.dtype)


def fixed_order_sum(values: npt.NDArray[np.float64]) -> float:
    """The sum, by adding the second half to the first until one number is left."""
    while values.size > 1:
        half = (values.size + 1) // 2
        folded = values[:half].copy()
        folded[: values.size - half] += values[half:]
        values = folded
    return float(values[0])


def _unit(column: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    # By the largest entry first: squares of very large or small numbers leave the range of floats.
    peak = np.abs(column).max()
    if peak == 0:
        return column
    column = column / peak
    return column / math.sqrt(fixed_order_sum(column * column))


def _product(left: FloatArray, right: FloatArray) -> npt.NDArray[Any]:
    total = left[:, :1] * right[:, 0]
    for component in range(1, left.shape[1]):
        total += left[:, component : component + 1] * right[:, component]
    return total.reshape(-1)
